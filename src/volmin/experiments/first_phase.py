"""Plain training that several runs begin with: trained once, stored below the folder of runs, and loaded by each.

Many methods begin with the same plain training, which is also the whole run of cross-entropy. Its folder is named by
everything that determines it (``plan.shared_training``) and holds a checkpoint with a checksum, which is written after
every epoch. A run that begins with it gets a checkpoint of its own, as if it had just completed its first phase: from
there it continues to the same bits as a run that trained alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from volmin.data import TensorLoader
from volmin.data.loaders import Loader
from volmin.experiments.folder import CHECKPOINT, MetricsFile
from volmin.experiments.plan import shared_training
from volmin.experiments.spec import RunSpec
from volmin.io.atomic import write_json
from volmin.io.locks import only_process
from volmin.methods import CrossEntropy, Method
from volmin.training import OneDevice, Record, fit
from volmin.training import checkpoint as checkpoints
from volmin.training.phase import selection_rule

SHARED = "shared"
"""Folder of the shared trainings, below the folder of runs. It may be deleted at any time."""


def folder_of(spec: RunSpec, out: Path) -> Path | None:
    """The folder of the plain training that a run begins with, if it does."""
    shared = shared_training(spec)
    return None if shared is None else shared.folder(out / SHARED)


def begin(
    spec: RunSpec,
    method: Method,
    train: Loader,
    validation: Loader,
    out: Path,
    *,
    measure: Callable[[Method], Mapping[str, float]],
    initial: Mapping[str, float],
    on_epoch: Callable[[list[Record]], None],
) -> None:
    """Write the checkpoint of a run at the end of its first phase, if that is plain training on data in memory.

    The training is waited for if another process is at work on it, resumed if it was interrupted, and loaded if it is
    complete. A run that has a checkpoint is left as it is.

    Args:
        spec: Run to begin.
        method: Its method, which gets the selected weights.
        train: Training data.
        validation: Validation data.
        out: Folder of the run folders.
        measure: Figures of the method that is trained, after every epoch.
        initial: Figures of ``method`` itself that plain training does not change, such as the error of its first T.
        on_epoch: Callback that gets the history, as the run would have recorded it, after every epoch.
    """
    shared, checkpoint = shared_training(spec), spec.folder(out) / CHECKPOINT
    # Images that cannot be read are counted while they are decoded, which this would skip.
    if shared is None or checkpoint.exists() or not isinstance(train, TensorLoader):
        return
    folder, plain, device = shared.folder(out / SHARED), CrossEntropy(method.net, method.num_classes), OneDevice()
    phases = method.phases(spec.recipe)

    def as_recorded(history: Sequence[Record]) -> list[Record]:
        return [record | {"phase": phases[0].name, **initial} for record in history]

    with only_process(folder, seconds=math.inf):
        metrics = MetricsFile(folder)

        def after_epoch(history: list[Record]) -> None:
            metrics.update(history)
            on_epoch(as_recorded(history))

        write_json(folder / "spec.json", shared.as_json())
        fit(
            plain,
            train,
            validation,
            shared.recipe,
            folder / CHECKPOINT,
            seed=spec.seed,
            precision=spec.precision,
            fabric=device,
            measure=lambda: measure(plain),
            on_epoch=after_epoch,
        )
    rule = selection_rule(phases[0], spec.recipe, method.recipe_changes)
    history = as_recorded(checkpoints.load_plain(folder / CHECKPOINT, method, rule))
    identity = checkpoints.identity(
        method, spec.recipe, phases, spec.seed, train.epoch_batches, device.world_size, spec.precision
    )
    checkpoints.save(checkpoint, identity, method, [], checkpoints.Progress(phase=1, history=history))
