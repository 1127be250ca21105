"""Folds of a cross-fitting: classes spread evenly, identical rows together."""

from __future__ import annotations

import numpy as np

from volmin._typing import AnyArray, Labels

MOST_COMPARED = 20_000_000
"""Number of values up to which identical rows are found by comparing them; in larger arrays digests are compared."""


def assign_folds(labels: Labels, copy_of: Labels, folds: int, generator: np.random.Generator) -> Labels:
    """(N,) fold of each row, such that classes are spread evenly and identical rows are in one fold.

    Args:
        labels: (N,) labels.
        copy_of: (N,) first row that is identical to each row, usually the row itself.
        folds: Number of folds.
        generator: Random generator of the order within a class.
    """
    originals = np.unique(copy_of)
    order = generator.permutation(originals)
    order = order[labels[order].argsort(kind="stable")]
    fold = np.empty(len(labels), dtype=np.int64)
    fold[order] = np.arange(len(order)) % folds
    return fold[copy_of]


def first_copies(x: AnyArray) -> Labels:
    """(N,) first row that is identical to each row.

    A copy of a row in the training folds would reveal its label. Where most rows are repeated, as with a few
    categorical features, they are different examples with the same features, and each row counts as its own original.
    """
    keys = x.view(np.dtype((np.void, x.dtype.itemsize * x.shape[1])))[:, 0]
    if x.size > MOST_COMPARED:
        keys = _digests(x)
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    return first[inverse] if len(first) >= len(x) / 2 else np.arange(len(x))


def _digests(x: AnyArray) -> AnyArray:
    """(N,) 128-bit numbers that are equal for identical rows and, with near certainty, for no others."""
    words = x.view(np.uint32).reshape(len(x), -1)
    factors = np.random.default_rng(0).integers(2**64, size=(2, words.shape[1]), dtype=np.uint64)
    sums = np.zeros((len(x), 2), dtype=np.uint64)
    for place, column in enumerate(words.T):
        sums += column.astype(np.uint64)[:, None] * factors[:, place]
    return sums.view(np.dtype((np.void, 16)))[:, 0]
