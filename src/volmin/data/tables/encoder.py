"""Encoding of a table's columns as numbers."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from volmin._typing import Array
from volmin.data.tables.files import as_numbers, first_line
from volmin.data.tables.labels import MIN_IDENTIFIERS
from volmin.exceptions import DataError

MAX_CATEGORIES = 50
"""Number of frequent values of a text column that get a feature each; all other values share one."""

_HUGE = 1e150
"""Numbers are clipped to this magnitude, so that their squares stay finite."""


def as_frame(table: Any) -> pl.DataFrame | None:
    """Convert a polars or pandas frame, or a mapping from names to columns, to polars; None for any other object."""
    if isinstance(table, pl.DataFrame):
        return table
    if not isinstance(table, Mapping) and not hasattr(table, "columns"):
        return None
    names = list(table) if isinstance(table, Mapping) else list(table.columns)
    return pl.DataFrame([_series(str(name), table[name]) for name in names])


class TableEncoder:
    """Encodes the columns of a table as numbers; fitted on training rows and stored with a model.

    Numbers, booleans and dates are standardised. Outliers are clipped to ten interquartile ranges from the median, and
    missing values are replaced by the median, with an additional feature that marks them. Text is one-hot encoded by
    its most frequent values, with one feature for all others. Columns that only identify rows are left out with a
    warning.
    """

    def __init__(self) -> None:
        self.columns: list[_Number | _Category] = []

    @property
    def feature_names(self) -> list[str]:
        """(F,) names of the features."""
        return [name for column in self.columns for name in column.feature_names]

    def fit(self, frame: pl.DataFrame, columns: Sequence[str]) -> TableEncoder:
        """Fit the encoding of ``columns`` to the rows of ``frame``."""
        found, left_out = [], {}
        for name in columns:
            column = _fit_column(frame[name])
            if isinstance(column, str):
                left_out[name] = column
            else:
                found.append(column)
        if left_out:
            listed = ", ".join(f"{name!r} ({reason})" for name, reason in left_out.items())
            warnings.warn(f"Columns left out of the features: {listed}.", stacklevel=2)
        if not found:
            raise DataError("The table has no feature columns besides its labels.")
        self.columns = found
        return self

    def transform(self, frame: pl.DataFrame) -> NDArray[np.float32]:
        """(N, F) features of the rows of ``frame``."""
        lacking = [column.name for column in self.columns if column.name not in frame.columns]
        if lacking:
            raise DataError(f"The table lacks columns that the encoding needs: {', '.join(lacking)}.")
        return np.hstack([column.encode(frame[column.name]) for column in self.columns])

    def to_json(self) -> dict[str, Any]:
        """Content of the encoder in JSON types, for ``from_json``."""
        return {"columns": [{"kind": column.kind, **asdict(column)} for column in self.columns]}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> TableEncoder:
        """Restore an encoder from the result of ``to_json``; any other content is a ``DataError``."""
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
    """Standardisation of a column of numbers, booleans or dates."""

    kind: ClassVar[str] = "number"
    name: str
    median: float
    low: float
    high: float
    mean: float
    std: float
    tells_missing: bool

    @classmethod
    def fit(cls, name: str, values: Array) -> _Number:
        """Fit to (N,) values, NaN where missing."""
        known = values[~np.isnan(values)]
        lower, median, upper = np.percentile(known, (25, 50, 75))
        reach = 10 * (upper - lower)
        # If most values are equal, the interquartile range is zero and defines no outliers.
        low, high = (median - reach, median + reach) if reach > 0 else (known.min(), known.max())
        filled = np.clip(np.where(np.isnan(values), median, values), low, high)
        mean, std = filled.mean(), filled.std()
        # Rounding errors give a constant column a tiny spread, which must not be scaled up to one.
        std = std if std > 1e-12 * abs(mean) else 1.0
        figures = (float(figure) for figure in (median, low, high, mean, std))
        return cls(name, *figures, tells_missing=len(known) < len(values))

    def check(self) -> None:
        """Raise a ``TypeError`` for values that ``fit`` cannot have produced."""
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
    """One-hot encoding of the frequent values of a text column, null included, and one feature for all others."""

    kind: ClassVar[str] = "category"
    name: str
    values: list[str | None] = field(default_factory=list)

    @classmethod
    def fit(cls, column: pl.Series) -> _Category:
        counts = column.alias("value").value_counts()
        ordered = counts.sort("count", "value", descending=[True, False], nulls_last=True)
        return cls(column.name, ordered["value"].head(MAX_CATEGORIES).to_list())

    def check(self) -> None:
        """Raise a ``TypeError`` for values that ``fit`` cannot have produced."""
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
        # pandas marks missing text by NaN or its own NA.
        gaps = [value is None or type(value).__name__ == "NAType" or value != value for value in values]
        values = [None if gap else value for gap, value in zip(gaps, values, strict=True)]
    return pl.Series(name, values, strict=False, nan_to_null=True)


def _fit_column(column: pl.Series) -> _Number | _Category | str:
    """Encoding of a column, or the reason to leave it out."""
    kind = column.dtype
    if column.null_count() == len(column):
        return "it is empty"
    if kind in (pl.String, pl.Categorical, pl.Enum):
        column = column.cast(pl.String)
        distinct = column.n_unique()
        if distinct > max(MIN_IDENTIFIERS, 0.9 * column.count()):
            return f"{distinct} different texts"
        return _Category.fit(column)
    if not (kind.is_numeric() or kind.is_temporal() or kind == pl.Boolean):
        return f"it holds {kind}"
    if kind.is_integer() and _counts_rows(column):
        return "it numbers the rows"
    values = _numbers(column)
    return "it is empty" if np.isnan(values).all() else _Number.fit(column.name, values)


def _counts_rows(column: pl.Series) -> bool:
    """Whether integers are a running index: all different and, even with some rows held out, nearly contiguous."""
    numbers = column.drop_nulls().cast(pl.Float64)
    if len(numbers) < MIN_IDENTIFIERS or numbers.n_unique() < len(column):
        return False
    values = numbers.to_numpy()
    return bool(values.max() - values.min() < 2 * len(values))


def _numbers(column: pl.Series) -> Array:
    """(N,) values of a column, NaN where missing; dates in microseconds, whatever the unit in the file."""
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
