"""Tables of one's own: their labels, and their columns as numbers."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from volmin.data.tables.files import SUFFIXES, as_numbers, first_line, read_table
from volmin.exceptions import DataError

__all__ = ["SUFFIXES", "LabelledTable", "TableEncoder", "as_frame", "load_table", "read_table"]

MAX_CATEGORIES = 50
"""A text column gets a feature for each of so many of its most frequent values; the others share one."""

_HUGE = 1e150
"""Numbers are clipped here, so that their squares stay finite."""
_IDENTIFIER_ROWS = 20
"""With fewer distinct values than this, nothing is taken for an identifier."""
_LONGEST_LABEL = 1000
"""Longer text is no name of a class."""


@dataclass(frozen=True)
class LabelledTable:
    """A table, one of whose columns holds the given labels."""

    frame: pl.DataFrame
    """All columns as read, rows in file order."""
    label: str
    labels: NDArray[Any]
    """(N,) given labels: text, whole numbers, truth values, or fractions where the file has such."""
    feature_columns: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.labels)


def load_table(path: str | Path, label: str, *, ignore: Sequence[str] = ()) -> LabelledTable:
    """A table with its labels; the columns in ``ignore`` are no features."""
    frame = read_table(path)
    for column in (label, *ignore):
        check_column(frame, column, path)
    features = tuple(name for name in frame.columns if name != label and name not in ignore)
    return LabelledTable(frame, label, labels_of(frame[label], path), features)


def check_column(frame: pl.DataFrame, column: str, path: str | Path) -> None:
    """Refuse a column that the table does not have, and name those that it has."""
    if column not in frame.columns:
        near = get_close_matches(column, frame.columns, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        shown = ", ".join(frame.columns[:20]) + (", ..." if frame.width > 20 else "")
        raise DataError(f"{path} has no column {column!r}.{hint} It has: {shown}.")


def labels_of(column: pl.Series, path: str | Path) -> NDArray[Any]:
    """(N,) labels in their own type; whole numbers that were stored as fractions become whole again."""
    kind = column.dtype
    if kind.is_nested() or kind in (pl.Binary, pl.Object):
        raise DataError(f"The column {column.name!r} of {path} holds {kind}, which cannot be labels.")
    if not (kind.is_numeric() or kind == pl.Boolean):
        column = column.cast(pl.String)
        missing = (column.is_null() | (column.str.strip_chars() == "")).fill_null(True)
    else:
        if kind.is_float() or kind.is_decimal():
            column = _whole_if_all_are(column.cast(pl.Float64).fill_nan(None))
        missing = column.is_null()
    if rows := missing.arg_true().to_list():
        first = ", ".join(map(str, rows[:5])) + (", ..." if len(rows) > 5 else "")
        raise DataError(
            f"The label column {column.name!r} of {path} is empty in {len(rows)} of {len(column)} rows "
            f"(counted from 0: {first}): fill them in, or delete these rows."
        )
    classes = column.unique()
    if len(classes) == 1:
        raise DataError(f"The label column {column.name!r} of {path} holds one class only: {str(classes[0])[:50]!r}.")
    longest = max(len(str(name)) for name in classes)
    if len(classes) > max(_IDENTIFIER_ROWS, len(column) / 2) or longest > _LONGEST_LABEL:
        raise DataError(
            f"The column {column.name!r} of {path} has {len(classes)} different values in {len(column)} rows, of up to "
            f"{longest} characters, so it does not look like a label: name another column, or merge classes."
        )
    return column.to_numpy().astype(str) if column.dtype == pl.String else column.to_numpy()


def as_frame(table: Any) -> pl.DataFrame | None:
    """A table in memory (of polars or pandas, or a mapping from names to columns) as polars has it; None for others."""
    if isinstance(table, pl.DataFrame):
        return table
    if not isinstance(table, Mapping) and not hasattr(table, "columns"):
        return None
    names = list(table) if isinstance(table, Mapping) else list(table.columns)
    return pl.DataFrame([_series(str(name), table[name]) for name in names])


class TableEncoder:
    """The columns of a table as numbers, in a way that is learned from training rows and kept with a model.

    Numbers, truth values and dates are standardised, with outliers pulled in to ten interquartile ranges from the
    median and missing values replaced by it, which a further feature tells. Text becomes a feature for each frequent
    value and one for all others. Columns that only identify rows are left out with a warning.
    """

    def __init__(self) -> None:
        self.columns: list[_Number | _Category] = []

    @property
    def feature_names(self) -> list[str]:
        """(F,) what each feature is."""
        return [name for column in self.columns for name in column.feature_names]

    def fit(self, frame: pl.DataFrame, columns: Sequence[str]) -> TableEncoder:
        """Learn the encoding of ``columns`` from the rows of ``frame``."""
        found, left_out = [], {}
        for name in columns:
            column = _learn(frame[name])
            if isinstance(column, str):
                left_out[name] = column
            else:
                found.append(column)
        if left_out:
            listed = ", ".join(f"{name!r} ({reason})" for name, reason in left_out.items())
            warnings.warn(f"Columns left out of the features: {listed}.", stacklevel=2)
        if not found:
            raise DataError("The table has no columns to learn from besides its labels.")
        self.columns = found
        return self

    def transform(self, frame: pl.DataFrame) -> NDArray[np.float32]:
        """(N, F) features of the rows of ``frame``."""
        lacking = [column.name for column in self.columns if column.name not in frame.columns]
        if lacking:
            raise DataError(f"The table lacks columns that the encoding needs: {', '.join(lacking)}.")
        return np.hstack([column.encode(frame[column.name]) for column in self.columns])

    def to_json(self) -> dict[str, Any]:
        """What ``from_json`` takes, in types that JSON has."""
        return {"columns": [{"kind": column.kind, **asdict(column)} for column in self.columns]}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> TableEncoder:
        """The encoder whose ``to_json`` gave ``content``."""
        encoder = cls()
        try:
            for column in content["columns"]:
                kind = _KINDS[column["kind"]]
                encoder.columns.append(kind(**{key: value for key, value in column.items() if key != "kind"}))
                encoder.columns[-1].check()
        except (KeyError, TypeError, AttributeError) as error:
            raise DataError(f"This is not the content of a table encoder: {first_line(error)}") from None
        return encoder


@dataclass(frozen=True)
class _Number:
    """Standardises a column of numbers, truth values or dates."""

    kind: ClassVar[str] = "number"
    name: str
    median: float
    low: float
    high: float
    mean: float
    std: float
    tells_missing: bool

    @classmethod
    def learn(cls, name: str, values: NDArray[np.float64]) -> _Number:
        """From (N,) values with NaN where they are missing."""
        known = values[~np.isnan(values)]
        lower, median, upper = np.percentile(known, (25, 50, 75))
        reach = 10 * (upper - lower)
        # A column that is mostly one value has no spread to judge outliers by.
        low, high = (median - reach, median + reach) if reach > 0 else (known.min(), known.max())
        filled = np.clip(np.where(np.isnan(values), median, values), low, high)
        mean, std = filled.mean(), filled.std()
        # Rounding gives a constant column a spread, which must not be blown up.
        std = std if std > 1e-12 * abs(mean) else 1.0
        figures = (float(figure) for figure in (median, low, high, mean, std))
        return cls(name, *figures, tells_missing=len(known) < len(values))

    def check(self) -> None:
        """Refuse what no ``learn`` gives."""
        figures = (self.median, self.low, self.high, self.mean, self.std)
        numbers = all(type(figure) in (int, float) for figure in figures)
        if not (isinstance(self.name, str) and numbers and self.std > 0):
            raise TypeError(f"the column {self.name!r} needs a name and numbers")

    @property
    def feature_names(self) -> list[str]:
        return [self.name, f"{self.name} is missing"] if self.tells_missing else [self.name]

    def encode(self, column: pl.Series) -> NDArray[np.float32]:
        values = _numbers(column)
        missing = np.isnan(values)
        filled = np.clip(np.where(missing, self.median, values), self.low, self.high)
        standardised = (filled - self.mean) / self.std
        return np.column_stack([standardised, missing] if self.tells_missing else [standardised]).astype(np.float32)


@dataclass(frozen=True)
class _Category:
    """A feature for each frequent value of a text column, and one for all other values; null is a value."""

    kind: ClassVar[str] = "category"
    name: str
    values: list[str | None] = field(default_factory=list)

    @classmethod
    def learn(cls, column: pl.Series) -> _Category:
        counts = column.alias("value").value_counts()
        ordered = counts.sort("count", "value", descending=[True, False], nulls_last=True)
        return cls(column.name, ordered["value"].head(MAX_CATEGORIES).to_list())

    def check(self) -> None:
        """Refuse what no ``learn`` gives."""
        named = isinstance(self.name, str) and isinstance(self.values, list)
        if not named or not all(value is None or isinstance(value, str) for value in self.values):
            raise TypeError(f"the column {self.name!r} needs a name and a list of texts")
        if len(set(self.values)) < len(self.values):
            raise TypeError(f"the column {self.name!r} has a value twice")

    @property
    def feature_names(self) -> list[str]:
        shown = ("is missing" if value is None else f"= {value}" for value in self.values)
        return [f"{self.name} {text}" for text in (*shown, "is another")]

    def encode(self, column: pl.Series) -> NDArray[np.float32]:
        places = {value: place for place, value in enumerate(self.values)}
        rows = [places.get(value, len(places)) for value in column.cast(pl.String).to_list()]
        return np.eye(len(places) + 1, dtype=np.float32)[rows]


_KINDS: dict[str, type[_Number | _Category]] = {kind.kind: kind for kind in (_Number, _Category)}


def _series(name: str, column: Any) -> pl.Series:
    if isinstance(column, pl.Series):
        return column.alias(name)
    values = column.to_numpy() if hasattr(column, "to_numpy") else np.asarray(column)
    if values.dtype == object:
        # pandas marks gaps among text by NaN, and its own NA; both are no text.
        gaps = [value is None or type(value).__name__ == "NAType" or value != value for value in values]
        values = [None if gap else value for gap, value in zip(gaps, values, strict=True)]
    return pl.Series(name, values, strict=False, nan_to_null=True)


def _learn(column: pl.Series) -> _Number | _Category | str:
    """The encoding of a column, or why there is none."""
    kind = column.dtype
    if column.null_count() == len(column):
        return "it is empty"
    if kind in (pl.String, pl.Categorical, pl.Enum):
        column = column.cast(pl.String)
        distinct = column.n_unique()
        if distinct > max(_IDENTIFIER_ROWS, 0.9 * column.count()):
            return f"{distinct} different texts"
        return _Category.learn(column)
    if not (kind.is_numeric() or kind.is_temporal() or kind == pl.Boolean):
        return f"it holds {kind}"
    if kind.is_integer() and _counts_rows(column):
        return "it numbers the rows"
    values = _numbers(column)
    return "it is empty" if np.isnan(values).all() else _Number.learn(column.name, values)


def _counts_rows(column: pl.Series) -> bool:
    """Whether whole numbers are a running index: all different, and hardly a gap even where rows were held out."""
    numbers = column.drop_nulls().cast(pl.Float64)
    if len(numbers) < _IDENTIFIER_ROWS or numbers.n_unique() < len(column):
        return False
    values = numbers.to_numpy()
    return bool(values.max() - values.min() < 2 * len(values))


def _numbers(column: pl.Series) -> NDArray[np.float64]:
    """(N,) numbers with NaN where they are missing; dates count microseconds, whatever unit the file has."""
    kind = column.dtype
    if kind in (pl.Date, pl.Datetime):
        column = column.dt.epoch("us")
    elif kind == pl.Duration:
        column = column.dt.total_microseconds()
    elif kind == pl.Time:
        column = column.cast(pl.Int64)
    elif kind == pl.String:
        column = as_numbers(column, pl.Float64)
        if column.dtype == pl.String:
            text = column.drop_nulls()[0]
            raise DataError(f"The column {column.name!r} must hold numbers, but holds text: {text[:50]!r}.")
    elif not (kind.is_numeric() or kind in (pl.Boolean, pl.Null)):
        raise DataError(f"The column {column.name!r} must hold numbers, but holds {kind}.")
    values = column.cast(pl.Float64).fill_null(np.nan).to_numpy()
    return np.clip(values, -_HUGE, _HUGE)


def _whole_if_all_are(column: pl.Series) -> pl.Series:
    known = column.drop_nulls()
    whole = known.is_finite().all() and (known == known.round()).all() and (known.abs() < 2**53).all()
    return column.cast(pl.Int64) if whole else column
