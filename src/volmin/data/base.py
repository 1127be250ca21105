"""What every source of data gives: a training and a test part, and the names of the classes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class DataError(ValueError):
    """A data set is missing, incomplete or damaged; the message says where it was looked for and what to do."""


@dataclass(frozen=True)
class Part:
    """Inputs and labels of the training or the test part."""

    x: Tensor
    """(N, ...) features, or (N, channels, height, width) images as the uint8 of their files."""
    y: NDArray[np.int64]
    """(N,) labels in ``0 .. C-1``."""

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True)
class Dataset:
    """A data set with clean labels."""

    name: str
    train: Part
    test: Part
    classes: tuple[str, ...]
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    @property
    def num_classes(self) -> int:
        return len(self.classes)

    @property
    def input_shape(self) -> tuple[int, ...]:
        return tuple(self.train.x.shape[1:])

    def normalize(self, x: Tensor) -> Tensor:
        """Inputs as a network takes them: uint8 images become standardised floats, features stay."""
        if x.dtype != torch.uint8:
            return x
        mean, std = (torch.tensor(v, device=x.device).view(-1, 1, 1) for v in (self.mean, self.std))
        return x.float().div_(255).sub_(mean).div_(std)
