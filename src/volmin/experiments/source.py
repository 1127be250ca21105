"""Where the data and labels of a run come from, and what identifies them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from volmin import data
from volmin.data import Dataset
from volmin.data.custom import check_path
from volmin.data.encoders import NamedEncoder
from volmin.data.label_files import NO_LABEL, find_labels, number_labels, read_label_sets, read_labels
from volmin.exceptions import DataError, InputError
from volmin.experiments.no_anchors import load_without_anchors
from volmin.experiments.presets import NO_ANCHORS
from volmin.io.sealed import file_digest
from volmin.noise import NONE
from volmin.progress import Progress


def load_named(
    name: str, data_dir: Path | None = None, *, accelerated: bool = False, progress: Progress | None = None
) -> Dataset:
    """The data set that a spec names, with or without its likely anchor points.

    Args:
        name: Name of a data set, followed by ``/NA`` for the version without likely anchor points.
        data_dir: Folder with the official files; by default they are downloaded once.
        accelerated: Whether the network that scores a ``/NA`` set may be an accelerated one.
        progress: Callback for downloads and for the training of that network.
    """
    whole = name.removesuffix(NO_ANCHORS)
    if whole == name:
        return data.load_dataset(name, data_dir, progress=progress)
    return load_without_anchors(whole, data_dir, accelerated=None if accelerated else False, progress=progress)


@dataclass(frozen=True)
class DataSource:
    """A named data set or the user's own table or images, and optionally noisy labels from a file."""

    name: str
    """Name of a data set, or path of the user's own data."""
    data_dir: Path | None = None
    """Folder with the official files of a named data set."""
    label: str | None = None
    """Column of a table with the given labels."""
    clean: str | None = None
    """Column of a table with the true labels, where they are known."""
    ignore: tuple[str, ...] = ()
    """Columns of a table to leave out of the features."""
    types: tuple[tuple[str, str], ...] = ()
    """(column, type) where the type of a column is not to be recognised."""
    labels: str | None = None
    """Noisy labels of a named data set's training part: ``FILE`` or ``FILE:KEY``."""
    images: bool = False
    """Whether a table lists image files to learn from."""
    size: int | None = None
    """Side in pixels to which the user's own images are resized."""
    text_encoder: NamedEncoder | None = None
    """Encoder for columns of text."""
    image_encoder: NamedEncoder | None = None
    """Encoder for images."""
    progress: Progress | None = field(default=None, compare=False, repr=False)
    """Callback for downloading, decoding and preparing the data."""

    def __post_init__(self) -> None:
        if self.path is not None and self.labels:
            raise DataError(
                f"{self.path} holds its own labels: leave out --labels, and name the columns of a table with --label."
            )
        chosen = (self.label, self.clean, self.ignore, self.types, self.images, self.size)
        if self.path is None and any((*chosen, self.text_encoder, self.image_encoder)):
            raise DataError(
                f"{self.name} has no columns to choose from, and its own images: leave out --label, --clean, --ignore, "
                "--types, --text, --images, --size and encoders."
            )

    @property
    def path(self) -> Path | None:
        """The user's own file or folder; None for a named data set."""
        return None if self.name.removesuffix(NO_ANCHORS) in data.names() else check_path(self.name)

    @property
    def kind(self) -> str:
        """The key of the presets: the name of a data set, ``table`` or ``images``."""
        if self.path is None:
            return self.name
        pictures = (self.images or self.path.is_dir()) and self.image_encoder is None
        return "images" if pictures else "table"

    @property
    def rows(self) -> int | None:
        """The number of training rows of the user's own data, on which their recipe depends."""
        return None if self.path is None else len(self._local.train)

    def load(self, *, accelerated: bool = False) -> Dataset:
        """The data, with the labels from a file if there is one; ``accelerated`` as in ``load_named``."""
        if self.path is not None:
            return self._local
        found = load_named(self.name, self.data_dir, accelerated=accelerated, progress=self.progress)
        return found if self.labels is None else _with_labels(found, self.labels)

    @cached_property
    def _local(self) -> Dataset:
        return data.load_dataset(
            self.name,
            label=self.label,
            clean=self.clean,
            ignore=self.ignore,
            types=dict(self.types),
            images=self.images,
            size=self.size,
            text_encoder=self.text_encoder,
            image_encoder=self.image_encoder,
            progress=self.progress,
        )

    def check_noise(self, noise: str | None) -> str:
        """The noise to draw: none if labels are noisy already, pair:0.45 if they are clean."""
        noisy_already = self.labels or self.clean or self.name in data.NOISY
        if noisy_already and noise not in (None, *NONE):
            raise InputError(f"The labels of {self.name} are noisy already: leave out --noise {noise}.")
        return noise or ("none" if noisy_already or self.path is not None else "pair:0.45")

    def describe(self, noise: str) -> str:
        """The origin of the noise in the labels, in a word or two."""
        if self.labels or self.clean:
            return self.labels or f"labels {self.label}"
        return "labels as given" if noise in NONE and self.check_noise(None) == noise else noise

    def identity(self) -> dict[str, Any]:
        """What distinguishes these data in a run's spec; empty for a data set that its name identifies."""
        identity: dict[str, Any] = {}
        if self.path is not None:
            columns = {"label": self.label, "clean": self.clean, "ignore": list(self.ignore)}
            identity = {"file": self.path.resolve().name, "sha256": _digest(self.path), **columns}
            if self.images:
                # The hash of the table does not change with the images.
                identity["pixels_sha256"] = _pixels_digest(self._local)
            if self.types:
                identity["types"] = dict(self.types)
            if self.size is not None:
                identity["size"] = self.size
            encoders = {"text_encoder": self.text_encoder, "image_encoder": self.image_encoder}
            identity |= {name: encoder.identity for name, encoder in encoders.items() if encoder is not None}
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
    rows = np.flatnonzero(noisy != NO_LABEL)
    return replace(
        dataset, train=dataset.train if len(rows) == len(noisy) else dataset.train.take(rows), noisy=noisy[rows]
    )


def _pixels_digest(dataset: Dataset) -> str:
    whole = hashlib.sha256()
    for part in (dataset.train, dataset.test):
        whole.update(np.ascontiguousarray(part.tensor.numpy()).data)
    return whole.hexdigest()


def _digest(path: Path) -> str:
    """SHA-256 of a file, or of the names and contents of all files in a folder that are not hidden."""
    if path.is_file():
        return file_digest(path)
    whole = hashlib.sha256()
    for file in sorted(path.rglob("*")):
        name = file.relative_to(path).as_posix()
        if file.is_file() and not any(part.startswith(".") for part in name.split("/")):
            whole.update(f"{name}\0{_digest(file)}\n".encode())
    return whole.hexdigest()
