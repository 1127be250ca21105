"""Splits of a data set.

The paper's protocol corrupts all training labels and then holds out a tenth as noisy validation data.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from volmin._typing import Array, Labels
from volmin.data.dataset import Part
from volmin.noise import corrupt


@dataclass(frozen=True)
class NoisySplit:
    """Training and validation parts with noisy labels."""

    train: Part
    validation: Part
    clean: Labels
    """(N,) true labels of the training rows."""


def noisy_split(part: Part, T: Array, seed: int, validation: float = 0.1) -> NoisySplit:
    """Draw noisy labels from T and split, both identical to the VolMinNet code for the same seed.

    Args:
        part: Inputs with clean labels.
        T: (C, C) transition matrix.
        seed: Random seed of the noise and of the split.
        validation: Share of the rows to hold out.
    """
    return split_with(part, corrupt(part.y, T, seed, draw="authors"), seed, validation)


def split_with(part: Part, noisy: Labels, seed: int, validation: float = 0.1) -> NoisySplit:
    """Split as ``noisy_split`` does, with given (N,) noisy labels."""
    train, held_out = split_indices(len(part), seed, validation)
    with_noise = Part(part.x, noisy)
    return NoisySplit(with_noise.take(train), with_noise.take(held_out), clean=part.y[train])


def split_indices(count: int, seed: int, validation: float = 0.1) -> tuple[Labels, Labels]:
    """Training rows in the random order of the authors' code, and validation rows ascending. Not stratified."""
    generator = np.random.RandomState(seed)
    train = generator.choice(count, int((1 - validation) * count), replace=False)
    return train, np.setdiff1d(np.arange(count), train)


def without_anchors(part: Part, scores: Array, share: float) -> Part:
    """Remove the rows of each class with the largest scores; the others keep their order.

    Args:
        part: Inputs with clean labels.
        scores: (N,) confidence of a classifier in each row's own class.
        share: Share of each class to remove; the total is this share of N, rounded to the nearest row.
    """
    sizes = np.bincount(part.y)
    quota = share * sizes
    removed = np.floor(quota).astype(int)
    # Largest remainder method: the classes that lost most by rounding down give up one row more.
    remaining = round(share * len(part)) - removed.sum()
    removed[np.argsort(removed - quota, kind="stable")[:remaining]] += 1
    kept = np.ones(len(part), bool)
    for label, count in enumerate(removed):
        rows = np.flatnonzero(part.y == label)
        most_sure = np.argsort(-scores[rows], kind="stable")[:count]
        kept[rows[most_sure]] = False
    return part.take(kept)


def held_out(labels: Labels, share: float = 0.2) -> tuple[Labels, Labels]:
    """Training and test rows for data without a test part: stratified, ascending, the same for all seeds.

    All rows of a class with fewer than three go to the training part.
    """
    generator = np.random.default_rng(0)
    rows = [generator.permutation(np.flatnonzero(labels == label)) for label in np.unique(labels)]
    test = np.sort(np.concatenate([here[: int(share * len(here) + 0.5)] for here in rows]))
    return np.setdiff1d(np.arange(len(labels)), test), test
