"""Data sets: named ones, one module per source, and those in a user's files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path

from volmin.data.augmentation import AUGMENTATIONS, Augmentation, CropFlip, ProgressiveCropFlip
from volmin.data.dataset import Dataset, Part
from volmin.data.encoders import Encoder
from volmin.data.images import ImageFiles, ImageLoader
from volmin.data.label_spelling import label_variants
from volmin.data.loaders import Batch, TensorLoader
from volmin.data.sources import NOISY, SOURCES, names
from volmin.data.splits import NoisySplit, noisy_split, split_indices, split_with, without_anchors
from volmin.exceptions import DataError, InputError
from volmin.progress import Progress

__all__ = [
    "AUGMENTATIONS",
    "NOISY",
    "SOURCES",
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
    "label_variants",
    "load_dataset",
    "names",
    "noisy_split",
    "split_indices",
    "split_with",
    "without_anchors",
]


def load_dataset(
    name: str | Path,
    data_dir: str | Path | None = None,
    *,
    label: str | None = None,
    clean: str | None = None,
    ignore: Sequence[str] = (),
    types: Mapping[str, str] | None = None,
    images: bool = False,
    size: int | None = None,
    text_encoder: Encoder | None = None,
    image_encoder: Encoder | None = None,
    progress: Progress | None = None,
) -> Dataset:
    """Load a data set by name, or from a user's table or folder.

    Args:
        name: One of ``names()``, the path of a table, or the path of a folder with a folder of images per class.
        data_dir: Folder with the official files of a named data set; by default they are downloaded once.
        label: Column of a table with the given labels.
        clean: Column of a table with the true labels, if they are known.
        ignore: Columns of a table to leave out of the features.
        types: Types of columns of a table (``volmin.data.tables.TYPES``), where they are not to be recognised.
        images: Whether a table names image files, which are then the inputs.
        size: Side that a user's images are resized to; by default that of the median image, within 16..64.
        text_encoder: Callable from a list of texts to (n, D) numbers, for columns of text in place of TF-IDF.
        image_encoder: Callable from a list of RGB Pillow images to (n, D) numbers, which then are the inputs.
        progress: Callback that reports the progress of downloading and of decoding images.
    """
    if str(name).removesuffix("/NA") in SOURCES and name not in SOURCES:
        raise InputError(
            f"{name} is not a plain data set: volmin.experiments.no_anchors.load_without_anchors trains a network and "
            "leaves out the likely anchor points."
        )
    if name not in SOURCES:
        from volmin.data.custom import load_custom

        return load_custom(
            name,
            label=label,
            clean=clean,
            ignore=ignore,
            types=types,
            images=images,
            size=size,
            text_encoder=text_encoder,
            image_encoder=image_encoder,
            progress=progress,
        )
    if label or clean or ignore or types or images or size or text_encoder or image_encoder:
        raise InputError(
            f"The data set {name} has no columns to choose from: leave out label, clean, ignore, types, images, size "
            "and encoders."
        )
    folder = None if data_dir is None else Path(data_dir)
    if folder is not None and not folder.is_dir():
        raise DataError(f"The data directory {folder} does not exist.")
    return import_module(f"volmin.data.sources.{name}").load(folder, progress)
