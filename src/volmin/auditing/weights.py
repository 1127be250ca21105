"""Weights of rows in the shares of an audit."""

from __future__ import annotations

from typing import Any

import numpy as np

from volmin._typing import Array
from volmin.auditing.labels import Encoded
from volmin.exceptions import InputError


def row_weights(weights: Any, given: Encoded) -> Array:
    """(N,) weights with a mean of one over the labelled rows, or an ``InputError``."""
    try:
        found = np.asarray(weights.detach().cpu() if hasattr(weights, "detach") else weights, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("sample_weight must hold a number for each row.") from None
    if found.shape != given.codes.shape:
        raise InputError(f"sample_weight has shape {found.shape}, but there are {len(given.codes)} rows.")
    used = found[given.codes >= 0]
    if not np.isfinite(used).all() or used.min() < 0 or used.sum() == 0:
        raise InputError("sample_weight must hold finite numbers, none negative and not all zero.")
    return found / used.mean()


def effective_count(weights: Array) -> float:
    """Number of rows of equal weight whose shares would have the sampling error of the weighted ones (Kish)."""
    return float(weights.sum() ** 2 / (weights**2).sum())
