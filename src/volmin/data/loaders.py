"""Batches for training and evaluation: what the training loop needs of a loader, and one for tensors in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol, Self, runtime_checkable

import torch
from torch import Tensor

from volmin._typing import Numbers
from volmin.data.augmentation import Augmentation
from volmin.exceptions import InputError


class Batch(NamedTuple):
    """A batch of inputs with their noisy labels."""

    x: Any
    """(B, ...) inputs: a tensor, or whatever nesting of tensors a user's network takes."""
    y: Tensor
    index: Tensor | None = None  # pyright: ignore[reportIncompatibleMethodOverride]
    """(B,) positions in the training set, for methods that keep state for each example."""


@runtime_checkable
class Loader(Protocol):
    """What the training loop needs of a source of batches."""

    def __len__(self) -> int:
        """Number of batches that iterating gives."""
        ...

    def __iter__(self) -> Iterator[Batch]:
        """All rows, for evaluation: in order where the loader knows one."""
        ...

    @property
    def epoch_batches(self) -> int:
        """Number of batches of a training epoch."""
        ...

    def shuffled(
        self, seed: int, rank: int = 0, world_size: int = 1, *, epoch: int = 0, done: float = 1.0
    ) -> Iterator[Batch]:
        """A training epoch in an order that depends on the seed alone; the share of one of several devices.

        ``epoch`` and ``done`` are the epoch's number and the share of training before it, for ``Augmentation.at``.
        """
        ...

    def to(self, device: torch.device) -> Self:
        """The same batches on ``device``."""
        ...

    def check_labels(self, num_classes: int) -> None:
        """Require labels in ``0 .. num_classes - 1``, now or when a batch is loaded."""
        ...

    def example(self) -> Tensor | None:
        """One or two inputs to try a network on; None if they would have to be loaded."""
        ...


class TensorLoader:
    """Tensors in memory, in batches: one gather per batch, no work per example.

    Iterating gives all rows in order, for evaluation; ``shuffled`` gives a training epoch in an order that is a
    function of its seed alone, so that a resumed run sees the same batches.

    Args:
        x: (N, ...) inputs.
        y: (N,) labels.
        batch_size: Rows of a batch.
        normalize: Function from a batch of ``x`` to the network's input, so that images may stay bytes in memory.
        augment: Random changes of training batches, applied before ``normalize``.
    """

    def __init__(
        self,
        x: Numbers,
        y: Numbers,
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

    @property
    def epoch_batches(self) -> int:
        return len(self)

    def __iter__(self) -> Iterator[Batch]:
        for rows in torch.arange(len(self.y), device=self.y.device).split(self.batch_size):
            here = slice(int(rows[0]), int(rows[-1]) + 1)
            yield Batch(self._normalized(self.x[here]), self.y[here], rows)

    def shuffled(
        self, seed: int, rank: int = 0, world_size: int = 1, *, epoch: int = 0, done: float = 1.0
    ) -> Iterator[Batch]:
        """A training epoch in random order; with several devices, the share of the one at ``rank``.

        Every device gets the same number of batches, of ``batch_size / world_size`` rows, so that together they take
        the steps that one device would take.
        """
        generator = torch.Generator().manual_seed(seed)
        size = max(1, self.batch_size // world_size)

        def share(whole: Tensor) -> tuple[Tensor, ...]:
            whole = whole[: len(whole) - len(whole) % world_size]
            return whole[rank::world_size].to(self.y.device).split(size)

        order = torch.randperm(len(self.y), generator=generator)
        augment = None if self.augment is None else self.augment.at(epoch, done)
        choices = order if augment is None else augment.draw(order, generator)
        for rows, chosen in zip(share(order), share(choices), strict=True):
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

    def check_labels(self, num_classes: int) -> None:
        """Require labels in ``0 .. num_classes - 1``."""
        check_labels(self.y, num_classes)

    def example(self) -> Tensor | None:
        """The first two inputs."""
        return self._normalized(self.x[:2]) if len(self.x) else None


def check_labels(y: Tensor, num_classes: int) -> None:
    """Require whole numbers in ``0 .. num_classes - 1``: a vector, or (N, M) with -1 where an annotator gave none."""
    if y.ndim not in (1, 2) or y.is_floating_point():
        raise InputError(
            f"Labels must be a vector of whole numbers, or (N, M) of M annotators, but have shape {tuple(y.shape)} and"
            f" type {y.dtype}."
        )
    if y.ndim == 2:
        y = y[y != -1]
    if len(y) and not 0 <= int(y.min()) <= int(y.max()) < num_classes:
        raise InputError(f"Labels must lie in 0..{num_classes - 1}, but span {int(y.min())}..{int(y.max())}.")


def _tensor(name: str, values: Numbers) -> Tensor:
    try:
        found = torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{name} must be a tensor or an array of numbers: {error}") from None
    if not found.ndim:
        raise InputError(f"{name} must have a row for each example, but is a single number.")
    return found
