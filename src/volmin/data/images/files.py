"""Images that are decoded when they are needed, by worker processes, for data sets that do not fit into memory."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.utils.data import DataLoader

from volmin.data.augmentation import Augmentation
from volmin.data.loaders import Batch, check_labels
from volmin.exceptions import DataError, InputError

MOST_WORKERS = 16


def decode(path: Path, height: int, width: int, channels: int) -> NDArray[np.uint8]:
    """(channels, height, width) pixels of an image file, upright and resized. Raises what Pillow raises."""
    from PIL import Image, ImageOps

    with Image.open(path) as image:
        # A JPEG decoder gives smaller images faster; twice the size leaves the resizing something to average over.
        side = 2 * max(height, width)
        image.draft(None, (side, side))
        image.load()
        upright = ImageOps.exif_transpose(image)
    if upright.mode.startswith("I"):
        upright = Image.fromarray((np.asarray(upright) // 257).astype(np.uint8))
    elif upright.mode == "P":
        upright = upright.convert("RGBA")
    converted = upright.convert("L" if channels == 1 else "RGB")
    resized = converted.resize((width, height), Image.Resampling.BILINEAR)
    return np.asarray(resized).reshape(height, width, channels).transpose(2, 0, 1)


@contextmanager
def quiet_pillow() -> Iterator[None]:
    """Images that would unpack to huge ones are damaged; oddities that Pillow mends are nobody's business."""
    from PIL import Image

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="PIL")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield


def reason(error: Exception, path: Path) -> str:
    """Why an image could not be read, in a few words."""
    if isinstance(error, FileNotFoundError):
        return "it does not exist"
    return " ".join(str(error).replace(repr(str(path)), "it").split()) or type(error).__name__


class ImageFiles:
    """(N, 3, side, side) bytes of image files, with the few abilities of a tensor that data sets need.

    Indexing by a number or a slice decodes; ``take`` chooses files without decoding them.
    """

    dtype = torch.uint8

    def __init__(self, root: Path, keys: Sequence[str] | NDArray[Any], side: int) -> None:
        self.root, self.side = root, side
        self.keys = np.asarray(keys, dtype=object)

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return len(self), 3, self.side, self.side

    def __getitem__(self, rows: int | slice) -> Tensor:
        """The decoded image, or images; a damaged one is an error here."""
        if isinstance(rows, slice):
            images = [self[row] for row in range(*rows.indices(len(self)))]
            return torch.stack(images) if images else torch.empty((0, *self.shape[1:]), dtype=torch.uint8)
        image = self.read(rows)
        if isinstance(image, str):
            raise DataError(f"The image {self.keys[rows]} cannot be read: {image}.")
        return torch.from_numpy(image.copy())

    def read(self, row: int) -> NDArray[np.uint8] | str:
        """(3, side, side) pixels, or why there are none."""
        path = self.root / self.keys[row]
        try:
            with quiet_pillow():
                return decode(path, self.side, self.side, 3)
        except Exception as error:  # a damaged image may raise anything
            return reason(error, path)

    def take(self, rows: NDArray[Any]) -> ImageFiles:
        """The chosen files."""
        return ImageFiles(self.root, self.keys[rows], self.side)

    def resized(self, side: int) -> ImageFiles:
        """The same files, to be decoded at another size."""
        return ImageFiles(self.root, self.keys, side)


