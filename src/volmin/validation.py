"""Posteriors and labels as the mathematics takes them, checked once at the door."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from volmin.exceptions import InputError
from volmin.transition import as_matrix

ROW_SUM_TOLERANCE = 1e-2
"""How far the sum of a row may be from one and still count as rounding, as in half precision."""


def validate_posteriors(probs: ArrayLike | Tensor, name: str = "probs") -> NDArray[np.float64]:
    """A float64 copy of (N, C) posteriors, normalised, or a ``ValueError`` that says what is wrong with ``name``."""
    try:
        P = as_matrix(probs)
    except (TypeError, ValueError):
        raise InputError(f"{name} must be an (N, C) array of numbers, a row of class probabilities each.") from None
    if P.ndim != 2 or len(P) == 0:
        raise InputError(f"{name} must be a non-empty (N, C) array of class probabilities, but has shape {P.shape}.")
    if P.shape[1] < 2:
        raise InputError(f"{name} must have a column for each of at least 2 classes, but has shape {P.shape}.")
    if not np.isfinite(P).all():
        raise InputError(f"{name} contains NaN or infinite entries; drop or mend row {_first(~np.isfinite(P))}.")
    if P.min() < 0:
        raise InputError(
            f"{name} contains negative entries, first in row {_first(P < 0)}; give probabilities, not logits or "
            "log-probabilities (apply a softmax)."
        )
    sums = P.sum(axis=1)
    worst = int(np.abs(sums - 1).argmax())
    if abs(sums[worst] - 1) > ROW_SUM_TOLERANCE:
        raise InputError(
            f"Each row of {name} must sum to one, but row {worst} sums to {sums[worst]:.4g}; give the probabilities of "
            "exclusive classes (a softmax, not a sigmoid per class)."
        )
    P /= sums[:, None]
    return P


def validate_labels(labels: ArrayLike | Tensor, num_rows: int, num_classes: int) -> NDArray[np.int64]:
    """(N,) labels as int64, or a ``ValueError`` that says why they do not fit these rows and classes."""
    y = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if y.shape != (num_rows,):
        raise InputError(f"labels must hold one label per row, shape ({num_rows},), but have shape {y.shape}.")
    if not (np.issubdtype(y.dtype, np.integer) or y.dtype == bool):
        raise InputError(
            f"labels must be integers, but are {y.dtype}; number the classes in the order of the columns of probs."
        )
    if y.min() < 0 or y.max() >= num_classes:
        raise InputError(f"labels must lie in 0..{num_classes - 1}, one per column, but span {y.min()}..{y.max()}.")
    return y.astype(np.int64)


def _first(rows: NDArray[np.bool_]) -> int:
    return int(rows.any(axis=1).argmax())
