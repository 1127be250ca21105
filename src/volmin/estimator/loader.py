"""Training batches of sparse or weighted rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from volmin._typing import Array
from volmin.data.loaders import Batch, Loader, TensorLoader, check_labels
from volmin.ridge import Rows

LARGEST_DENSE = 2**25
"""Numbers in a batch of prediction that is made dense."""


class RowLoader:
    """Batches of rows, made dense one batch at a time; an epoch draws rows in proportion to their weights.

    The systematic sample of an epoch has a row of weight w (relative to the mean weight) floor(w) or floor(w) + 1
    times, w times on the mean. So weights mean the same for every method, whatever its loss.

    Args:
        x: (N, D) rows, sparse or dense.
        y: (N,) labels, or (N, M) of M annotators.
        batch_size: Rows of a batch.
        weights: (N,) weights; equal ones by default.
    """

    def __init__(self, x: Rows, y: Tensor, batch_size: int, weights: Tensor | None = None) -> None:
        self.x, self.y, self.batch_size, self.weights = x, y, batch_size, weights
        self.device = torch.device("cpu")

    def __len__(self) -> int:
        return -(-len(self.y) // self.batch_size)

    @property
    def epoch_batches(self) -> int:
        return len(self)

    def __iter__(self) -> Iterator[Batch]:
        return self._batches(torch.arange(len(self.y)))

    def shuffled(
        self, seed: int, rank: int = 0, world_size: int = 1, *, epoch: int = 0, done: float = 1.0
    ) -> Iterator[Batch]:
        """A training epoch; the sample of weighted rows and the order depend on the seed alone."""
        generator = torch.Generator().manual_seed(seed)
        order = torch.randperm(len(self.y), generator=generator)
        if self.weights is not None:
            ends = self.weights[order].double().cumsum(0)
            places = (torch.arange(len(order)) + torch.rand((), generator=generator)) / len(order) * ends[-1]
            drawn = order[torch.searchsorted(ends, places.double()).clamp_max(len(order) - 1)]
            order = drawn[torch.randperm(len(order), generator=generator)]
        return self._batches(order)

    def to(self, device: torch.device) -> RowLoader:
        self.device = device
        return self

    def check_labels(self, num_classes: int) -> None:
        """Require labels in ``0 .. num_classes - 1``."""
        check_labels(self.y, num_classes)

    def example(self) -> Tensor | None:
        """The first two rows."""
        return dense_rows(self.x, torch.arange(min(2, len(self.y)))).to(self.device)

    def _batches(self, order: Tensor) -> Iterator[Batch]:
        for rows in order.split(self.batch_size):
            yield Batch(*(part.to(self.device) for part in (dense_rows(self.x, rows), self.y[rows], rows)))


def loader(x: Rows, y: Tensor, batch_size: int, weights: Array | None = None) -> Loader:
    """Batches of rows with their labels and, where they differ, weights."""
    weighted = weights is not None and bool(np.ptp(weights) > 0)
    if isinstance(x, Tensor) and not weighted:
        return TensorLoader(x, y, batch_size)
    return RowLoader(x, y, batch_size, torch.from_numpy(weights) if weighted else None)


def dense_rows(x: Rows, rows: Tensor) -> Tensor:
    """The given rows as a dense tensor."""
    return x[rows] if isinstance(x, Tensor) else torch.from_numpy(x[rows.numpy()].toarray())


def dense_batches(x: Rows, largest: int) -> Iterator[Tensor]:
    """All rows in order, at most ``largest`` at a time, as dense tensors; fewer where rows are long."""
    size = max(1, min(largest, LARGEST_DENSE // max(1, int(np.prod(x.shape[1:])))))
    for rows in torch.arange(x.shape[0]).split(size):
        yield dense_rows(x, rows)
