"""Features of an audit as numbers, and what became of the columns of a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from volmin._typing import AnyArray
from volmin.data.tables import TableEncoder, as_frame
from volmin.exceptions import InputError


@dataclass(frozen=True)
class Features:
    """Features of all rows.

    Attributes:
        x: (N, ...) finite float32 numbers.
        columns: What became of each column of a table, in JSON types; empty for arrays.
    """

    x: AnyArray
    columns: tuple[dict[str, Any], ...] = ()


def encode_features(features: Any) -> Features:
    """Features as (N, ...) numbers; the columns of a table, or of an array with missing values, are encoded."""
    frame = as_frame(features)
    if frame is None:
        x = np.asarray(features.detach().cpu() if hasattr(features, "detach") else features)
        if x.ndim < 2 or x.size == 0:
            raise InputError(f"features must be a non-empty (N, ...) array, but have shape {x.shape}.")
        if x.dtype == np.uint8:
            return Features(x.astype(np.float32) / 255)
        if x.dtype.kind in "fiub" and np.isfinite(x).all():
            return Features(x.astype(np.float32))
        if x.ndim > 2 or x.dtype.kind not in "fiub":
            raise InputError(
                f"features of shape {x.shape} and type {x.dtype} must be finite numbers; give a table for text."
            )
        frame = pl.DataFrame({str(place): column for place, column in enumerate(x.T)}, nan_to_null=True)
    return Features(TableEncoder().fit(frame, frame.columns).transform(frame))
