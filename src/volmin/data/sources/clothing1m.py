"""Clothing1M: a million photographs from online shops, labelled by the surrounding text (Xiao et al., 2015).

The authors provide the images on request. Only noisy labels are used for training; the test part has clean ones. The
paper does not state its transforms. Here training images are decoded at 256 x 256, cropped at random to 224 and
mirrored, test images are decoded at 224 x 224, and both are standardised by ImageNet's statistics.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from volmin.data.dataset import Dataset, Part
from volmin.data.images import ImageFiles
from volmin.exceptions import DataError
from volmin.noise import measured
from volmin.progress import Progress

SIDE = 224
CLASSES = (
    "T-Shirt", "Shirt", "Knitwear", "Chiffon", "Sweater", "Hoodie", "Windbreaker", "Jacket", "Downcoat", "Suit",
    "Shawl", "Dress", "Vest", "Underwear",
)  # fmt: skip
_LISTS = ("noisy_label_kv.txt", "noisy_train_key_list.txt", "clean_label_kv.txt", "clean_test_key_list.txt")


def load(data_dir: Path | None = None, progress: Progress | None = None) -> Dataset:
    """Training images with noisy labels and test images with clean ones, decoded on demand."""
    if data_dir is None:
        raise DataError(
            "Clothing1M cannot be downloaded; its authors provide it on request. Give the folder that holds images/ "
            "and the lists of keys and labels (--data-dir, data_dir=)."
        )
    noisy_labels, noisy_keys, clean_labels, clean_keys = (_find(data_dir, name) for name in _LISTS)
    noisy, clean = _read_labels(noisy_labels), _read_labels(clean_labels)
    train = _part(data_dir, _read_keys(noisy_keys), noisy, noisy_labels)
    test = _part(data_dir, _read_keys(clean_keys), clean, clean_labels)
    # Images with both labels are not trained on; they give the matrix that estimates of T are compared with.
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
    raise DataError(f"{data_dir} lacks {name}, which belongs there or in annotations/.")


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
        raise DataError(f"{path} names {outside!r}, which is outside the data directory.")
    return keys


def _read_labels(path: Path) -> dict[str, int]:
    """Labels by key. Keys contain commas and may contain spaces; the label follows the last space."""
    labels = {}
    for number, line in enumerate(_lines(path), 1):
        key, _, label = line.strip().rpartition(" ")
        if not key or not label.isdecimal() or int(label) >= len(CLASSES):
            raise DataError(f"{path}, line {number}: expected a key and a label in 0..13, but found {line[:80]!r}.")
        labels[key] = int(label)
    return labels


def _part(root: Path, keys: Sequence[str], labels: dict[str, int], source: Path) -> Part:
    if unlabelled := [key for key in keys if key not in labels]:
        raise DataError(f"{source} lacks the labels of {len(unlabelled)} images, such as {unlabelled[0]}.")
    if not any((root / key).is_file() for key in keys[:100]):
        raise DataError(f"{root} holds no images: {keys[0]} and those after it do not exist there.")
    return Part(ImageFiles(root, keys, SIDE), np.array([labels[key] for key in keys], np.int64))
