"""Linear discriminant analysis of the scores of a ridge regression.

With targets R for rows x, ridge regression has the scores ``s = W' x`` with ``W = (S + penalty)^-1 M' P``: S is the
covariance of the rows, M holds the means of the classes, and P their shares. The discriminant of classes that are
Gaussian with one covariance, ``(S - M' P M + penalty)^-1 M'``, is a linear map of these scores: only a C by C matrix
remains to be inverted (penalised discriminant analysis, Hastie, Buja and Tibshirani 1995).
"""

from __future__ import annotations

import numpy as np

from volmin._typing import Array

PSEUDO_COUNT = 1.0
"""Rows that are added to each class, so that an empty one has a share."""


def discriminant(scores: Array, targets: Array, weights: Array) -> Array:
    """(C + 1, C) linear map, the intercepts in the last row, from ridge scores to log posteriors up to a constant.

    Args:
        scores: (N, C) scores of the rows that the ridge regression was fitted to.
        targets: (N, C) label distributions that it was fitted to.
        weights: (N,) weights of the rows.
    """
    weighted = targets * weights[:, None]
    mass = weighted.sum(axis=0) + PSEUDO_COUNT
    shares, mean = mass / mass.sum(), weights @ scores / weights.sum()
    means = weighted.T @ scores / mass[:, None] - mean * ((mass - PSEUDO_COUNT) / mass)[:, None]
    slopes = np.linalg.inv(np.diag(shares) - shares[:, None] * means)
    intercepts = np.log(shares) - 0.5 * np.diag(means @ slopes) - mean @ slopes
    return np.vstack([slopes, intercepts])


def applied(linear_map: Array, scores: Array) -> Array:
    """(N, C) images of the scores under a (C + 1, C) map."""
    return scores @ linear_map[:-1] + linear_map[-1]
