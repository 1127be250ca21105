"""Tests of the official files, if present: VOLMIN_TEST_DATA names the folder that holds their folders or archives."""

import os
from pathlib import Path

import pytest

from volmin.data import DataError, load_dataset

REAL = Path(os.environ.get("VOLMIN_TEST_DATA", Path(__file__).parents[3] / "shared" / "data"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "shape", "train", "test", "first_classes"),
    [
        ("mnist", (1, 28, 28), [5, 0, 4, 1, 9], [7, 2, 1, 0, 4], ("0", "1")),
        ("fashion_mnist", (1, 28, 28), [9, 0, 0, 3, 0], [9, 2, 1, 1, 6], ("t-shirt", "trouser")),
        ("cifar10", (3, 32, 32), [6, 9, 9, 4, 1], [3, 8, 8, 0, 6], ("airplane", "automobile")),
        ("cifar100", (3, 32, 32), [19, 29, 0, 11, 1], [49, 33, 72, 51, 71], ("apple", "aquarium_fish")),
    ],
)
def test_counts_order_and_statistics(name, shape, train, test, first_classes):
    try:
        data = load_dataset(name, REAL)
    except DataError as error:
        pytest.skip(f"the files of {name} are not on this machine ({error})")
    assert (len(data.train), len(data.test)) == ((60_000, 10_000) if "mnist" in name else (50_000, 10_000))
    assert data.input_shape == shape
    assert data.train.y[:5].tolist() == train
    assert data.test.y[:5].tolist() == test
    assert data.classes[:2] == first_classes
    counts = [(data.train.y == label).sum() for label in range(data.num_classes)]
    if name != "mnist":
        assert min(counts) == max(counts)
    if name != "cifar100":  # standardised by the statistics of CIFAR-10, as in the VolMinNet code
        assert data.normalize(data.train.tensor[:5000]).mean().item() == pytest.approx(0, abs=0.03)
