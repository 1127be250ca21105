"""Batches from a user's own ``DataLoader`` or iterable, for one device or several."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from volmin.data.loaders import Batch, Loader, check_labels
from volmin.exceptions import InputError

LABEL_KEYS = ("labels", "label", "y")
"""Entries of a dict batch that hold the labels."""


class IterableLoader:
    """A user's own iterable of batches, such as a ``DataLoader``.

    It shuffles by itself, from torch's global generator or from one of its own; both are seeded in every epoch, and
    ``set_epoch`` is called on samplers that have it. With several devices, a ``DistributedSampler`` gives each its
    share; the batches of any other loader are distributed among the devices.

    Args:
        batches: Iterable with a length.
        split: Function from a batch to (x, y) or (x, y, index); by default ``split_batch``.
        world_size: Number of devices.
    """

    def __init__(self, batches: Iterable[Any], split: Callable[[Any], Any] | None = None, world_size: int = 1) -> None:
        try:
            length = len(batches)  # pyright: ignore[reportArgumentType]
        except TypeError:  # also of a DataLoader over an IterableDataset that has none
            raise InputError(
                "The loader has no length: give a DataLoader or another iterable with len(); an IterableDataset needs "
                "__len__."
            ) from None
        self.batches, self.split, self.device, self.num_classes = batches, split, torch.device("cpu"), 0
        self.replicas = _replicas(batches)
        if self.replicas not in (None, world_size):
            raise InputError(f"The loader's sampler is for {self.replicas} devices, but there are {world_size}.")
        self.world_size, self.length = world_size, length

    def __len__(self) -> int:
        return len(self._whole())

    @property
    def epoch_batches(self) -> int:
        count = self.length if self.replicas else self.length // self.world_size
        if self.length and not count:  # validation data may be a single batch: every device evaluates all of it
            raise InputError(f"The loader has {self.length} batches, too few for {self.world_size} devices.")
        return count

    def __iter__(self) -> Iterator[Batch]:
        return map(self._batch, self._whole())

    def shuffled(
        self, seed: int, rank: int = 0, world_size: int = 1, *, epoch: int = 0, done: float = 1.0
    ) -> Iterator[Batch]:
        for part in _parts(self.batches):
            if isinstance(generator := getattr(part, "generator", None), torch.Generator):
                generator.manual_seed(seed)
            if callable(set_epoch := getattr(part, "set_epoch", None)):
                set_epoch(epoch)
        share = self.batches if world_size == 1 or self.replicas else _distributed(self.batches, seed, rank, world_size)
        return map(self._batch, share)

    def to(self, device: torch.device) -> IterableLoader:
        self.device = device
        return self

    def check_labels(self, num_classes: int) -> None:
        """Check the labels of each batch when it is loaded."""
        self.num_classes = num_classes

    def example(self) -> None:
        """No example: loading a batch here would change the order of the first epoch."""

    def _whole(self) -> Any:
        """All rows, also where a sampler gives each device a share: every device evaluates all validation data."""
        if not self.replicas or not isinstance(self.batches, DataLoader):
            return self.batches
        sampler = self.batches.batch_sampler
        return _like(self.batches, batch_size=self.batches.batch_size or getattr(sampler, "batch_size", 1))

    def _batch(self, given: Any) -> Batch:
        parts = (self.split or split_batch)(given)
        if not isinstance(parts, tuple | list) or len(parts) not in (2, 3):
            raise InputError(
                f"{'split gives' if self.split else 'The loader gives batches of'} the type {type(parts).__name__}, "
                "but must give (x, y) or (x, y, index): pass split=, a function that takes these out of a batch."
            )
        x, y, *index = (moved(part, self.device) for part in parts)
        y = torch.as_tensor(y).to(self.device)
        check_labels(y, self.num_classes)
        return Batch(x, y.long(), torch.as_tensor(index[0]).to(self.device) if index else None)


def split_batch(given: Any) -> Any:
    """(x, y) or (x, y, index) of a batch that is a dict; any other batch as it is.

    The labels of a dict are its entry labels, label or y. If one other entry is left besides index, it is x; otherwise
    x is the dict of all others.
    """
    if not isinstance(given, Mapping):
        return given
    found = [key for key in LABEL_KEYS if key in given]
    inputs = {key: value for key, value in given.items() if key not in (*found, "index")}
    if len(found) != 1 or not inputs:
        raise InputError(
            f"The loader gives dicts with the entries {', '.join(map(str, given))}, but needs one of "
            f"{', '.join(LABEL_KEYS)} and inputs: pass split=, a function from a batch to (x, y)."
        )
    x = next(iter(inputs.values())) if len(inputs) == 1 else inputs
    return (x, given[found[0]], *([given["index"]] if "index" in given else []))


def moved(value: Any, device: torch.device) -> Any:
    """A nesting of tensors and arrays with all of them on ``device``; whatever else has ``to`` is moved by it."""
    if isinstance(value, np.ndarray):
        return torch.as_tensor(value).to(device)
    if isinstance(value, Tensor) or hasattr(value, "to"):
        return value.to(device)
    if isinstance(value, Mapping):
        return {key: moved(part, device) for key, part in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):  # a named tuple
        return type(value)(*(moved(part, device) for part in value))
    if isinstance(value, tuple | list):
        return type(value)(moved(part, device) for part in value)
    return value


def as_loader(
    given: Loader | Iterable[Any],
    num_classes: int,
    device: torch.device,
    split: Callable[[Any], Any] | None = None,
    world_size: int = 1,
) -> Loader:
    """``given`` as a ``Loader`` on ``device`` whose labels are checked; ``split`` is for a user's own iterable."""
    loader = given if isinstance(given, Loader) else IterableLoader(given, split, world_size)
    loader.check_labels(num_classes)
    return loader.to(device)


def _parts(batches: Any) -> list[Any]:
    """The loader and the parts of it that may hold an order."""
    return [batches, *(getattr(batches, name, None) for name in ("sampler", "batch_sampler", "dataset"))]


def _replicas(batches: Any) -> int | None:
    """The number of devices that the loader itself shares its rows among; None if it does not."""
    counts = [getattr(part, "num_replicas", None) for part in _parts(batches)]
    return next((count for count in counts if isinstance(count, int)), None)


def _distributed(batches: Any, seed: int, rank: int, world_size: int) -> Iterable[Any]:
    """Every ``world_size``-th batch of one order, equally many for each device."""
    count = len(batches) - len(batches) % world_size
    # The sampler of an iterable data set never ends.
    chooses_rows = isinstance(batches, DataLoader) and not isinstance(batches.dataset, IterableDataset)
    if chooses_rows and batches.batch_sampler is not None:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            order = list(batches.batch_sampler)
        return _like(batches, batch_sampler=order[rank:count:world_size])
    return islice(_seeded(batches, seed), rank, count, world_size)


def _seeded(batches: Iterable[Any], seed: int) -> Iterator[Any]:
    """Batches drawn with a random state of their own, so that all devices see one order."""
    state, iterator, end = torch.Generator().manual_seed(seed).get_state(), iter(batches), object()
    while True:
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(state)
            batch = next(iterator, end)
            state = torch.get_rng_state()
        if batch is end:
            return
        yield batch


def _like(loader: DataLoader[Any], **changes: Any) -> DataLoader[Any]:
    """A loader of the same data with another order."""
    kept = ("num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context")
    return DataLoader(loader.dataset, **{name: getattr(loader, name) for name in kept}, **changes)
