"""Image files that are decoded on demand, for data sets that do not fit into memory."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from volmin._typing import AnyArray
from volmin.exceptions import DataError

Pixels = NDArray[np.uint8]
"""(channels, height, width) of one image."""


def decode(path: Path, height: int, width: int, channels: int) -> Pixels:
    """Decode an image file upright and resized to (channels, height, width). Raises whatever Pillow raises."""
    from PIL import Image, ImageOps

    with Image.open(path) as image:
        # A JPEG decoder gives smaller images faster; twice the size leaves pixels to average when resizing.
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
def pillow_warnings() -> Iterator[None]:
    """Ignore Pillow's warnings about recoverable damage; treat decompression bombs as errors."""
    from PIL import Image

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="PIL")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield


def failure_reason(error: Exception, path: Path) -> str:
    """Short text that says why an image could not be read."""
    if isinstance(error, FileNotFoundError):
        return "it does not exist"
    return " ".join(str(error).replace(repr(str(path)), "it").split()) or type(error).__name__


class ImageFiles:
    """(N, 3, side, side) uint8 pixels of image files, decoded on access.

    Indexing by a number or a slice decodes images; ``take`` and ``resized`` do not.

    Args:
        root: Folder that the keys are relative to.
        keys: (N,) paths of the files below ``root``.
        side: Height and width that images are resized to.
    """

    dtype = torch.uint8

    def __init__(self, root: Path, keys: Sequence[str] | AnyArray, side: int) -> None:
        self.root, self.side = root, side
        self.keys = np.asarray(keys, dtype=object)

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Shape of all images together, as a tensor would have it."""
        return len(self), 3, self.side, self.side

    def __getitem__(self, rows: int | slice) -> Tensor:
        """Decode one image or a slice of them; an unreadable one is a ``DataError``."""
        if isinstance(rows, slice):
            images = [self[row] for row in range(*rows.indices(len(self)))]
            return torch.stack(images) if images else torch.empty((0, *self.shape[1:]), dtype=torch.uint8)
        image = self.read(rows)
        if isinstance(image, str):
            raise DataError(f"The image {self.keys[rows]} cannot be read: {image}.")
        return torch.from_numpy(image.copy())

    def read(self, row: int) -> Pixels | str:
        """Decode one image to (3, side, side) pixels, or say why it cannot be read."""
        path = self.root / self.keys[row]
        try:
            with pillow_warnings():
                return decode(path, self.side, self.side, 3)
        except Exception as error:  # Pillow may raise anything on a damaged image
            return failure_reason(error, path)

    def take(self, rows: AnyArray) -> ImageFiles:
        """Select files by row numbers or a mask."""
        return ImageFiles(self.root, self.keys[rows], self.side)

    def resized(self, side: int) -> ImageFiles:
        """The same files, decoded at another size."""
        return ImageFiles(self.root, self.keys, side)
