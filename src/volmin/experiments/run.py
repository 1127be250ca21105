"""One run: from a spec to a folder with its result.

A folder with ``result.json`` is finished, and running it again does nothing; one without it is resumed.
"""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor

from volmin import methods, networks, noise
from volmin.data import (
    AUGMENTATIONS,
    Augmentation,
    DataError,
    Dataset,
    ImageFiles,
    ImageLoader,
    Part,
    TensorLoader,
    split_with,
)
from volmin.exceptions import DamagedFileError, InputError
from volmin.experiments import no_anchors as anchors
from volmin.experiments.spec import RunSpec
from volmin.io.atomic import replace_file, write_json, write_text
from volmin.io.locks import only_process
from volmin.io.sealed import read_sealed_json, write_sealed_json
from volmin.methods.base import Method
from volmin.training import Record, clean_probs, fit, selected, selection_rule, thread_limit
from volmin.training.devices import OneDevice
from volmin.transition import log_volume, transition_error

if TYPE_CHECKING:
    from lightning_fabric import Fabric

EVALUATION_BATCH = 1000
IMAGE_FILES_BATCH = 128
"""Rows of a batch of large images, for the memory that they take."""
REPORTED_SHARE = 1 / 20
"""Methods without validation report the mean accuracy of so many of their epochs, as their authors do: 10 of 200."""


InOrder = TensorLoader | ImageLoader


@dataclass(frozen=True)
class Experiment:
    """A spec with its data, network and method, ready to train."""

    spec: RunSpec
    dataset: Dataset
    T: NDArray[np.float64] | None
    """(C, C) the matrix behind the noisy labels, where it is known."""
    method: Method
    train: InOrder
    validation: InOrder
    test: InOrder

    @property
    def epochs(self) -> int:
        return sum(phase.epochs for phase in self.method.phases(self.spec.recipe))


def set_up(spec: RunSpec, data_dir: Path | None = None, dataset: Dataset | None = None) -> Experiment:
    """Load the data, draw the noise and build the method. Writes nothing below the folder of runs."""
    dataset = dataset or anchors.load_dataset(spec.dataset, data_dir)
    if spec.image_side is not None:
        dataset = dataset.resized(spec.image_side)
    noisy, T = _noisy_labels(dataset, spec)
    split = split_with(dataset.train, noisy, spec.seed)
    with torch.random.fork_rng():
        torch.manual_seed(spec.seed)
        net = networks.build(spec.network, dataset.input_shape, dataset.num_classes)
        if spec.pretrained:
            networks.load_weights(net, _pretrained_weights(spec.network, data_dir))
        method = methods.get(spec.method)(net, dataset.num_classes, **spec.options)
    normalize, augment = dataset.normalize, AUGMENTATIONS[spec.augmentation] if spec.augmentation else None
    train = _loader(split.train, spec.recipe.batch_size, normalize, augment)
    validation, test = (_loader(part, None, normalize) for part in (split.validation, dataset.test))
    return Experiment(spec, dataset, T, method, train, validation, test)


def _loader(
    part: Part,
    batch_size: int | None,
    normalize: Callable[[Tensor], Tensor],
    augment: Augmentation | None = None,
) -> InOrder:
    """Batches of images in files or of tensors in memory; for evaluation without a given size."""
    if isinstance(part.x, ImageFiles):
        return ImageLoader(part.x, part.y, batch_size or IMAGE_FILES_BATCH, normalize=normalize, augment=augment)
    return TensorLoader(part.x, part.y, batch_size or EVALUATION_BATCH, normalize=normalize, augment=augment)


def _pretrained_weights(network: str, data_dir: Path | None) -> Path:
    """The checkpoint of ImageNet weights beside the data, by the name that it has where it comes from."""
    candidates = sorted(Path(data_dir or ".").glob(f"{network}*"))
    found = [path for path in candidates if path.suffix in (".pth", ".safetensors")]
    if not found:
        raise DataError(
            f"This preset starts from ImageNet weights: put torchvision's checkpoint {network}-*.pth into the data "
            f"directory ({data_dir}), or choose --preset fast."
        )
    return found[-1]


def _noisy_labels(dataset: Dataset, spec: RunSpec) -> tuple[NDArray[np.int64], NDArray[np.float64] | None]:
    """The labels to learn from, and the matrix behind them: what was drawn, or what came with the data."""
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
) -> dict[str, Any]:
    """Train, and write the run's folder below ``out``; returns the content of its ``result.json``."""
    spec = experiment.spec
    folder = spec.folder(out)
    if (result := read_result(folder)) is not None:
        return result
    fabric = fabric or OneDevice()
    versions = _versions()  # of what is about to run: a checkout may move on before it ends
    metrics = _MetricsFile(folder / "metrics.jsonl")

    def after_epoch(history: list[Record]) -> None:
        if fabric.is_global_zero:
            metrics.update(history)
            if on_epoch is not None:
                on_epoch(history)

    test = experiment.test.to(fabric.device)
    checkpoint = folder / "checkpoint.ckpt"
    with only_process(folder) if fabric.is_global_zero else nullcontext(), thread_limit(spec.threads):
        if fabric.world_size == 1 and (result := read_result(folder)) is not None:
            return result  # another process finished it just now
        if fabric.is_global_zero:
            write_json(folder / "spec.json", spec.as_json())
        history = fit(
            experiment.method,
            experiment.train,
            experiment.validation,
            spec.recipe,
            checkpoint,
            seed=spec.seed,
            fabric=fabric,
            measure=lambda: _test_figures(experiment.method, test, experiment.T),
            on_epoch=after_epoch,
        )
        result = _result(experiment, history) | {"versions": versions}
        if fabric.is_global_zero:
            metrics.update(history)
            _write(folder, experiment, result)
            checkpoint.unlink(missing_ok=True)
    return result


