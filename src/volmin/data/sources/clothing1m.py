"""Clothing1M: a million photographs from shops with labels from the text around them (Xiao et al., 2015).

The images are given out by the authors on request. Training uses the noisy labels alone; the test part has clean ones.
Transforms, which the paper does not state: training images at 256 x 256 with a random crop of 224 and mirroring, test
images at 224 x 224, ImageNet's statistics.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from volmin.data.dataset import Dataset, Part
from volmin.data.images.files import ImageFiles
from volmin.exceptions import DataError
from volmin.noise import measured

SIDE = 224
CLASSES = (
    "T-Shirt", "Shirt", "Knitwear", "Chiffon", "Sweater", "Hoodie", "Windbreaker", "Jacket", "Downcoat", "Suit",
    "Shawl", "Dress", "Vest", "Underwear",
)  # fmt: skip
_LISTS = ("noisy_label_kv.txt", "noisy_train_key_list.txt", "clean_label_kv.txt", "clean_test_key_list.txt")


def load(data_dir: Path | None = None) -> Dataset:
    """The noisy training images and the clean test images; their pixels are decoded when they are needed."""
    if data_dir is None:
        raise DataError(
            "Clothing1M cannot be downloaded; its authors give it out on request. Give the folder that holds images/ "
            "and the lists of keys and labels (--data-dir, data_dir=)."
        )
    noisy_labels, noisy_keys, clean_labels, clean_keys = (_find(data_dir, name) for name in _LISTS)
    noisy, clean = _read_labels(noisy_labels), _read_labels(clean_labels)
    train = _part(data_dir, _read_keys(noisy_keys), noisy, noisy_labels)
    test = _part(data_dir, _read_keys(clean_keys), clean, clean_labels)
    # Some images have both labels. They are not trained on, and tell how far the estimate of T is from theirs.
    both = [key for key in clean if key in noisy]
    T = measured([noisy[key] for key in both], [clean[key] for key in both], len(CLASSES)) if both else None
    return Dataset(
        "clothing1m",
        train,
        test,
        CLASSES,
        mean=(0.485, 0.456, 0.406),
        std=(0.229, 0.224, 0.225),
        clean_train=False,
        transition=T,
    )


def _find(data_dir: Path, name: str) -> Path:
    for folder in (data_dir, data_dir / "annotations"):
        if (folder / name).is_file():
            return folder / name
    raise DataError(f"{data_dir} lacks {name}, which Clothing1M has there or in annotations/.")


def _lines(path: Path) -> list[str]:
    try:
        return [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except UnicodeDecodeError:
        raise DataError(f"{path} is not a text file.") from None


def _read_keys(path: Path) -> list[str]:
    keys = [line.strip() for line in _lines(path)]
    if not keys:
        raise DataError(f"{path} names no images.")
    if outside := next((key for key in keys if key.startswith("/") or ".." in key.split("/")), None):
        raise DataError(f"{path} names {outside!r}, which is outside of the data directory.")
    return keys


def _read_labels(path: Path) -> dict[str, int]:
    """Labels by key. Keys hold commas and may hold spaces: the label is what follows the last space."""
    labels = {}
    for number, line in enumerate(_lines(path), 1):
        key, _, label = line.strip().rpartition(" ")
        if not key or not label.isdecimal() or int(label) >= len(CLASSES):
            raise DataError(f"{path}, line {number}: a key and a label in 0..13 are expected, but it is {line[:80]!r}.")
        labels[key] = int(label)
    return labels


def _part(root: Path, keys: Sequence[str], labels: dict[str, int], source: Path) -> Part:
    if unlabelled := [key for key in keys if key not in labels]:
        raise DataError(f"{source} lacks the labels of {len(unlabelled)} images, {unlabelled[0]} for one.")
    if not any((root / key).is_file() for key in keys[:100]):
        raise DataError(f"{root} holds no images: {keys[0]} and those after it do not exist there.")
    y: NDArray[np.int64] = np.array([labels[key] for key in keys], np.int64)
    return Part(cast(Any, ImageFiles(root, keys, SIDE)), y)
