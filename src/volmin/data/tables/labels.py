"""The label column of a table, checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

import numpy as np
import polars as pl

from volmin._typing import AnyArray, Labels
from volmin.data.tables.files import read_table
from volmin.exceptions import DataError

MIN_IDENTIFIERS = 20
"""A column with at most this many distinct values is never taken for an identifier of rows."""

MANY_CLASSES = 1000
FEWEST_OF_MANY = 100
"""A column with more than ``MANY_CLASSES`` distinct values names classes only with so many rows for each."""

_LONGEST_LABEL = 1000
"""Longer text is not accepted as the name of a class."""


@dataclass(frozen=True)
class LabelledTable:
    """A table with a column of given labels."""

    frame: pl.DataFrame
    """All columns as read, rows in file order."""
    label: str
    """Name of the label column."""
    labels: AnyArray
    """(N,) given labels of the rows that have one: text, integers, booleans, or floats if the file has fractions."""
    feature_columns: tuple[str, ...]
    rows: Labels
    """(N,) rows of ``frame`` that have a label."""

    def __len__(self) -> int:
        return len(self.labels)

    def of_all_rows(self, labels: AnyArray) -> AnyArray:
        """Labels of the rows that have one, for all rows of ``frame``: with None where there is none."""
        if len(labels) == self.frame.height:
            return labels
        every = np.full(self.frame.height, None, dtype=object)
        every[self.rows] = labels.tolist()
        return every


def load_table(path: str | Path, label: str, *, ignore: Sequence[str] = (), unlabelled: bool = False) -> LabelledTable:
    """Read a table with its labels.

    Args:
        path: CSV, TSV, Parquet or NPZ file.
        label: Name of the label column.
        ignore: Columns to leave out of the features.
        unlabelled: Whether rows may have no label; it is an error otherwise.
    """
    frame = read_table(path)
    for column in (label, *ignore):
        check_column(frame, column, path)
    features = tuple(name for name in frame.columns if name != label and name not in ignore)
    rows = np.arange(frame.height)
    if unlabelled:
        rows = np.flatnonzero(~_missing(frame[label]).to_numpy())
        if not len(rows):
            raise DataError(f"The label column {label!r} of {path} is empty.")
    return LabelledTable(frame, label, column_labels(frame[label][rows.tolist()], path), features, rows)


def check_column(frame: pl.DataFrame, column: str, path: str | Path) -> None:
    """Require a column to exist; the error lists the columns of the table."""
    if column not in frame.columns:
        near = get_close_matches(column, frame.columns, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        shown = ", ".join(frame.columns[:20]) + (", ..." if frame.width > 20 else "")
        raise DataError(f"{path} has no column {column!r}.{hint} It has: {shown}.")


def column_labels(column: pl.Series, path: str | Path) -> AnyArray:
    """(N,) labels in a column, in their own type; floats without fractions become integers."""
    kind = column.dtype
    if kind.is_nested() or kind in (pl.Binary, pl.Object):
        raise DataError(f"The column {column.name!r} of {path} holds {kind}, which cannot be labels.")
    missing = _missing(column)
    if not (kind.is_numeric() or kind == pl.Boolean):
        column = column.cast(pl.String)
    elif kind.is_float() or kind.is_decimal():
        column = _as_integers(column.cast(pl.Float64).fill_nan(None))
    if rows := missing.arg_true().to_list():
        first = ", ".join(map(str, rows[:5])) + (", ..." if len(rows) > 5 else "")
        raise DataError(
            f"The label column {column.name!r} of {path} is empty in {len(rows)} of {len(column)} rows "
            f"(counted from 0: {first}): fill them in, or delete these rows."
        )
    _check_classes(column, path)
    return column.to_numpy().astype(str) if column.dtype == pl.String else column.to_numpy()


def _missing(column: pl.Series) -> pl.Series:
    """Mask of the rows without a label: null, NaN or only spaces."""
    if column.dtype.is_float():
        return column.fill_nan(None).is_null()
    if column.dtype.is_numeric() or column.dtype == pl.Boolean or column.dtype.is_nested():
        return column.is_null()
    text = column.cast(pl.String, strict=False)
    return (text.is_null() | (text.str.strip_chars() == "")).fill_null(True)


def _check_classes(column: pl.Series, path: str | Path) -> None:
    """Require at least two classes, and refuse a column that looks like identifiers or free text."""
    classes = column.unique()
    if len(classes) == 1:
        raise DataError(f"The label column {column.name!r} of {path} has only one class: {str(classes[0])[:50]!r}.")
    longest = max(len(str(name)) for name in classes)
    most = max(MIN_IDENTIFIERS, len(column) / 2)
    if len(classes) > MANY_CLASSES:
        most = min(most, len(column) / FEWEST_OF_MANY)
    if len(classes) > most or longest > _LONGEST_LABEL:
        raise DataError(
            f"The column {column.name!r} of {path} has {len(classes)} different values in {len(column)} rows, of up to "
            f"{longest} characters, so it does not look like a label: name another column, or merge classes."
        )


def _as_integers(column: pl.Series) -> pl.Series:
    """A column of floats as integers if none has a fraction."""
    known = column.drop_nulls()
    whole = known.is_finite().all() and (known == known.round()).all() and (known.abs() < 2**53).all()
    return column.cast(pl.Int64) if whole else column