def read_result(folder: Path, files: bool = False) -> dict[str, Any] | None:
    """The result of a finished run, or None; a damaged one is refused, and if asked so are damaged files beside it."""
    path = folder / "result.json"
    return read_sealed_json(path, files) if path.exists() else None


def tidy(folder: Path) -> None:
    """Clear away what a process leaves that was killed just after it wrote its result."""
    checkpoint = folder / "checkpoint.ckpt"
    if checkpoint.exists():
        with suppress(OSError), only_process(folder):
            checkpoint.unlink()


def read_metrics(folder: Path) -> list[Record]:
    """The epochs that a run has recorded. A last line that was cut off is left out, as resuming will write it anew."""
    path = folder / "metrics.jsonl"
    if not path.exists():
        return []
    content = path.read_bytes()
    try:
        records = [json.loads(line) for line in content[: content.rfind(b"\n") + 1].splitlines()]
        if not all(isinstance(record["seconds"], float) for record in records):
            raise InputError("seconds are not numbers")
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise DamagedFileError(f"{path} is damaged ({error}): delete it; resuming the run writes it anew.") from None
    return records


def _test_figures(method: Method, test: InOrder, T: NDArray[np.float64] | None) -> dict[str, float]:
    method.eval()
    with torch.inference_mode():
        # Labels come with the batches: images that cannot be read are not among them.
        hits = torch.cat([(method(batch.x).softmax(1).argmax(1) == batch.y).cpu() for batch in test])
    figures = {"accuracy": hits.double().mean().item()}
    with torch.no_grad():
        if (estimate := method.transition()) is not None:
            if T is not None:
                figures["transition_error"] = transition_error(T, estimate)
            figures["log_volume"] = log_volume(estimate).item()
    return figures


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
        "transition_error": chosen.get("transition_error"),
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
    }


def _unreadable_images(experiment: Experiment) -> int:
    loaders = (experiment.train, experiment.validation, experiment.test)
    return sum(len(loader.unreadable) for loader in loaders if isinstance(loader, ImageLoader))


def _versions() -> dict[str, str | None]:
    packages = {name: version(name) for name in ("volmin", "torch", "numpy")}
    return packages | {"python": platform.python_version(), "commit": _commit()}


@cache
def _commit() -> str | None:
    """The commit of a source checkout, marked where files were changed; None for an installed package."""
    source = Path(__file__).parents[2]
    if not (source.parent / ".git").exists():
        return None
    command = ["git", "-C", str(source), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


_ENOUGH_FOR_PRIORS = 10_000
"""Inputs that tell how frequent classes are to half a percent: all of CIFAR would take a large network minutes."""


def _noise_rate(experiment: Experiment) -> float | None:
    """``1 - sum_j P(clean = j) T[j, j]``, with the priors that the classifier finds on training inputs.

    Some ten thousand of them stand for all; where images are decoded when needed, those held out for validation do.
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


def _write(folder: Path, experiment: Experiment, result: dict[str, Any]) -> None:
    """The artefacts first and ``result.json`` last: its presence says that all of them are complete."""
    method = experiment.method
    with torch.no_grad():
        T = method.transition()
    if T is not None:
        with replace_file(folder / "transition.npy") as temporary, temporary.open("wb") as file:
            np.save(file, T.cpu().numpy())
    with replace_file(folder / "model.safetensors") as temporary:
        save_file({name: value.contiguous() for name, value in method.state_dict().items()}, temporary)
    write_json(folder / "encoder.json", experiment.dataset.encoding())
    beside = sorted(path.name for path in folder.iterdir() if path.name in _ARTEFACTS)
    write_sealed_json(folder / "result.json", result, beside)


_ARTEFACTS = ("spec.json", "encoder.json", "transition.npy", "model.safetensors", "metrics.jsonl")


class _MetricsFile:
    """A line per epoch. A process first writes the whole history anew, since a killed run may have lost a line."""

    def __init__(self, path: Path) -> None:
        self.path, self.written = path, 0

    def update(self, history: list[Record]) -> None:
        lines = "".join(json.dumps(record) + "\n" for record in history[self.written :])
        if self.written == 0:
            write_text(self.path, lines)
        else:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(lines)
        self.written = len(history)
