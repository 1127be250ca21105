"""The corrected loss and the volume as compiled loops: for few classes, calls into torch take longer than all of it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmin.accelerated.compilation import compiled

_SMALL = np.float32(1e-30)
"""Below such a likelihood, quotients of probabilities would soon be zero by zero."""

Array = NDArray[Any]


@compiled
def forward_nll(logits: Array, T: Array, y: Array) -> tuple[float, Array, Array]:
    """Mean of ``-log (T h(x))[y]`` and its gradients for the logits and T.

    Args:
        logits: (N, C) clean logits.
        T: (C, C).
        y: (N,) noisy labels.
    """
    for_T = np.zeros(T.shape, np.float32)
    value, for_logits = _forward_nll(logits, T, y, for_T)
    return value, for_logits, for_T


@compiled
def _forward_nll(logits: Array, T: Array, y: Array, for_T: Array) -> tuple[float, Array]:
    """The same, but adds the gradient for T to what is there."""
    (count, num_classes), total = logits.shape, 0.0
    share, for_logits = np.float32(1 / count), np.empty(logits.shape, np.float32)
    for n in range(count):
        if not 0 <= y[n] < num_classes:
            raise IndexError("a label is not one of the classes")
        # The gradient will take the place of the posterior.
        row, posterior, gradient, likelihood = T[y[n]], for_logits[n], for_T[y[n]], np.float32(0)
        _softmax(logits[n], posterior)
        for j in range(num_classes):
            likelihood += row[j] * posterior[j]
        if likelihood > _SMALL:
            total -= np.log(likelihood)
            scale = share / likelihood
            for j in range(num_classes):
                # h / (T h)[y]: its product with row y of T is the posterior of the clean label given x and the noisy.
                ratio = posterior[j] * scale
                gradient[j] -= ratio
                posterior[j] = posterior[j] * share - row[j] * ratio
        else:
            # The label is all but impossible: only logarithms of its probability can be told from zero.
            log_tiny = np.log(np.finfo(np.float32).tiny)
            log_row = np.array([np.log(row[j]) if row[j] > 0 else log_tiny for j in range(num_classes)])
            log_likelihood = _log_sum_exp(logits[n] + log_row)
            total -= log_likelihood - _log_sum_exp(logits[n])
            for j in range(num_classes):
                ratio = share * np.exp(logits[n, j] - log_likelihood)
                gradient[j] -= ratio
                posterior[j] = posterior[j] * share - row[j] * ratio
    return total / count, for_logits


@compiled
def _softmax(logits: Array, filled: Array) -> None:
    top, total = logits.max(), np.float32(0)
    for j in range(len(logits)):
        filled[j] = np.exp(logits[j] - top)
        total += filled[j]
    for j in range(len(logits)):
        filled[j] /= total


@compiled
def _log_sum_exp(values: Array) -> float:
    top = values.max()
    return top + np.log(np.exp(values - top).sum())


@compiled
def log_volume(T: Array, floor: float, slope: Array) -> float:
    """``1/2 log det(T'T + floor I)``, shifted to be zero at I; fills its gradient, ``T (T'T + floor I)^-1``.

    Args:
        T: (R, C) in double precision.
        floor: above zero.
        slope: (R, C), to be filled.
    """
    rows, num_classes = T.shape
    gram, inverse, log_det = floor * np.eye(num_classes), np.eye(num_classes), 0.0
    for r in range(rows):
        for i in range(num_classes):
            for j in range(num_classes):
                gram[i, j] += T[r, i] * T[r, j]
    # Elimination needs no exchange of rows where all eigenvalues are positive; the pivots multiply to the determinant.
    for k in range(num_classes):
        pivot = gram[k, k]
        log_det += np.log(pivot)
        for j in range(num_classes):
            gram[k, j] /= pivot
            inverse[k, j] /= pivot
        for i in range(num_classes):
            factor = gram[i, k]
            if i != k:
                for j in range(num_classes):
                    gram[i, j] -= factor * gram[k, j]
                    inverse[i, j] -= factor * inverse[k, j]
    for r in range(rows):
        for j in range(num_classes):
            slope[r, j] = 0.0
            for k in range(num_classes):
                slope[r, j] += T[r, k] * inverse[k, j]
    return (log_det - num_classes * np.log1p(floor)) / 2


@compiled
def dominant_nll(
    logits: Array, w: Array, y: Array, tilt: Array, lam: float, floor: float
) -> tuple[float, Array, Array]:
    """``forward_nll`` at ``T = dominant(w)`` plus ``sum(tilt * T)`` plus ``lam`` log volumes, and its gradients.

    Args:
        logits: (N, C) clean logits.
        w: (C, C) parameters of T.
        y: (N,) noisy labels.
        tilt: (C, C).
        lam: weight of the log volume of T.
        floor: of the log volume.
    """
    one, for_w = np.float32(1), np.empty(w.shape, np.float32)
    A = one / (one + np.exp(-w))
    for j in range(len(A)):
        A[j, j] = 1
    sums = A.sum(0)
    T = A / sums
    for_T = tilt.copy()
    value, for_logits = _forward_nll(logits, T, y, for_T)
    for i in range(len(A)):
        for j in range(len(A)):
            value += np.float64(tilt[i, j]) * T[i, j]  # in double precision: a tangent and its offset all but cancel
    if lam > 0:
        slope = np.empty(T.shape)
        value += lam * log_volume(T.astype(np.float64), floor, slope)
        for_T += (lam * slope).astype(np.float32)
    along = (for_T * T).sum(0)
    for i in range(len(A)):
        for j in range(len(A)):
            # The slope of a sigmoid at 1 is 0, which is what the fixed diagonal needs.
            for_w[i, j] = (for_T[i, j] - along[j]) / sums[j] * A[i, j] * (1 - A[i, j])
    return value, for_logits, for_w
