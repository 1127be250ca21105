"""Batches from tensors in memory: one gather per batch, no work per example."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from volmin.data.augmentation import Augmentation
from volmin.exceptions import InputError


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

    Args:
        x: (N, ...) inputs.
        y: (N,) labels.
        batch_size: rows of a batch.
        normalize: from a batch of ``x`` to what the network takes, so that images may stay bytes in memory.
        augment: random changes of training batches, made before ``normalize``.
    """

    def __init__(
        self,
        x: ArrayLike | Tensor,
        y: ArrayLike | Tensor,
        batch_size: int = 128,
        *,
        normalize: Callable[[Tensor], Tensor] | None = None,
        augment: Augmentation | None = None,
    ) -> None:
        if not isinstance(batch_size, int) or batch_size < 1:
            raise InputError(f"batch_size must be a whole number of at least 1, but is {batch_size!r}.")
        self.x, self.y, self.batch_size = _tensor("x", x), _tensor("y", y), batch_size
        self.normalize, self.augment = normalize, augment
        if len(self.x) != len(self.y):
            raise InputError(f"x has {len(self.x)} rows, but y has {len(self.y)} labels.")

    def __len__(self) -> int:
        return -(-len(self.y) // self.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        for rows in torch.arange(len(self.y), device=self.y.device).split(self.batch_size):
            here = slice(int(rows[0]), int(rows[-1]) + 1)
            yield Batch(self._normalized(self.x[here]), self.y[here], rows)

    def shuffled(
        self, seed: int, rank: int = 0, world_size: int = 1, *, epoch: int = 0, done: float = 1.0
    ) -> Iterator[Batch]:
        """An epoch in random order; with several devices, the share of the one at ``rank``.

        Every device gets the same number of batches, of ``batch_size / world_size`` rows, so that together they make
        the steps that one device would make. ``epoch`` and ``done`` are for the augmentation (``Augmentation.at``).
        """
        generator = torch.Generator().manual_seed(seed)
        size = max(1, self.batch_size // world_size)

        def share(whole: Tensor) -> tuple[Tensor, ...]:
            whole = whole[: len(whole) - len(whole) % world_size]
            return whole[rank::world_size].to(self.y.device).split(size)

        rows = torch.randperm(len(self.y), generator=generator)
        order, augment = share(rows), self.augment.at(epoch, done) if self.augment is not None else None
        choices = share(augment.draw(rows, generator)) if augment is not None else order
        for rows, chosen in zip(order, choices, strict=True):
            x = self.x.index_select(0, rows)
            if augment is not None:
                x = augment(x, chosen)
            yield Batch(self._normalized(x), self.y.index_select(0, rows), rows)

    def _normalized(self, x: Tensor) -> Tensor:
        return x if self.normalize is None else self.normalize(x)

    def to(self, device: torch.device) -> TensorLoader:
        """The same rows on ``device``."""
        x, y = self.x.to(device), self.y.to(device)
        return TensorLoader(x, y, self.batch_size, normalize=self.normalize, augment=self.augment)


def _tensor(name: str, values: ArrayLike | Tensor) -> Tensor:
    try:
        found = torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{name} must be a tensor or an array of numbers: {error}") from None
    if not found.ndim:
        raise InputError(f"{name} must have a row for each example, but is a single number.")
    return found
