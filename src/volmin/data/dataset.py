"""A data set: a training and a test part, and the names of the classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from volmin._typing import AnyArray, Array, Labels, Numbers
from volmin.data.images import ImageFiles
from volmin.data.loaders import check_labels
from volmin.exceptions import DataError, InputError


@dataclass(frozen=True)
class Part:
    """Inputs and labels of the training or the test part."""

    x: Tensor | ImageFiles
    """(N, ...) features, or (N, channels, height, width) uint8 images, in memory or decoded on demand."""
    y: Labels
    """(N,) labels in ``0 .. C-1``."""

    def __len__(self) -> int:
        return len(self.y)

    @property
    def tensor(self) -> Tensor:
        """The inputs of a part that is in memory."""
        if not isinstance(self.x, Tensor):
            raise InputError(f"The images below {self.x.root} are decoded on demand and not in memory.")
        return self.x

    def take(self, rows: AnyArray) -> Part:
        """Select rows by their numbers or a mask."""
        return Part(self.x[rows] if isinstance(self.x, Tensor) else self.x.take(rows), self.y[rows])

    def resized(self, side: int) -> Part:
        """The same images, decoded on demand at another size."""
        if isinstance(self.x, Tensor):
            raise InputError("Images in memory keep their size.")
        return Part(self.x.resized(side), self.y)


@dataclass(frozen=True)
class Dataset:
    """A data set, split into a training and a test part."""

    name: str
    train: Part
    test: Part
    classes: tuple[Any, ...]
    """(C,) meaning of the labels ``0 .. C-1``: names, or the labels in the user's file."""
    mean: tuple[float, ...] = ()
    """Mean of each channel of images, in 0..1."""
    std: tuple[float, ...] = ()
    """Standard deviation of each channel of images."""
    noisy: Labels | None = None
    """(N,) noisy labels that came with the training part; None if noise is to be drawn."""
    clean_train: bool = True
    """Whether ``train.y`` holds true labels rather than given ones."""
    clean_test: bool = True
    """Whether ``test.y`` holds true labels rather than given ones."""
    transition: Array | None = None
    """(C, C) transition matrix measured on pairs of noisy and clean labels outside the training part."""
    encoder: Mapping[str, Any] | None = None
    """Content of the ``TableEncoder`` that turned the rows of a table into ``x``."""
    image_embedding: Mapping[str, Any] | None = None
    """Content of the ``Embedding`` that turned images into ``x``."""

    @property
    def num_classes(self) -> int:
        return len(self.classes)

    @property
    def input_shape(self) -> tuple[int, ...]:
        return tuple(self.train.x.shape[1:])

    def resized(self, side: int) -> Dataset:
        """The same data set with images decoded on demand at another size."""
        return replace(self, train=self.train.resized(side), test=self.test.resized(side))

    def encoding(self) -> dict[str, Any]:
        """What a trained network needs to accept new rows, in JSON types."""
        return {
            "classes": list(self.classes),
            "shape": list(self.input_shape),
            "mean": list(self.mean),
            "std": list(self.std),
            "table": None if self.encoder is None else dict(self.encoder),
            **({} if self.image_embedding is None else {"image_embedding": dict(self.image_embedding)}),
        }

    def normalize(self, x: Tensor) -> Tensor:
        """Inputs of a network: uint8 images as standardised floats, features unchanged."""
        return standardize(x, self.mean, self.std)


def standardize(x: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """uint8 images as floats, standardised by the mean and standard deviation of each channel; others unchanged."""
    if x.dtype != torch.uint8:
        return x
    center, scale = (torch.tensor(v, device=x.device).view(-1, 1, 1) for v in (mean, std))
    return x.float().div_(255).sub_(center).div_(scale)


def class_numbers(labels: Numbers, num_rows: int, num_classes: int, path: str | Path) -> Labels:
    """(N,) labels of a file as int64; a ``DataError`` names the file if they do not fit these rows and classes."""
    try:
        found = np.asarray(labels)
        if found.shape != (num_rows,) or found.dtype.kind not in "biu":
            raise InputError(f"It holds {found.dtype} of shape {found.shape}, but must hold {num_rows} class numbers.")
        numbers = found.astype(np.int64)
        check_labels(torch.from_numpy(numbers), num_classes)
    except ValueError as error:  # also NumPy's, for ragged lists
        raise DataError(f"{path} is damaged or belongs to other data. {error}") from None
    return numbers
