"""Data: one file per source. ``load_dataset`` is the door."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from volmin.data.augmentation import AUGMENTATIONS, Augmentation, CropFlip, ProgressiveCropFlip
from volmin.data.dataset import Dataset, Part
from volmin.data.images.files import ImageFiles, ImageLoader
from volmin.data.loaders import Batch, TensorLoader
from volmin.data.splits import NoisySplit, noisy_split, split_indices, split_with, without_anchors
from volmin.exceptions import DataError, InputError

__all__ = [
    "AUGMENTATIONS",
    "Augmentation",
    "Batch",
    "CropFlip",
    "DataError",
    "Dataset",
    "ImageFiles",
    "ImageLoader",
    "NoisySplit",
    "Part",
    "ProgressiveCropFlip",
    "TensorLoader",
    "load_dataset",
    "names",
    "noisy_split",
    "split_indices",
    "split_with",
    "without_anchors",
]

SOURCES = {
    "digits": "1,437 + 360 digits of 8 x 8 pixels, embedded",
    "mnist": "60,000 + 10,000 digits of 28 x 28 pixels (IDX files in --data-dir, or downloaded)",
    "fashion_mnist": "60,000 + 10,000 articles of clothing of 28 x 28 pixels (IDX files in --data-dir, or downloaded)",
    "cifar10": "50,000 + 10,000 colour images of 32 x 32 pixels (cifar-10-batches-py in --data-dir, or downloaded)",
    "cifar100": "the same with 100 classes (cifar-100-python in --data-dir, or downloaded)",
    "clothing1m": "1,000,000 photographs with noisy labels + 10,526 with clean ones (images/ and lists in --data-dir)",
}


NOISY = ("clothing1m",)
"""Data sets whose training labels are noisy as they come."""


def names() -> list[str]:
    """Names that ``load_dataset`` takes."""
    return list(SOURCES)


def load_dataset(
    name: str | Path,
    data_dir: str | Path | None = None,
    *,
    label: str | None = None,
    clean: str | None = None,
    ignore: Sequence[str] = (),
    images: bool = False,
    size: int | None = None,
) -> Dataset:
    """A data set by name, or from a file or folder of one's own.

    Args:
        name: one of ``names()``, the path of a table, or that of a folder with a folder of images per class.
        data_dir: folder with the official files as they come; by default they are downloaded, once.
        label: the column of a table that holds the given labels.
        clean: the column that holds the true labels, where they are known too.
        ignore: columns that are no features.
        images: whether a table names image files, which are then what is learned from.
        size: the side that images of one's own are resized to; by default that of the median image, within 16..64.
    """
    if name not in SOURCES:
        from volmin.data.local import load_own

        return load_own(name, label=label, clean=clean, ignore=ignore, images=images, size=size)
    if label or clean or ignore or images or size:
        raise InputError(
            f"The data set {name} has no columns to choose from: leave out label, clean, ignore, images and size."
        )
    folder = None if data_dir is None else Path(data_dir)
    if folder is not None and not folder.is_dir():
        raise DataError(f"The data directory {folder} does not exist.")
    return import_module(f"volmin.data.sources.{name}").load(folder)
