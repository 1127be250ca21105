"""Data frames of other libraries as polars frames."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl


def as_frame(table: Any) -> pl.DataFrame | None:
    """Convert a data frame, or a mapping from names to columns, to polars; None for any other object.

    Accepted are polars, Arrow tables, Hugging Face data sets, and whatever else has the Arrow stream protocol
    (``__arrow_c_stream__``); pandas; and mappings of columns.
    """
    if isinstance(table, pl.DataFrame):
        return table
    if isinstance(table, pl.LazyFrame):
        return table.collect()
    if hasattr(table, "with_format") and hasattr(table, "column_names"):  # a data set of Hugging Face
        # Selected rows are applied, which the Arrow table alone ignores.
        table = table.with_format("arrow")[:]
    if isinstance(table, Mapping):
        return pl.DataFrame([_series(str(name), table[name]) for name in table])
    if _is_pandas(table):
        return pl.DataFrame([_series(str(name), table[name]) for name in table.columns])
    if hasattr(table, "__arrow_c_stream__") and not hasattr(table, "__array__"):
        return _from_arrow(table)
    if hasattr(table, "__arrow_c_stream__") and hasattr(table, "column_names"):
        return _from_arrow(table)
    if hasattr(table, "columns") and hasattr(table, "__getitem__"):
        return pl.DataFrame([_series(str(name), table[name]) for name in table.columns])
    return None


def _from_arrow(table: Any) -> pl.DataFrame | None:
    frame = pl.DataFrame(table)
    return frame if isinstance(frame, pl.DataFrame) else None


def _is_pandas(table: Any) -> bool:
    return type(table).__module__.split(".")[0] == "pandas" and hasattr(table, "columns")


def _series(name: str, column: Any) -> pl.Series:
    if isinstance(column, pl.Series):
        return column.alias(name)
    values = column.to_numpy() if hasattr(column, "to_numpy") else np.asarray(column)
    if values.dtype == object:
        # pandas marks missing text by NaN or its own NA.
        gaps = [value is None or type(value).__name__ == "NAType" or value != value for value in values]
        values = [None if gap else value for gap, value in zip(gaps, values, strict=True)]
    return pl.Series(name, values, strict=False, nan_to_null=True)
