"""Fashion-MNIST: articles of clothing of 28 x 28 pixels in the format of MNIST (Xiao, Rasul and Vollgraf, 2017)."""

from __future__ import annotations

from pathlib import Path

from volmin.data.dataset import Dataset
from volmin.data.sources.idx import download_idx, read_parts
from volmin.progress import Progress

_SOURCE = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
_DIGESTS = (
    "md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "md5:25c81989df183df01b3e8a0aad5dffbe",
    "md5:bef4ecab320f06d8554ea6380940ec79",
    "md5:bb300cfdad3c16e7a12a480ee83cd310",
)
_FOLDERS = ("", "FashionMNIST/raw", "fashion-mnist", "fashion_mnist", "raw")
_CLASSES = (
    "t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot",
)  # fmt: skip


def load(data_dir: Path | None = None, progress: Progress | None = None) -> Dataset:
    """60,000 training and 10,000 test images, read from ``data_dir`` or downloaded once."""
    folder = data_dir if data_dir is not None else download_idx("fashion_mnist", _SOURCE, _DIGESTS, progress)
    train, test = read_parts(folder, "Fashion-MNIST", _FOLDERS)
    return Dataset("fashion_mnist", train, test, classes=_CLASSES, mean=(0.2860,), std=(0.3530,))
