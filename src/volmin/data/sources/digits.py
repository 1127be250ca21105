"""Handwritten digits of 8 x 8 pixels that come with scikit-learn: a data set for first experiments."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from volmin.data.dataset import Dataset, Part
from volmin.progress import Progress


def load(data_dir: Path | None = None, progress: Progress | None = None) -> Dataset:
    """1,437 training and 360 test digits as 64 features in 0..1, in a fixed stratified split; needs no files."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    x, y = load_digits(return_X_y=True)
    x_train, x_test, y_train, y_test = train_test_split(x / 16, y, test_size=0.2, random_state=0, stratify=y)
    train, test = (
        Part(torch.as_tensor(features, dtype=torch.float32), np.asarray(labels, np.int64))
        for features, labels in ((x_train, y_train), (x_test, y_test))
    )
    return Dataset("digits", train, test, tuple("0123456789"))
