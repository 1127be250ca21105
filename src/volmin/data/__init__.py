"""Data: one file per source. ``load_dataset`` is the door."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from volmin.data.augmentation import AUGMENTATIONS, Augmentation, CropFlip
from volmin.data.base import DataError, Dataset, Part
from volmin.data.batches import Batch, TensorLoader
from volmin.data.splits import NoisySplit, noisy_split, split_indices, without_anchors

__all__ = [
    "AUGMENTATIONS",
    "Augmentation",
    "Batch",
    "CropFlip",
    "DataError",
    "Dataset",
    "NoisySplit",
    "Part",
    "TensorLoader",
    "load_dataset",
    "names",
    "noisy_split",
    "split_indices",
    "without_anchors",
]

SOURCES = {
    "digits": "1,437 + 360 digits of 8 x 8 pixels, embedded",
    "mnist": "60,000 + 10,000 digits of 28 x 28 pixels (IDX files in --data-dir, or downloaded)",
    "fashion_mnist": "60,000 + 10,000 articles of clothing of 28 x 28 pixels (IDX files in --data-dir, or downloaded)",
    "cifar10": "50,000 + 10,000 colour images of 32 x 32 pixels (cifar-10-batches-py in --data-dir, or downloaded)",
    "cifar100": "the same with 100 classes (cifar-100-python in --data-dir, or downloaded)",
}


def names() -> list[str]:
    """Names that ``load_dataset`` takes."""
    return list(SOURCES)


def load_dataset(name: str, data_dir: str | Path | None = None) -> Dataset:
    """A data set with clean labels.

    Args:
        name: one of ``names()``.
        data_dir: folder with the official files as they come; by default they are downloaded, once.
    """
    if name not in SOURCES:
        raise ValueError(f"Unknown data set {name!r}. Choose one of: {', '.join(SOURCES)}.")
    folder = None if data_dir is None else Path(data_dir)
    if folder is not None and not folder.is_dir():
        raise DataError(f"The data directory {folder} does not exist.")
    return import_module(f"volmin.data.{name}").load(folder)
