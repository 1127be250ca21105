"""The corrected loss and the volume as compiled loops: for few classes, calls into torch take longer than all of it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmin.compilation import compiled

_SMALL = np.float32(1e-30)
"""Below such a likelihood, quotients of probabilities would soon be zero by zero."""

Array = NDArray[Any]


@compiled
def forward_nll(logits: Array, T: Array, y: Array, for_logits: Array, for_T: Array) -> float:
    """Mean of ``-log (T h(x))[y]``; gives its gradients.

    Args:
        logits: (N, C) clean logits.
        T: (C, C).
        y: (N,) noisy labels.
        for_logits: (N, C), to be filled.
        for_T: (C, C), to be added to.
    """
    count, num_classes = logits.shape
    h, joint, total = np.empty(num_classes, np.float32), np.empty(num_classes, np.float32), 0.0
    for n in range(count):
        if not 0 <= y[n] < num_classes:
            raise IndexError("a label is not one of the classes")
        row, largest, norm, likelihood = T[y[n]], logits[n].max(), np.float32(0), np.float32(0)
        for j in range(num_classes):
            h[j] = np.exp(logits[n, j] - largest)
            norm += h[j]
            likelihood += row[j] * h[j]
        if likelihood > _SMALL * norm:
            total -= np.log(likelihood / norm)
            for j in range(num_classes):
                # h / (T h)[y]: its product with row y of T is the posterior of the clean label given x and the noisy.
                ratio = h[j] / likelihood
                for_T[y[n], j] -= ratio / count
                for_logits[n, j] = (h[j] / norm - row[j] * ratio) / count
        else:
            # The label is all but impossible: only logarithms of its probability can be told from zero.
            for j in range(num_classes):
                joint[j] = logits[n, j] + np.log(max(row[j], np.finfo(np.float32).tiny))
            top, weight = joint.max(), np.float32(0)
            for j in range(num_classes):
                weight += np.exp(joint[j] - top)
            log_likelihood = top + np.log(weight)
            total -= log_likelihood - largest - np.log(norm)
            for j in range(num_classes):
                ratio = np.exp(logits[n, j] - log_likelihood)
                for_T[y[n], j] -= ratio / count
                for_logits[n, j] = (h[j] / norm - row[j] * ratio) / count
    return total / count


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
    logits: Array, w: Array, y: Array, tilt: Array, lam: float, floor: float, for_logits: Array, for_w: Array
) -> float:
    """``forward_nll`` at ``T = dominant(w)`` plus ``sum(tilt * T)`` plus ``lam`` log volumes; fills its gradients.

    Args:
        logits: (N, C) clean logits.
        w: (C, C) parameters of T.
        y: (N,) noisy labels.
        tilt: (C, C).
        lam: weight of the log volume of T.
        floor: of the log volume.
        for_logits: (N, C), to be filled.
        for_w: (C, C), to be filled.
    """
    A = 1 / (1 + np.exp(-w))
    for j in range(len(A)):
        A[j, j] = 1
    sums = A.sum(0)
    T = A / sums
    for_T = tilt.copy()
    value = forward_nll(logits, T, y, for_logits, for_T) + (tilt * T).sum()
    if lam > 0:
        slope = np.empty(T.shape)
        value += lam * log_volume(T.astype(np.float64), floor, slope)
        for_T += (lam * slope).astype(np.float32)
    along = (for_T * T).sum(0)
    for i in range(len(A)):
        for j in range(len(A)):
            # The slope of a sigmoid at 1 is 0, which is what the fixed diagonal needs.
            for_w[i, j] = (for_T[i, j] - along[j]) / sums[j] * A[i, j] * (1 - A[i, j])
    return value
