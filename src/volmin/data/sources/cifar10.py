"""CIFAR-10: colour photographs of 32 x 32 pixels in ten classes (Krizhevsky, 2009)."""

from __future__ import annotations

from pathlib import Path

from volmin.data.dataset import Dataset
from volmin.data.sources.cifar import Layout, load_cifar
from volmin.progress import Progress

_LAYOUT = Layout(
    name="cifar10",
    title="CIFAR-10",
    folder="cifar-10-batches-py",
    train=tuple(f"data_batch_{number}" for number in range(1, 6)),
    test="test_batch",
    meta="batches.meta",
    labels="labels",
    class_names="label_names",
    num_classes=10,
    archive="cifar-10-python",
    url="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
    digest="md5:c58f30108f718f92721af3b95e74349a",
)


def load(data_dir: Path | None = None, progress: Progress | None = None) -> Dataset:
    """50,000 training and 10,000 test images, read from ``data_dir`` or downloaded once (170 MB)."""
    return load_cifar(_LAYOUT, data_dir, progress)
