"""Checks of arrays and tensors at the public functions.

Only shapes, types and values are checked here, explicitly and before any computation. Errors of the libraries below,
such as running out of memory, pass through unchanged.
"""

from __future__ import annotations

from typing import NoReturn

import numpy as np
import torch
from torch import Tensor

from volmin._typing import Array, Labels, Mask, Numbers
from volmin.exceptions import InputError

ROW_SUM_TOLERANCE = 1e-2
"""Largest distance from one of a row's sum that counts as rounding, as in half precision."""


def as_matrix(values: Numbers) -> Array:
    """A float64 copy of an array or tensor, detached from any graph or device."""
    if isinstance(values, Tensor):
        values = values.detach().cpu().numpy()
    return np.array(values, dtype=np.float64)


def validate_posteriors(probs: Numbers, name: str = "probs") -> Array:
    """A float64 copy of (N, C) posteriors with rows that sum to one, or an ``InputError`` about ``name``."""
    try:
        P = as_matrix(probs)
    except (TypeError, ValueError):
        raise InputError(f"{name} must be an (N, C) array of numbers, a row of class probabilities each.") from None
    if P.ndim != 2 or len(P) == 0:
        raise InputError(f"{name} must be a non-empty (N, C) array of class probabilities, but has shape {P.shape}.")
    if P.shape[1] < 2:
        raise InputError(f"{name} must have a column for each of at least 2 classes, but has shape {P.shape}.")
    if not np.isfinite(P).all():
        raise InputError(f"{name} contains NaN or infinite entries; drop or repair row {_first(~np.isfinite(P))}.")
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


def validate_labels(
    labels: Numbers, num_rows: int | None = None, num_classes: int | None = None, name: str = "labels"
) -> Labels:
    """(N,) labels as int64, or an ``InputError`` about ``name`` if they do not fit the rows and classes."""
    y = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if y.ndim != 1 or (num_rows is not None and len(y) != num_rows):
        wanted = "one label per row" if num_rows is None else f"one label per row, shape ({num_rows},)"
        raise InputError(f"{name} must hold {wanted}, but have shape {y.shape}.")
    if len(y) == 0:
        return y.astype(np.int64)
    if not (np.issubdtype(y.dtype, np.integer) or y.dtype == bool):
        raise InputError(
            f"{name} must be integers, but are {y.dtype}; number the classes from 0, in the order of the columns of "
            "probs if there are any."
        )
    if y.min() < 0 or (num_classes is not None and y.max() >= num_classes):
        wanted = "not be negative" if num_classes is None else f"lie in 0..{num_classes - 1}"
        raise InputError(f"{name} must {wanted}, but span {y.min()}..{y.max()}.")
    return y.astype(np.int64)


def check_tensor(value: Tensor, name: str, *dimensions: int) -> None:
    """Require a floating-point tensor with one of the given numbers of dimensions (any number if none is given)."""
    if not isinstance(value, Tensor):
        raise InputError(f"{name} must be a tensor, but is {type(value).__name__}.")
    if dimensions and value.ndim not in dimensions:
        wanted = " or ".join(map(str, dimensions))
        raise InputError(f"{name} must have {wanted} dimensions, but has shape {tuple(value.shape)}.")
    if not value.is_floating_point():
        raise InputError(f"{name} must be of a floating-point type, but is {value.dtype}.")


def check_batch(logits: Tensor, y: Tensor) -> None:
    """Require (N, C) logits and (N,) int64 labels. The labels' range is checked where they are used as an index."""
    check_tensor(logits, "logits", 2)
    if not isinstance(y, Tensor):
        raise InputError(f"y must be a tensor, but is {type(y).__name__}.")
    if y.dtype != torch.int64:
        raise InputError(f"y must be of the type int64, but is {y.dtype}.")
    if y.shape != logits.shape[:1]:
        raise InputError(
            f"y must hold a label for each of the {len(logits)} rows of logits, but has shape {tuple(y.shape)}."
        )


def check_transition(T: Tensor, rows: Tensor, name: str) -> None:
    """Require T of shape (C, C), or (N, C, C), for ``rows`` (N, C), which are called ``name``."""
    check_tensor(T, "T", 2, 3)
    if T.shape[-1] != T.shape[-2]:
        raise InputError(f"T must be square, but has shape {tuple(T.shape)}.")
    if T.shape[-1] != rows.shape[1]:
        raise InputError(f"T is for {T.shape[-1]} classes, but {name} have shape {tuple(rows.shape)}.")
    if T.ndim == 3 and len(T) != len(rows):
        raise InputError(f"T is for {len(T)} rows, but {name} have shape {tuple(rows.shape)}.")


def raise_label_range(y: Tensor, num_classes: int) -> NoReturn:
    """Raise the ``InputError`` for labels outside ``0 .. num_classes - 1``."""
    span = f"{int(y.min())}..{int(y.max())}"
    raise InputError(f"y must lie in 0..{num_classes - 1}, but spans {span}.") from None


def _first(rows: Mask) -> int:
    return int(rows.any(axis=1).argmax())
