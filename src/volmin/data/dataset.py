"""What every source of data gives: a training and a test part, and the names of the classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from volmin.exceptions import InputError


@dataclass(frozen=True)
class Part:
    """Inputs and labels of the training or the test part."""

    x: Tensor
    """(N, ...) features, or (N, channels, height, width) images as the uint8 of their files; ``ImageFiles`` where they
    are decoded when needed."""
    y: NDArray[np.int64]
    """(N,) labels in ``0 .. C-1``."""

    def __len__(self) -> int:
        return len(self.y)

    def take(self, rows: NDArray[Any]) -> Part:
        """The chosen rows."""
        return Part(self.x[rows] if isinstance(self.x, Tensor) else self.x.take(rows), self.y[rows])


@dataclass(frozen=True)
class Dataset:
    """A data set, split into a training and a test part."""

    name: str
    train: Part
    test: Part
    classes: tuple[Any, ...]
    """What the labels ``0 .. C-1`` stand for: names, or the labels of the user's file."""
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    noisy: NDArray[np.int64] | None = None
    """(N,) noisy labels that came with the training part; where there are none, noise is drawn."""
    clean_train: bool = True
    """Whether the labels of the training part are true, and not merely those that were given."""
    clean_test: bool = True
    """The same of the test part."""
    transition: NDArray[np.float64] | None = None
    """(C, C) the matrix that pairs of noisy and clean labels outside of the training part show."""
    encoder: Mapping[str, Any] | None = None
    """How the rows of a table became ``x``: the content of its ``TableEncoder``."""

    @property
    def num_classes(self) -> int:
        return len(self.classes)

    @property
    def input_shape(self) -> tuple[int, ...]:
        return tuple(self.train.x.shape[1:])

    def resized(self, side: int) -> Dataset:
        """The same data with images of another size, where they are decoded when needed."""
        if isinstance(self.train.x, Tensor):
            raise InputError(f"The images of {self.name} are in memory and keep their size.")
        train, test = (Part(cast(Any, part.x).resized(side), part.y) for part in (self.train, self.test))
        return replace(self, train=train, test=test)

    def encoding(self) -> dict[str, Any]:
        """All that is needed to give new rows to a network trained on these, in types that JSON has."""
        return {
            "classes": list(self.classes),
            "shape": list(self.input_shape),
            "mean": list(self.mean),
            "std": list(self.std),
            "table": None if self.encoder is None else dict(self.encoder),
        }

    def normalize(self, x: Tensor) -> Tensor:
        """Inputs as a network takes them: uint8 images become standardised floats, features stay."""
        return standardize(x, self.mean, self.std)


def standardize(x: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """uint8 images as floats, with the mean and standard deviation of each channel taken out; features as they are."""
    if x.dtype != torch.uint8:
        return x
    center, scale = (torch.tensor(v, device=x.device).view(-1, 1, 1) for v in (mean, std))
    return x.float().div_(255).sub_(center).div_(scale)
