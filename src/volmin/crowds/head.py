"""The shared classifier of the clean label: ridge-penalised softmax regression on soft targets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import scipy
from numpy.typing import NDArray
from scipy.special import log_softmax, softmax

from volmin._typing import AnyArray, Array, Labels
from volmin.crowds.answers import Answers

Features: TypeAlias = NDArray[np.float32]
"""Single precision halves time and memory; the regression needs no more."""

RIDGES = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001)
"""Candidates for the ridge penalty, the strongest first; held-out targets choose."""

MOST_COMPONENTS = 256
"""More features are replaced by this number of principal components. A ridge penalty all but ignores directions of
little variance, and the time of all fits grows with the number of features."""

FIT_NUMBERS = 10_000_000
"""Largest number of rows times features that a regression is fitted to, so that its time is bounded."""


def standardised(x: AnyArray) -> Features:
    """Features with mean zero and unit variance, and a last column of ones."""
    return _with_ones(_scaled(x))


def regressors(x: AnyArray) -> Features:
    """Standardised features, or their leading principal components if there are many, and a last column of ones."""
    rows = _scaled(x)
    if rows.shape[1] > MOST_COMPONENTS:
        from sklearn.decomposition import PCA  # takes a second, and training imports this module

        rows = PCA(min(MOST_COMPONENTS, len(rows)), random_state=0).fit_transform(rows)
    return _with_ones(rows)


def _scaled(x: AnyArray) -> Features:
    rows = np.asarray(x, dtype=np.float32).reshape(len(x), -1)
    spread = rows.std(axis=0)
    return (rows - rows.mean(axis=0)) / np.where(spread > 0, spread, 1).astype(np.float32)


def _with_ones(rows: Features) -> Features:
    return np.concatenate([rows, np.ones((len(rows), 1), np.float32)], axis=1)


def fit_head(x: Features, targets: Array, ridge: float, start: Array | None = None, max_iterations: int = 60) -> Array:
    """(D, C) weights that minimise the mean cross-entropy to soft targets plus ``ridge / 2`` times their squares.

    Args:
        x: (N, D) features; the last is constant and is not penalised.
        targets: (N, C) distributions.
        ridge: Weight of the penalty.
        start: (D, C) weights to start from; zero by default.
        max_iterations: Limit of L-BFGS iterations.
    """
    shape = x.shape[1], targets.shape[1]
    soft = targets.astype(np.float32)

    def objective(vector: Array) -> tuple[float, Array]:
        weights = vector.reshape(shape)
        log_probs = log_softmax(x @ weights.astype(np.float32), axis=1)
        slope = (x.T @ (np.exp(log_probs) - soft) / len(x)).astype(np.float64)
        penalised = weights.copy()
        penalised[-1] = 0
        value = -float((soft * log_probs).sum(dtype=np.float64)) / len(x) + ridge / 2 * float((penalised**2).sum())
        return value, (slope + ridge * penalised).ravel()

    first = np.zeros(shape) if start is None else start
    options = {"maxiter": max_iterations, "maxcor": 15}
    fit = scipy.optimize.minimize(objective, first.ravel(), jac=True, method="L-BFGS-B", options=options)
    return fit.x.reshape(shape)


@dataclass
class CrossFittedHead:
    """A regression for each fold, which predicts the items that it was not fitted to.

    Attributes:
        x: (N, D) standardised features.
        fold: (N,) fold of each item.
        ridge: Weight of the penalty.
        weights: Weights of each fold, from which the next fit starts.
    """

    x: Features
    fold: Labels
    ridge: float
    weights: list[Array | None]

    def predict(self, targets: Array, answered: Array) -> Array:
        """Out-of-fold posteriors, (N, C), of regressions fitted to targets, (N, C), of items that have answers."""
        probs = np.empty_like(targets)
        for k, start in enumerate(self.weights):
            rows = _sample(np.flatnonzero((self.fold != k) & (answered > 0)), self.x.shape[1])
            self.weights[k] = weights = fit_head(self.x[rows], targets[rows], self.ridge, start)
            here = self.fold == k
            probs[here] = softmax(self.x[here] @ weights.astype(np.float32), axis=1)
        return probs


def cross_fitted_head(x: Features, targets: Array, answers: Answers, folds: int, random_state: int) -> CrossFittedHead:
    """Split the items into folds, and choose the ridge penalty that predicts the targets of the first fold best."""
    fold = np.random.default_rng(random_state).permutation(len(x)) % folds
    answered = answers.answers_of_items > 0
    rows = _sample(np.flatnonzero((fold != 0) & answered), x.shape[1])
    held_out = np.flatnonzero((fold == 0) & answered)
    best, best_loss, weights = RIDGES[0], np.inf, None
    for ridge in RIDGES:
        weights = fit_head(x[rows], targets[rows], ridge, weights)
        log_probs = log_softmax(x[held_out] @ weights.astype(np.float32), axis=1)
        loss = -float((targets[held_out] * log_probs).sum())
        if loss < best_loss:
            best, best_loss = ridge, loss
        elif loss > 1.5 * best_loss:
            break  # weaker penalties overfit even more, and take the longest
    return CrossFittedHead(x, fold, best, [None] * folds)


def _sample(rows: Labels, num_features: int) -> Labels:
    """Evenly spread rows, at most as many as ``FIT_NUMBERS`` allows."""
    most = max(1000, FIT_NUMBERS // num_features)
    return rows if len(rows) <= most else rows[np.linspace(0, len(rows) - 1, most).astype(np.int64)]
