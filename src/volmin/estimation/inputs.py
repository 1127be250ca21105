"""What every estimator may rely on: posteriors and labels, checked once at the door."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from volmin.transition import as_matrix

ROW_SUM_TOLERANCE = 1e-2
"""How far the sum of a row may be from one and still count as rounding, as in half precision."""


def checked_posteriors(probs: ArrayLike) -> NDArray[np.float64]:
    """A float64 copy of (N, C) posteriors, normalised, or a ``ValueError`` that says what to do."""
    P = as_matrix(probs)
    if P.ndim != 2 or P.shape[1] < 2:
        raise ValueError(f"probs must be (N, C) with at least 2 classes, but has shape {P.shape}.")
    if len(P) < P.shape[1]:
        raise ValueError(
            f"probs has {len(P)} rows for {P.shape[1]} classes; give at least one row per class"
            " (is the array transposed?)."
        )
    if not np.isfinite(P).all():
        raise ValueError("probs contains NaN or infinite entries; remove those rows.")
    if P.min() < 0:
        raise ValueError(
            f"probs contains negative entries (smallest: {P.min():.3g}); give probabilities, not logits or"
            " log-probabilities (apply a softmax)."
        )
    sums = P.sum(axis=1)
    worst = int(np.abs(sums - 1).argmax())
    if abs(sums[worst] - 1) > ROW_SUM_TOLERANCE:
        raise ValueError(
            f"Each row of probs must sum to one, but row {worst} sums to {sums[worst]:.4g}; give the"
            " probabilities of exclusive classes (a softmax, not a sigmoid per class)."
        )
    P /= sums[:, None]
    if np.ptp(P, axis=0).max() < 1e-9:
        raise ValueError("All rows of probs are the same and say nothing about T; give a trained model's output.")
    return P


def checked_labels(labels: ArrayLike, num_rows: int, num_classes: int) -> NDArray[np.int64]:
    """(N,) labels in ``0 .. C-1`` as int64, or a ``ValueError`` that says what to do."""
    y = np.asarray(labels)
    if y.shape != (num_rows,):
        raise ValueError(f"labels must hold one label per row, shape ({num_rows},), but has shape {y.shape}.")
    if not (np.issubdtype(y.dtype, np.integer) or y.dtype == bool):
        raise ValueError(
            f"labels must be integers 0..{num_classes - 1}, but are {y.dtype}; number the classes in the"
            " order of the columns of probs."
        )
    if y.min() < 0 or y.max() >= num_classes:
        raise ValueError(f"labels must lie in 0..{num_classes - 1}, but span {y.min()}..{y.max()}.")
    return y.astype(np.int64)
