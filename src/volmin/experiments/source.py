"""Where a run's data and labels come from, and what identifies them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from volmin import data
from volmin.data import DataError, Dataset, load_dataset
from volmin.data.custom import check_path
from volmin.data.label_files import find_labels, number_labels, read_label_sets, read_labels
from volmin.exceptions import InputError
from volmin.experiments import no_anchors as anchors
from volmin.experiments.presets import NO_ANCHORS
from volmin.noise import NONE


@dataclass(frozen=True)
class Source:
    """A data set by name, or a file or folder of one's own; and maybe noisy labels from a file."""

    name: str
    data_dir: Path | None = None
    label: str | None = None
    clean: str | None = None
    ignore: tuple[str, ...] = ()
    labels: str | None = None
    """Noisy labels of a named data set's training part: ``FILE`` or ``FILE:KEY``."""
    images: bool = False
    """Whether a table names image files, to be learned from."""
    size: int | None = None
    """The side that images of one's own are resized to."""

    def __post_init__(self) -> None:
        if self.path is not None and self.labels:
            raise DataError(f"{self.path} holds its own labels: leave out --labels, and name columns of a table.")
        if self.path is None and (self.label or self.clean or self.ignore or self.images or self.size):
            raise DataError(
                f"{self.name} has no columns to choose from, and its own images: leave out --label, --clean, --ignore, "
                "--images and --size."
            )

    @property
    def path(self) -> Path | None:
        """The file or folder of one's own."""
        return None if self.name.removesuffix(NO_ANCHORS) in data.names() else check_path(self.name)

    @property
    def kind(self) -> str:
        """What presets know: the name of a data set, ``table`` or ``images``."""
        if self.path is None:
            return self.name
        return "images" if self.images or self.path.is_dir() else "table"

    @property
    def rows(self) -> int | None:
        """The number of training rows, for data whose recipe follows its size."""
        return None if self.path is None else len(self.dataset.train)

    @cached_property
    def dataset(self) -> Dataset:
        """The data, with labels from a file in place."""
        if self.path is not None:
            return load_dataset(
                self.path, label=self.label, clean=self.clean, ignore=self.ignore, images=self.images, size=self.size
            )
        found = anchors.load_dataset(self.name, self.data_dir)
        return found if self.labels is None else _with_labels(found, self.labels)

    def check_noise(self, noise: str | None) -> str:
        """The noise to draw: none where labels are noisy already, pair:0.45 where they are clean."""
        noisy_already = self.labels or self.clean or self.name in data.NOISY
        if noisy_already and noise not in (None, *NONE):
            raise InputError(f"The labels of {self.name} are noisy already: leave out --noise {noise}.")
        return noise or ("none" if noisy_already or self.path is not None else "pair:0.45")

    def describe(self, noise: str) -> str:
        """Where the noise in the labels comes from, in a word or two."""
        if self.labels or self.clean:
            return self.labels or f"labels {self.label}"
        return "labels as given" if noise in NONE and self.check_noise(None) == noise else noise

    def identity(self) -> dict[str, Any]:
        """What tells this data from other data, for a run's spec; empty for a data set that its name identifies."""
        identity: dict[str, Any] = {}
        if self.path is not None:
            columns = {"label": self.label, "clean": self.clean, "ignore": list(self.ignore)}
            identity = {"file": self.path.resolve().name, "sha256": _digest(self.path), **columns}
            if self.images:
                # The table alone does not tell whether an image has changed.
                identity["pixels_sha256"] = _pixels_digest(self.dataset)
            if self.size is not None:
                identity["size"] = self.size
        if self.labels is not None:
            path, key = find_labels(self.labels)
            identity |= {"labels_file": path.name, "labels_sha256": _digest(path), "labels_key": key}
        return identity


def _with_labels(dataset: Dataset, text: str) -> Dataset:
    path, key = find_labels(text)
    noisy = number_labels(read_labels(path, key), dataset.classes, len(dataset.train), path)
    # The files of CIFAR-N repeat the clean labels, which shows whether they belong to these images.
    clean = read_label_sets(path).get("clean_label") if path.suffix.lower() == ".pt" else None
    if clean is not None and not np.array_equal(clean, dataset.train.y):
        raise DataError(f"The clean labels in {path} are not those of {dataset.name}: it belongs to other images.")
    return replace(dataset, noisy=noisy)


def _pixels_digest(dataset: Dataset) -> str:
    whole = hashlib.sha256()
    for part in (dataset.train, dataset.test):
        whole.update(np.ascontiguousarray(part.tensor.numpy()).data)
    return whole.hexdigest()


def _digest(path: Path) -> str:
    """SHA-256 of a file, or of the names and contents of all files in a folder that are not hidden."""
    if path.is_file():
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    whole = hashlib.sha256()
    for file in sorted(path.rglob("*")):
        name = file.relative_to(path).as_posix()
        if file.is_file() and not any(part.startswith(".") for part in name.split("/")):
            whole.update(f"{name}\0{_digest(file)}\n".encode())
    return whole.hexdigest()
