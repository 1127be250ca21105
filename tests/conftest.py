import pytest
import torch

from volmin import noise
from volmin.data import load_dataset
from volmin.data.splits import noisy_split

torch.set_num_threads(1)  # small nets gain nothing from threads, and the tests run in parallel


@pytest.fixture(scope="session")
def digits():
    return load_dataset("digits")


@pytest.fixture(scope="session")
def noisy_digits(digits):
    """Digits with 35 % pair noise, and the matrix that made it."""
    T = noise.pair(10, 0.35)
    return noisy_split(digits.train, T, seed=1), T
