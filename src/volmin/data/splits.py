"""The protocol of the paper: corrupt all training labels, then hold out a tenth as noisy validation data.

Its ``/NA`` sets lose their likely anchor points before that.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from volmin.data.dataset import Part
from volmin.noise import corrupt


@dataclass(frozen=True)
class NoisySplit:
    """Training and validation parts with noisy labels; ``clean`` holds the true labels of the training rows."""

    train: Part
    validation: Part
    clean: NDArray[np.int64]


def noisy_split(part: Part, T: NDArray[np.float64], seed: int, validation: float = 0.1) -> NoisySplit:
    """Draw noisy labels from T and split, both bit for bit as the VolMinNet code does for the same seed."""
    return split_with(part, corrupt(part.y, T, seed, draw="authors"), seed, validation)


def split_with(part: Part, noisy: NDArray[np.int64], seed: int, validation: float = 0.1) -> NoisySplit:
    """The same split, with noisy labels that are there already."""
    train, held_out = split_indices(len(part), seed, validation)
    with_noise = Part(part.x, noisy)
    return NoisySplit(with_noise.take(train), with_noise.take(held_out), clean=part.y[train])


def split_indices(count: int, seed: int, validation: float = 0.1) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Training rows in the authors' random order, and the remaining rows ascending. Not stratified."""
    generator = np.random.RandomState(seed)
    train = generator.choice(count, int((1 - validation) * count), replace=False)
    return train, np.setdiff1d(np.arange(count), train)


def without_anchors(part: Part, scores: NDArray[np.float64], share: float) -> Part:
    """The part without that share of each class whose score is largest, in its old order.

    Args:
        part: inputs with clean labels.
        scores: (N,) how sure a classifier is of each row's own class.
        share: of each class; the number removed in all is the share of N, to the nearest row.
    """
    sizes = np.bincount(part.y)
    quota = share * sizes
    removed = np.floor(quota).astype(int)
    # The largest remainders get the rows that rounding down has left over.
    left_over = round(share * len(part)) - removed.sum()
    removed[np.argsort(removed - quota, kind="stable")[:left_over]] += 1
    kept = np.ones(len(part), bool)
    for label, count in enumerate(removed):
        rows = np.flatnonzero(part.y == label)
        most_sure = np.argsort(-scores[rows], kind="stable")[:count]
        kept[rows[most_sure]] = False
    return Part(part.x[kept], part.y[kept])


def held_out(labels: NDArray[np.int64], share: float = 0.2) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Training and test rows of data that has no test part: the same for all seeds, stratified, both ascending.

    A class with fewer than three rows has them all in the training part.
    """
    generator = np.random.default_rng(0)
    rows = [generator.permutation(np.flatnonzero(labels == label)) for label in np.unique(labels)]
    test = np.sort(np.concatenate([here[: int(share * len(here) + 0.5)] for here in rows]))
    return np.setdiff1d(np.arange(len(labels)), test), test
