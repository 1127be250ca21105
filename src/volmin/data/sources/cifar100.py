"""CIFAR-100: colour photographs of 32 x 32 pixels in a hundred classes (Krizhevsky, 2009)."""

from __future__ import annotations

from pathlib import Path

from volmin.data.dataset import Dataset
from volmin.data.sources.cifar import Layout, load_cifar
from volmin.progress import Progress

_LAYOUT = Layout(
    name="cifar100",
    title="CIFAR-100",
    folder="cifar-100-python",
    train=("train",),
    test="test",
    meta="meta",
    labels="fine_labels",
    class_names="fine_label_names",
    num_classes=100,
    archive="cifar-100-python",
    url="https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
    digest="md5:eb9058c3a382ffc7106e4002c42a8d85",
)


def load(data_dir: Path | None = None, progress: Progress | None = None) -> Dataset:
    """50,000 training and 10,000 test images, read from ``data_dir`` or downloaded once (170 MB)."""
    return load_cifar(_LAYOUT, data_dir, progress)
