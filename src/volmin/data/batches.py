"""Batches from tensors in memory: one gather per batch, no work per example."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from numpy.typing import ArrayLike
from torch import Tensor


class Batch(NamedTuple):
    """A batch of inputs with their noisy labels."""

    x: Tensor
    y: Tensor
    index: Tensor | None = None  # pyright: ignore[reportIncompatibleMethodOverride]
    """(B,) positions in the training set, for methods that remember something of each example."""


class TensorLoader:
    """Tensors in memory, in batches.

    Iterating gives all rows in order, for evaluation; ``shuffled`` gives an epoch of training in an order that is a
    function of its seed alone, so that a resumed run sees the same batches.
    """

    def __init__(self, x: Tensor, y: ArrayLike | Tensor, batch_size: int = 128) -> None:
        self.x, self.y, self.batch_size = x, torch.as_tensor(y), batch_size
        if len(self.x) != len(self.y):
            raise ValueError(f"x has {len(self.x)} rows, but y has {len(self.y)} labels.")

    def __len__(self) -> int:
        return -(-len(self.y) // self.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        for rows in torch.arange(len(self.y), device=self.y.device).split(self.batch_size):
            here = slice(int(rows[0]), int(rows[-1]) + 1)
            yield Batch(self.x[here], self.y[here], rows)

    def shuffled(self, seed: int, rank: int = 0, world_size: int = 1) -> Iterator[Batch]:
        """An epoch in random order; with several devices, the share of the one at ``rank``.

        Every device gets the same number of batches, of ``batch_size / world_size`` rows, so that together they make
        the steps that one device would make.
        """
        order = torch.randperm(len(self.y), generator=torch.Generator().manual_seed(seed))
        order = order[: len(order) - len(order) % world_size][rank::world_size].to(self.y.device)
        for rows in order.split(max(1, self.batch_size // world_size)):
            yield Batch(self.x.index_select(0, rows), self.y.index_select(0, rows), rows)

    def to(self, device: torch.device) -> TensorLoader:
        """The same rows on ``device``."""
        return TensorLoader(self.x.to(device), self.y.to(device), self.batch_size)
