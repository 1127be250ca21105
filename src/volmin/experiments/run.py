"""One run: from a spec to a folder with its result.

A folder with ``result.json`` is finished, and running it again does nothing; one without it is resumed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from volmin import methods, networks, noise
from volmin._typing import Array, Labels
from volmin.data import (
    AUGMENTATIONS,
    Augmentation,
    Dataset,
    ImageFiles,
    ImageLoader,
    Part,
    TensorLoader,
    split_with,
)
from volmin.data.loaders import Loader
from volmin.exceptions import DataError
from volmin.experiments import acceleration, first_phase, provenance
from volmin.experiments.folder import CHECKPOINT, MetricsFile, WarningsFile, read_result, write_result
from volmin.experiments.scores import class_size_figures, held_out_figures, transition_figures
from volmin.experiments.source import load_named
from volmin.experiments.spec import RunSpec
from volmin.io.atomic import write_json
from volmin.io.locks import only_process
from volmin.methods.base import Method
from volmin.progress import Progress
from volmin.training import Record, clean_probs, fit, selected, selection_rule, thread_limit
from volmin.training.devices import OneDevice

if TYPE_CHECKING:
    from lightning_fabric import Fabric

EVALUATION_BATCH = 128
"""Rows per evaluation batch: with 1000, convolutional networks on a CPU take up to 1.7 times as long, and images that
are decoded from files need much memory."""
REPORTED_SHARE = 1 / 20
"""Share of the last epochs whose mean accuracy is reported for methods without validation; the authors': 10 of 200."""


@dataclass(frozen=True)
class Experiment:
    """A spec with its data, network and method, ready to train."""

    spec: RunSpec
    dataset: Dataset
    T: Array | None
    """(C, C) transition matrix of the noisy labels, where it is known."""
    method: Method
    train: Loader
    validation: Loader
    test: Loader

    @property
    def epochs(self) -> int:
        return sum(phase.epochs for phase in self.method.phases(self.spec.recipe))


def set_up(
    spec: RunSpec,
    data_dir: Path | None = None,
    dataset: Dataset | None = None,
    progress: Progress | None = None,
) -> Experiment:
    """Load the data, draw the noise and build the method. Writes nothing below the folder of runs.

    Args:
        spec: Run to set up.
        data_dir: Folder with the official files of the data set, and with pretrained weights.
        dataset: The data, if they are loaded already.
        progress: Callback for the preparation of the data.
    """
    dataset = dataset or load_named(spec.dataset, data_dir, accelerated=spec.accelerated, progress=progress)
    if spec.image_side is not None:
        dataset = dataset.resized(spec.image_side)
    noisy, T = _noisy_labels(dataset, spec)
    split = split_with(dataset.train, noisy, spec.seed)
    with torch.random.fork_rng():
        torch.manual_seed(spec.seed)
        net = acceleration.build_network(spec.network, dataset.input_shape, dataset.num_classes, spec.accelerated)
        if spec.pretrained:
            networks.load_weights(net, _pretrained_weights(spec.network, data_dir))
        method = methods.get(spec.method)(net, dataset.num_classes, **spec.options)
    normalize, augment = dataset.normalize, AUGMENTATIONS[spec.augmentation] if spec.augmentation else None
    train = _loader(split.train, spec.recipe.batch_size, normalize, augment)
    validation, test = (_loader(part, EVALUATION_BATCH, normalize) for part in (split.validation, dataset.test))
    return Experiment(spec, dataset, T, method, train, validation, test)


def _loader(
    part: Part,
    batch_size: int,
    normalize: Callable[[Tensor], Tensor],
    augment: Augmentation | None = None,
) -> Loader:
    """Batches of images in files or of tensors in memory."""
    if isinstance(part.x, ImageFiles):
        return ImageLoader(part.x, part.y, batch_size, normalize=normalize, augment=augment)
    return TensorLoader(part.x, part.y, batch_size, normalize=normalize, augment=augment)


def _pretrained_weights(network: str, data_dir: Path | None) -> Path:
    """The checkpoint of ImageNet weights in the data directory, under torchvision's name for it."""
    candidates = sorted(Path(data_dir or ".").glob(f"{network}*"))
    found = [path for path in candidates if path.suffix in (".pth", ".safetensors")]
    if not found:
        raise DataError(
            f"This preset starts from ImageNet weights: put torchvision's checkpoint {network}-*.pth into the data "
            f"directory ({data_dir}), or choose --preset fast."
        )
    return found[-1]


def _noisy_labels(dataset: Dataset, spec: RunSpec) -> tuple[Labels, Array | None]:
    """The labels to learn from and their transition matrix, drawn or given with the data."""
    if dataset.noisy is not None:
        return dataset.noisy, noise.measured(dataset.noisy, dataset.train.y, dataset.num_classes)
    T = noise.parse(spec.noise, dataset.num_classes, spec.seed)
    if spec.noise in noise.NONE:
        return dataset.train.y, T if dataset.clean_train else dataset.transition
    return noise.corrupt(dataset.train.y, T, spec.seed, draw="authors"), T


