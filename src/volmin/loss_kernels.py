"""The corrected cross-entropy as a compiled loop: for few classes, calls into torch take longer than the arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmin.compilation import compiled

_SMALL = np.float32(1e-30)

Array = NDArray[Any]


@compiled
def forward_nll(logits: Array, T: Array, y: Array, for_logits: Array, for_T: Array) -> float:
    """Mean of ``-log (T h(x))[y]``; fills its gradients.

    Args:
        logits: (N, C) clean logits.
        T: (C, C).
        y: (N,) noisy labels.
        for_logits: (N, C), to be filled.
        for_T: (C, C) zeros, to be filled.
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
