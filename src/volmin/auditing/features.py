"""Features of an audit as numbers, and what became of the columns of a table."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl
from sklearn.utils.extmath import randomized_svd

from volmin._typing import AnyArray, Array, Labels
from volmin.data.encoders import named_encoder
from volmin.data.tables import TableEncoder, as_frame
from volmin.exceptions import ColumnWarning, InputError
from volmin.progress import Progress

MOST_EMBEDDED = 2000
"""Number of rows on the map of the report."""

MOST_NAMED = 10
"""Number of columns that the warning names."""


@dataclass(frozen=True)
class Features:
    """Features of all rows.

    Attributes:
        x: (N, ...) finite float32 numbers.
        columns: What became of each column of a table, in JSON types; empty for arrays.
    """

    x: AnyArray
    columns: tuple[dict[str, Any], ...] = ()


def encode_features(
    features: Any, types: Mapping[str, str] | None = None, progress: Progress | None = None, text_encoder: Any = None
) -> Features:
    """Features as (N, ...) numbers; the columns of a table, or of an array with missing values, are encoded.

    Args:
        features: (N, ...) numbers, or a table (polars, pandas, Arrow or a mapping of columns).
        types: Types of columns of a table (``volmin.data.tables.TYPES``), where they are not to be recognised.
        progress: Callback for the progress of encoding.
        text_encoder: Callable from a list of texts to (n, D) numbers, for the columns of text in place of TF-IDF.
    """
    frame = as_frame(features)
    if frame is None:
        if text_encoder is not None:
            raise InputError("text_encoder is for columns of text, but the features are not a table.")
        if types:
            raise InputError("types are set for columns of a table, but the features are not a table.")
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
    encoder = TableEncoder(None if text_encoder is None else named_encoder(text_encoder)).fit(
        frame, frame.columns, types, progress
    )
    if text_encoder is not None and not encoder.text_columns:
        raise InputError("text_encoder has no column of text to encode: name one as text (types=, --text).")
    if left_out := [f"{use.name!r} ({use.note})" for use in encoder.uses if use.kind == "left out"]:
        more = f" and {len(left_out) - MOST_NAMED} more" if len(left_out) > MOST_NAMED else ""
        named = ", ".join(left_out[:MOST_NAMED])
        warnings.warn(f"Columns left out of the features: {named}{more}.", ColumnWarning, stacklevel=4)
    uses = tuple(asdict(use) for use in encoder.uses)
    return Features(encoder.transform(frame, progress), uses)


def principal_positions(x: AnyArray, among: Labels, random_state: int) -> tuple[Labels, Array]:
    """Rows drawn at random, and their positions by the first two principal components of the features.

    Args:
        x: (N, F) finite features.
        among: (n,) rows from which to draw.
        random_state: Random seed of the draw.
    """
    rows = among[np.sort(np.random.default_rng(random_state).permutation(len(among))[:MOST_EMBEDDED])]
    chosen = x[rows].astype(np.float64)
    chosen -= chosen.mean(axis=0)
    # Pareto scaling: features of large numbers must not decide alone, and rare ones must not decide at all.
    spread = chosen.std(axis=0)
    chosen /= np.sqrt(np.where(spread > 0, spread, 1))
    left, values, _ = randomized_svd(chosen, n_components=min(2, *chosen.shape), random_state=random_state)
    points = np.zeros((len(rows), 2))
    points[:, : len(values)] = left * values
    return rows, points.round(3)
