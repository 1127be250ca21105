"""The corrected cross-entropy as compiled loops: for few classes, calls into torch take longer than the arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmin.compilation import compiled

_SMALL = np.float32(1e-30)

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
            raise IndexError("index out of range in self")
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
def dominant_nll(logits: Array, w: Array, y: Array, tilt: Array, for_logits: Array, for_w: Array) -> float:
    """``forward_nll`` at ``T = dominant(w)`` plus ``sum(tilt * T)``; fills its gradients.

    Args:
        logits: (N, C) clean logits.
        w: (C, C) parameters of T.
        y: (N,) noisy labels.
        tilt: (C, C).
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
    along = (for_T * T).sum(0)
    for i in range(len(A)):
        for j in range(len(A)):
            # The slope of a sigmoid at 1 is 0, which is what the fixed diagonal needs.
            for_w[i, j] = (for_T[i, j] - along[j]) / sums[j] * A[i, j] * (1 - A[i, j])
    return value
