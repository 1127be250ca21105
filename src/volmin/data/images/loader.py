"""Batches of image files, decoded by worker processes."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from volmin._typing import Numbers
from volmin.data.augmentation import Augmentation
from volmin.data.images.files import ImageFiles, Pixels
from volmin.data.loaders import Batch, check_labels
from volmin.exceptions import DataError, InputError

MAX_WORKERS = 16


class ImageLoader:
    """Image files in batches, with the interface of ``TensorLoader``.

    A training epoch is balanced by undersampling: every class gives as many images as the smallest has, drawn by the
    epoch's seed. Iterating gives all images in order. Unreadable images are left out of their batch and reported once.

    Args:
        files: N images.
        y: (N,) labels.
        batch_size: Images per batch, fewer where some are unreadable.
        normalize: Function from a batch of uint8 images to the network's input.
        augment: Random changes of training batches, which are then decoded at 8/7 of the size (256 for 224).
        workers: Number of decoding processes; by default one per core, and none for fewer than 1,000 images.
        device: Device of the batches; the CPU by default.
        unreadable: Dictionary to record unreadable images in; a new one by default.
    """

    def __init__(
        self,
        files: ImageFiles,
        y: Numbers,
        batch_size: int = 32,
        *,
        normalize: Callable[[Tensor], Tensor],
        augment: Augmentation | None = None,
        workers: int | None = None,
        device: torch.device | None = None,
        unreadable: dict[str, str] | None = None,
    ) -> None:
        self.files, self.y, self.batch_size = files, torch.as_tensor(y).cpu(), batch_size
        self.normalize, self.augment, self.device = normalize, augment, device or torch.device("cpu")
        # Starting processes takes longer than decoding a few images.
        usual = min(MAX_WORKERS, os.cpu_count() or 1) if len(files) >= 1000 else 0
        self.workers = usual if workers is None else workers
        self.unreadable: dict[str, str] = {} if unreadable is None else unreadable
        """Why images could not be read, by their keys; shared with the copies on other devices."""
        if len(files) != len(self.y):
            raise InputError(f"There are {len(files)} images, but {len(self.y)} labels.")
        if not len(files):
            raise InputError("There are no images to load.")
        self.per_class = int(self.y.unique(return_counts=True)[1].min())

    def __len__(self) -> int:
        return -(-len(self.y) // self.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        """All readable images in order; a batch without any is empty."""
        for images, rows, _ in self._decoded(self.files, torch.arange(len(self.y)).split(self.batch_size)):
            yield self._batch(images, rows)

    @property
    def epoch_batches(self) -> int:
        """Number of batches of one ``shuffled`` epoch on one device."""
        return -(-self.per_class * len(self.y.unique()) // self.batch_size)

    def shuffled(
        self, seed: int, rank: int = 0, world_size: int = 1, *, epoch: int = 0, done: float = 1.0
    ) -> Iterator[Batch]:
        """A balanced epoch in random order, or the share of device ``rank`` of ``world_size``.

        Batches without a readable image are skipped, since their mean loss would not be a number.
        """
        generator = torch.Generator().manual_seed(seed)
        order = self.balanced(generator)
        augment = None if self.augment is None else self.augment.at(epoch, done)
        choices = order[:, None] if augment is None else augment.draw(order, generator)
        here = torch.arange(len(order) - len(order) % world_size)[rank::world_size]
        batches = order[here].split(max(1, self.batch_size // world_size))
        files = self.files if self.augment is None else self.files.resized(self.files.side * 8 // 7)
        chosen = iter(choices[here].split(max(1, self.batch_size // world_size)))
        for images, rows, kept in self._decoded(files, batches, chosen):
            if not len(rows):
                continue
            if augment is not None:
                images = augment(images, kept)
            yield self._batch(images, rows)

    def balanced(self, generator: torch.Generator) -> Tensor:
        """Rows of an epoch in random order: equally many of each class present, without replacement."""
        rows = [torch.nonzero(self.y == label)[:, 0] for label in self.y.unique()]
        drawn = torch.cat([here[torch.randperm(len(here), generator=generator)[: self.per_class]] for here in rows])
        return drawn[torch.randperm(len(drawn), generator=generator)]

    def to(self, device: torch.device) -> ImageLoader:
        """The same images, in batches on ``device``."""
        return ImageLoader(
            self.files,
            self.y,
            self.batch_size,
            normalize=self.normalize,
            augment=self.augment,
            workers=self.workers,
            device=device,
            unreadable=self.unreadable,
        )

    def check_labels(self, num_classes: int) -> None:
        """Require labels in ``0 .. num_classes - 1``."""
        check_labels(self.y, num_classes)

    def example(self) -> None:
        """No example: decoding one may fail, and the size of the images is known from ``files.shape``."""

    def _batch(self, images: Tensor, rows: Tensor) -> Batch:
        return Batch(self.normalize(images.to(self.device)), self.y[rows].to(self.device), rows.to(self.device))

    def _decoded(
        self, files: ImageFiles, batches: Sequence[Tensor], choices: Iterator[Tensor] | None = None
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Readable images of each batch, with their rows and augmentation choices."""
        decoded = DataLoader(
            _Decoder(files),
            batch_sampler=[batch.tolist() for batch in batches],
            num_workers=self.workers,
            collate_fn=_readable,
        )
        before, found_any = len(self.unreadable), False
        for rows, (images, kept, failures) in zip(batches, decoded, strict=True):
            self.unreadable |= {str(files.keys[row]): why for row, why in failures}
            chosen = next(choices) if choices is not None else rows
            found_any = found_any or len(kept) > 0
            yield images.view(len(kept), *files.shape[1:]), rows[kept], chosen[kept]
        self._report(before, found_any)

    def _report(self, before: int, found_any: bool) -> None:
        new = list(self.unreadable.items())[before:]
        named = "; ".join(f"{key} ({why})" for key, why in new[:5]) + ("; ..." if len(new) > 5 else "")
        if not found_any:
            raise DataError(f"None of {len(self.files)} images below {self.files.root} can be read: {named}")
        if new:
            warnings.warn(f"{len(new)} images cannot be read and are left out: {named}", stacklevel=3)


class _Decoder(Dataset[tuple[int, "Pixels | str"]]):
    """The part of a loader that is copied to worker processes."""

    def __init__(self, files: ImageFiles) -> None:
        self.files = files

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, row: int) -> tuple[int, Pixels | str]:
        return row, self.files.read(row)


def _readable(images: Sequence[tuple[int, Pixels | str]]) -> tuple[Tensor, Tensor, list[tuple[int, str]]]:
    """Stack the images that were read, with their places in the batch, and list the failures by row."""
    found = [(place, image) for place, (_, image) in enumerate(images) if not isinstance(image, str)]
    failures = [(row, image) for row, image in images if isinstance(image, str)]
    pixels = np.stack([image for _, image in found]) if found else np.empty(0, np.uint8)
    return torch.from_numpy(pixels), torch.tensor([place for place, _ in found], dtype=torch.int64), failures
