"""T from the confident joint: counts of the labels among rows that confidently belong to each class.

A row counts as class j if ``p_j`` reaches the mean of ``p_j`` over the rows labelled j; if several classes qualify, the
most probable one is taken (Northcutt et al., JAIR 2021). The estimator does not require scattered posteriors, but it
counts ambiguous rows as label errors and fails if a wrong label is about as frequent as the correct one.

Deviation from cleanlab: the calibrated joint is not rounded to whole counts.
"""

from __future__ import annotations

import numpy as np

from volmin._typing import Array, Labels

TIE = 1e-6
"""Distance below a class's threshold that still counts as reaching it, as in cleanlab."""


def confident(probs: Array, labels: Labels) -> Array:
    """T as the column-normalised confident joint, (C, C); a class without any count gets column ``e_j``.

    Args:
        probs: (N, C) out-of-sample noisy posteriors.
        labels: (N,) noisy labels of the same rows.
    """
    joint = confident_joint(probs, labels)
    absent = joint.sum(axis=0) == 0
    joint[absent, absent] = 1
    return joint / joint.sum(axis=0)


def confident_joint(probs: Array, labels: Labels) -> Array:
    """Expected counts of (noisy i, clean j), (C, C), calibrated so that row i sums to the number of labels i."""
    return calibrated(confident_counts(probs, labels), labels)


def confident_counts(probs: Array, labels: Labels) -> Array:
    """Counts of (noisy i, confidently j), (C, C), with at least one correct label per class."""
    num_classes = probs.shape[1]
    predicted = confident_classes(probs, labels)
    counted = predicted >= 0
    counts = np.zeros((num_classes, num_classes))
    np.add.at(counts, (labels[counted], predicted[counted]), 1)
    np.fill_diagonal(counts, counts.diagonal().clip(min=1))
    return counts


def calibrated(counts: Array, labels: Labels) -> Array:
    """Counts scaled so that row i sums to the number of labels i."""
    sizes = np.bincount(labels, minlength=len(counts))
    return counts / counts.sum(axis=1, keepdims=True) * sizes[:, None]


def confident_classes(probs: Array, labels: Labels) -> Labels:
    """(N,) class that each row confidently belongs to, -1 where it reaches no threshold."""
    reached = probs >= confident_thresholds(probs, labels) - TIE
    predicted = np.where(reached.sum(axis=1) > 1, probs.argmax(axis=1), reached.argmax(axis=1))
    return np.where(reached.any(axis=1), predicted, -1)


def confident_thresholds(probs: Array, labels: Labels) -> Array:
    """Mean ``p_j`` over the rows labelled j, (C,); infinite for a class without labels."""
    sizes = np.bincount(labels, minlength=probs.shape[1])
    given = np.take_along_axis(probs, labels[:, None], axis=1).ravel()
    sums = np.bincount(labels, weights=given, minlength=probs.shape[1])
    return np.divide(sums, sizes, out=np.full(len(sizes), np.inf), where=sizes > 0)