class ImageLoader:
    """Image files in batches, with the interface of ``TensorLoader``.

    An epoch of training is balanced by undersampling: as many images of each class as the smallest has, drawn anew by
    the epoch's seed. Iterating gives all images in order. Those that cannot be read are left out of their batch, and
    reported once.

    Args:
        files: the images.
        y: (N,) labels.
        batch_size: rows of a batch; it is smaller where images are left out.
        normalize: from a batch of bytes to what the network takes.
        augment: random changes of training batches, which are then decoded at 8/7 of the size (256 for 224).
        workers: processes that decode; by default one per core, and none for fewer than 1,000 images.
    """

    def __init__(
        self,
        files: ImageFiles,
        y: ArrayLike | Tensor,
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
        usual = min(MOST_WORKERS, os.cpu_count() or 1) if len(files) >= 1000 else 0
        self.workers = usual if workers is None else workers
        self.unreadable: dict[str, str] = {} if unreadable is None else unreadable
        """Why images could not be read, by their keys; shared by the copies on other devices."""
        if len(files) != len(self.y):
            raise InputError(f"There are {len(files)} images, but {len(self.y)} labels.")
        counts = torch.bincount(self.y)
        self.per_class = int(counts[counts > 0].min())

    def __len__(self) -> int:
        return -(-len(self.y) // self.batch_size)

    @property
    def epoch_batches(self) -> int:
        """Batches of a balanced training epoch."""
        return -(-self.per_class * len(self.y.unique()) // self.batch_size)

    def check_labels(self, num_classes: int) -> None:
        """Require labels in ``0 .. num_classes - 1``."""
        check_labels(self.y, num_classes)

    def example(self) -> Tensor | None:
        """None: images are decoded only when they are needed."""
        return None

    def __iter__(self) -> Iterator[Batch]:
        for images, rows, _ in self._decoded(self.files, torch.arange(len(self.y)).split(self.batch_size)):
            yield self._batch(images, rows)

    def shuffled(
        self, seed: int, rank: int = 0, world_size: int = 1, *, epoch: int = 0, done: float = 1.0
    ) -> Iterator[Batch]:
        """A balanced epoch in random order; with several devices, the share of the one at ``rank``."""
        generator = torch.Generator().manual_seed(seed)
        order = self.balanced(generator)
        augment = self.augment.at(epoch, done) if self.augment is not None else None
        choices = augment.draw(order, generator) if augment is not None else order[:, None]
        here = torch.arange(len(order) - len(order) % world_size)[rank::world_size]
        batches = order[here].split(max(1, self.batch_size // world_size))
        files = self.files if self.augment is None else self.files.resized(self.files.side * 8 // 7)
        chosen = iter(choices[here].split(max(1, self.batch_size // world_size)))
        for images, rows, kept in self._decoded(files, batches, chosen):
            if augment is not None:
                images = augment(images, kept)
            yield self._batch(images, rows)

    def balanced(self, generator: torch.Generator) -> Tensor:
        """Rows of an epoch in random order: equally many of each class that there is, without replacement."""
        rows = [torch.nonzero(self.y == label)[:, 0] for label in self.y.unique()]
        drawn = torch.cat([here[torch.randperm(len(here), generator=generator)[: self.per_class]] for here in rows])
        return drawn[torch.randperm(len(drawn), generator=generator)]

    def to(self, device: torch.device) -> ImageLoader:
        """The same images in batches on ``device``."""
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

    def _batch(self, images: Tensor, rows: Tensor) -> Batch:
        return Batch(self.normalize(images.to(self.device)), self.y[rows].to(self.device), rows.to(self.device))

    def _decoded(
        self, files: ImageFiles, batches: Sequence[Tensor], choices: Iterator[Tensor] | None = None
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Images, rows and augmentation choices of each batch, without what cannot be read."""
        decoded = DataLoader(
            cast(Any, _Reader(files)),
            batch_sampler=cast(Any, [batch.tolist() for batch in batches]),
            num_workers=self.workers,
            collate_fn=_keep_readable,
        )
        before, found_any = len(self.unreadable), False
        for rows, (images, kept, failures) in zip(batches, decoded, strict=True):
            self.unreadable |= {str(files.keys[row]): why for row, why in failures}
            chosen = next(choices) if choices is not None else rows
            if len(kept):
                found_any = True
                yield images, rows[kept], chosen[kept]
        self._report(before, found_any)

    def _report(self, before: int, found_any: bool) -> None:
        new = list(self.unreadable.items())[before:]
        named = "; ".join(f"{key} ({why})" for key, why in new[:5]) + ("; ..." if len(new) > 5 else "")
        if not found_any:
            raise DataError(f"None of {len(self.files)} images below {self.files.root} can be read: {named}")
        if new:
            warnings.warn(f"{len(new)} images cannot be read and are left out: {named}", stacklevel=3)


class _Reader:
    """What a worker process holds."""

    def __init__(self, files: ImageFiles) -> None:
        self.files = files

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, row: int) -> tuple[int, NDArray[np.uint8] | str]:
        return row, self.files.read(row)


def _keep_readable(
    images: Sequence[tuple[int, NDArray[np.uint8] | str]],
) -> tuple[Tensor, Tensor, list[tuple[int, str]]]:
    """The images that were read, their places in the batch, and why the others were not."""
    kept = [place for place, (_, image) in enumerate(images) if not isinstance(image, str)]
    pixels = np.stack([cast(NDArray[np.uint8], images[place][1]) for place in kept]) if kept else np.empty(0, np.uint8)
    failures = [(row, image) for row, image in images if isinstance(image, str)]
    return torch.from_numpy(pixels), torch.tensor(kept, dtype=torch.int64), failures