def run(
    experiment: Experiment,
    out: Path,
    *,
    fabric: OneDevice | Fabric | None = None,
    on_epoch: Callable[[list[Record]], None] | None = None,
    share: bool = False,
) -> dict[str, Any]:
    """Train, and write the run's folder below ``out``.

    Args:
        experiment: What to train.
        out: Folder of the run folders.
        fabric: Device or devices, launched; by default one device.
        on_epoch: Callback that gets the history after every epoch.
        share: Whether to share plain training at the beginning with other runs below ``out``: see ``first_phase``.

    Returns:
        The content of ``result.json``.
    """
    spec = experiment.spec
    folder = spec.folder(out)
    if (result := read_result(folder)) is not None:
        return result
    fabric = fabric or OneDevice()
    versions = provenance.versions(spec)  # before training: the source checkout may change while it runs
    metrics = MetricsFile(folder)

    def after_epoch(history: list[Record]) -> None:
        if fabric.is_global_zero:
            metrics.update(history)
            if on_epoch is not None:
                on_epoch(history)

    test, method, T = experiment.test.to(fabric.device), experiment.method, experiment.T
    with only_process(folder) if fabric.is_global_zero else nullcontext(), thread_limit(spec.threads):
        if fabric.world_size == 1 and (result := read_result(folder)) is not None:
            return result  # another process has finished it in the meantime
        if fabric.is_global_zero:
            write_json(folder / "spec.json", spec.as_json())
        kept = WarningsFile(folder)
        add = kept.add if fabric.is_global_zero else None
        with _recorded_warnings(add), acceleration.thread_share(method, spec.accelerated):
            if share and fabric.world_size == 1:
                first_phase.begin(
                    spec,
                    method,
                    experiment.train,
                    experiment.validation,
                    out,
                    measure=lambda plain: held_out_figures(plain, test, T),
                    initial=transition_figures(method, T),
                    on_epoch=after_epoch,
                )
            history = fit(
                method,
                experiment.train,
                experiment.validation,
                spec.recipe,
                folder / CHECKPOINT,
                seed=spec.seed,
                precision=spec.precision,
                patience=spec.patience,
                fabric=fabric,
                measure=lambda: held_out_figures(method, test, T),
                on_epoch=after_epoch,
            )
        result = _result(experiment, history) | {"warnings": kept.texts, "versions": versions}
        if "file" in spec.data:
            result |= class_size_figures(method, experiment.train, test)
        if fabric.is_global_zero:
            metrics.update(history)
            write_result(folder, method, experiment.dataset.encoding(), result)
    return result


@contextmanager
def _recorded_warnings(add: Callable[[str], None] | None) -> Iterator[None]:
    """Hand the text of every warning to ``add``, and still show it as before."""
    with warnings.catch_warnings():
        show = warnings.showwarning

        def add_and_show(message: Warning | str, category: type[Warning], *place: Any, **options: Any) -> None:
            if add is not None and issubclass(category, UserWarning):
                add(str(message))
            show(message, category, *place, **options)

        warnings.showwarning = add_and_show
        yield


def mean_of_last(accuracies: Sequence[float]) -> float:
    """The mean over the last twentieth of the epochs, at least one."""
    return fmean(accuracies[-max(1, round(REPORTED_SHARE * len(accuracies))) :])


def _result(experiment: Experiment, history: list[Record]) -> dict[str, Any]:
    recipe, last = experiment.spec.recipe, history[-1]
    rule = selection_rule(experiment.method.phases(recipe)[-1], recipe, experiment.method.recipe_changes)
    chosen = selected(history, rule)
    accuracy = chosen["accuracy"]
    if rule == "last":
        accuracy = mean_of_last([record["accuracy"] for record in history if record["phase"] == last["phase"]])
    return {
        "accuracy": accuracy,
        "test_labels": "clean" if experiment.dataset.clean_test else "given",
        # A method may change T after its last epoch.
        "transition_error": transition_figures(experiment.method, experiment.T).get("transition_error"),
        "selected_epoch": chosen["epoch"],
        "selection": rule,
        "last_accuracy": last["accuracy"],
        "last_transition_error": last.get("transition_error"),
        "by_selection": {
            name: {key: selected(history, name).get(key) for key in ("epoch", "accuracy", "transition_error")}
            for name in ("loss", "accuracy")
        },
        "noise_rate_estimate": _noise_rate(experiment),
        "unreadable_images": _unreadable_images(experiment),
        "epochs": len(history),
        "seconds": sum(record["seconds"] for record in history),
        "seconds_per_epoch": fmean(record["seconds"] for record in history),
        "accelerated": experiment.spec.accelerated,
    }


def _unreadable_images(experiment: Experiment) -> int:
    loaders = (experiment.train, experiment.validation, experiment.test)
    return sum(len(loader.unreadable) for loader in loaders if isinstance(loader, ImageLoader))


_ENOUGH_FOR_PRIORS = 10_000
"""Inputs that determine class priors to half a percent; all of CIFAR would take a large network minutes."""


def _noise_rate(experiment: Experiment) -> float | None:
    """``1 - sum_j P(clean = j) T[j, j]``, with the class priors that the classifier finds on training inputs.

    About ten thousand inputs are used; images that are decoded on demand are those of the validation part.
    """
    method = experiment.method
    with torch.no_grad():
        T = method.transition()
    if T is None:
        return None
    inputs = experiment.validation
    if isinstance(train := experiment.train, TensorLoader):
        every = -(-len(train.y) // _ENOUGH_FOR_PRIORS)
        inputs = TensorLoader(train.x[::every], train.y[::every], train.batch_size, normalize=train.normalize)
    priors = clean_probs(method, (batch.x for batch in inputs.to(T.device))).mean(0)
    return 1 - (priors * T.diagonal().cpu()).sum().item()
