"""T from the confident joint: count the labels of rows that are confidently of each class.

A row counts as class j when ``p_j`` reaches the mean of ``p_j`` over the rows labelled j; where several
classes qualify, the most probable one wins (Northcutt et al., JAIR 2021). Needs no scatter of the posteriors,
but takes ambiguous rows for wrong labels and is misled when a wrong label is about as frequent as the right
one.

Deviation from cleanlab: the calibrated joint is not rounded to whole counts.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

TIE = 1e-6
"""How far below a class's threshold still counts as reaching it, as in cleanlab."""


def confident(probs: NDArray[np.float64], labels: NDArray[np.int64]) -> NDArray[np.float64]:
    """T as the column-normalised confident joint; a class without any count keeps its labels.

    Args:
        probs: (N, C) noisy posteriors, out of sample.
        labels: (N,) noisy labels of the same rows.
    """
    joint = confident_joint(probs, labels)
    absent = joint.sum(axis=0) == 0
    joint[absent, absent] = 1
    return joint / joint.sum(axis=0)


def confident_joint(probs: NDArray[np.float64], labels: NDArray[np.int64]) -> NDArray[np.float64]:
    """Expected counts (noisy i, clean j), (C, C), calibrated so that row i sums to the number of labels i."""
    num_classes = probs.shape[1]
    sizes = np.bincount(labels, minlength=num_classes)
    sure = probs >= confident_thresholds(probs, labels) - TIE
    guess = np.where(sure.sum(axis=1) > 1, probs.argmax(axis=1), sure.argmax(axis=1))
    counted = sure.any(axis=1)
    counts = np.zeros((num_classes, num_classes))
    np.add.at(counts, (labels[counted], guess[counted]), 1)
    # At least one right label per class, so that calibration never divides by zero.
    np.fill_diagonal(counts, counts.diagonal().clip(min=1))
    return counts / counts.sum(axis=1, keepdims=True) * sizes[:, None]


def confident_thresholds(probs: NDArray[np.float64], labels: NDArray[np.int64]) -> NDArray[np.float64]:
    """Mean ``p_j`` over the rows labelled j, (C,); infinite for a class that labels no row."""
    sizes = np.bincount(labels, minlength=probs.shape[1])
    own = np.take_along_axis(probs, labels[:, None], axis=1).ravel()
    sums = np.bincount(labels, weights=own, minlength=probs.shape[1])
    return np.divide(sums, sizes, out=np.full(len(sizes), np.inf), where=sizes > 0)
