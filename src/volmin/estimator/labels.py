"""Labels and weights of rows as a user gives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight

from volmin._typing import AnyArray, Array, Labels, Mask
from volmin.exceptions import InputError


@dataclass(frozen=True)
class LabelledRows:
    """Rows with labels.

    Attributes:
        x: (N, ...) rows, an array or a sparse matrix.
        codes: (N,) labels as class numbers.
        classes: (C,) labels in the order of the class numbers.
        weights: (N,) positive weights.
    """

    x: Any
    codes: Labels
    classes: AnyArray
    weights: Array


def labelled(y: Any, unlabelled: Any = None) -> Mask:
    """Which entries of (N,) y are labels: neither None nor NaN nor, if given, the value ``unlabelled``."""
    values = _array(y)
    if values.dtype.kind == "f":
        found = ~np.isnan(values)
    elif values.dtype.kind == "O":
        found = np.array([not _missing(value) for value in values.ravel().tolist()], bool).reshape(values.shape)
    else:
        found = np.ones(values.shape, bool)
    if unlabelled is not None:
        found &= np.array([value != unlabelled for value in values.ravel().tolist()], bool).reshape(values.shape)
    return found


def without_missing(y: Any, given: Mask) -> AnyArray:
    """The given labels in the type that they have without missing ones, beside which whole numbers become floats."""
    kept = _array(y)[given]
    if kept.dtype.kind == "O":
        kept = np.array(kept.tolist())
    if kept.dtype.kind == "f" and len(kept) and np.isfinite(kept).all() and (kept == np.round(kept)).all():
        return kept.astype(np.int64)
    return kept


def single_labels(X: Any, y: Any, sample_weight: Any, unlabelled: Any, validated: Callable[..., Any]) -> LabelledRows:
    """The rows of X with a label and a positive weight.

    Args:
        X: (N, ...) rows.
        y: (N,) labels of any type.
        sample_weight: (N,) weights of the rows, or None for equal ones.
        unlabelled: Label of rows without one, besides None and NaN.
        validated: Function that validates X alone, or X and labels.
    """
    given = None if y is None or hasattr(y, "detach") else labelled(y, unlabelled)
    if given is None or given.ndim != 1 or given.all():
        rows, labels = validated(X, y, dtype=np.float32)
        given = np.ones(len(labels), bool)
    else:
        rows, labels = validated(X, dtype=np.float32), without_missing(y, given)
        if rows.shape[0] != len(given):
            raise InputError(f"X has {rows.shape[0]} rows, but y has {len(given)} entries.")
        if not given.any():
            raise InputError("No row has a label: all entries of y are None, NaN or the value of unlabelled.")
    weights = np.ones(len(given))
    if sample_weight is not None:
        weights = _check_sample_weight(sample_weight, rows, dtype=np.float64)
        if weights.min() < 0 or weights[given].sum() == 0:
            raise InputError("sample_weight must not be negative, nor zero for all rows with a label.")
    labels, kept = labels[weights[given] > 0], given & (weights > 0)
    check_classification_targets(labels)
    classes, codes = np.unique(labels, return_inverse=True)
    return LabelledRows(rows[kept], codes.astype(np.int64), classes, weights[kept])


def class_weights(class_weight: Any, found: LabelledRows) -> Array:
    """(N,) weights of the given labels.

    Args:
        class_weight: "balanced", weights by label, or None for equal ones.
        found: The labelled rows.
    """
    if class_weight is None:
        return np.ones(len(found.codes))
    if isinstance(class_weight, Mapping):
        known = set(found.classes.tolist())
        if unknown := [label for label in class_weight if label not in known]:
            raise InputError(f"class_weight names the label {unknown[0]!r}, which is not in y.")
    elif class_weight != "balanced":
        raise InputError(f'class_weight must be "balanced", a dictionary by label or None, but is {class_weight!r}.')
    by_class = compute_class_weight(class_weight, classes=found.classes, y=found.classes[found.codes])
    return by_class[found.codes]


def _missing(value: Any) -> bool:
    return value is None or type(value).__name__ in ("NAType", "NaTType") or bool(value != value)


def _array(y: Any) -> AnyArray:
    return y.to_numpy() if hasattr(y, "to_numpy") else np.asarray(y)
