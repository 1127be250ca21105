"""Encodings of single columns as numbers, in types that JSON can represent."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import sparse

from volmin._typing import Array
from volmin.data.encoders import Embedding, NamedEncoder
from volmin.data.tables.parsing import DATE_ORDERS, parse_booleans, parse_dates, parse_numbers
from volmin.data.tables.units import UNIT
from volmin.data.text import Tfidf
from volmin.exceptions import DataError
from volmin.progress import Progress, tracked

MAX_CATEGORIES = 50
"""Number of frequent values of a category that get a feature each; all other values share one."""

SPELLING_FEATURES = 30
"""Number of features for the spelling of a category with more values."""

CHUNK = 10_000
"""Number of texts that are encoded at a time."""

_HUGE = 1e150
"""Numbers are clipped to this magnitude, so that their squares stay finite."""


@dataclass(frozen=True)
class Number:
    """Standardisation of a column of numbers, truth values or dates."""

    kind: ClassVar[str] = "number"
    name: str
    median: float
    low: float
    high: float
    mean: float
    std: float
    tells_missing: bool
    style: str = "."
    """How text is read: the decimal mark with a unit, "words" for truth values, or the order of dates."""

    @classmethod
    def fit(cls, name: str, values: Array, style: str = ".") -> Number:
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
        return cls(name, *figures, tells_missing=len(known) < len(values), style=style)

    def check(self) -> None:
        """Raise a ``TypeError`` for values that ``fit`` cannot have produced."""
        figures = (self.median, self.low, self.high, self.mean, self.std)
        numbers = all(type(figure) in (int, float) for figure in figures)
        if not (isinstance(self.name, str) and numbers and self.std > 0):
            raise TypeError(f"the column {self.name!r} needs a name and numbers")
        if self.style not in ("words", *DATE_ORDERS) and not re.fullmatch(rf"[.,](?:{UNIT})?", self.style):
            raise TypeError(f"the column {self.name!r} is read as {self.style!r}")

    @property
    def feature_names(self) -> list[str]:
        return [self.name, f"{self.name} is missing"] if self.tells_missing else [self.name]

    def encode(self, column: pl.Series) -> NDArray[np.float32]:
        values = as_numbers(column, self.style)
        missing = np.isnan(values)
        filled = np.clip(np.where(missing, self.median, values), self.low, self.high)
        standardised = (filled - self.mean) / self.std
        return np.column_stack([standardised, missing] if self.tells_missing else [standardised]).astype(np.float32)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Category:
    """One-hot encoding of the frequent values of a column, null included, and one feature for all others."""

    kind: ClassVar[str] = "category"
    name: str
    values: list[str | None] = field(default_factory=list)
    folded: bool = False
    """Whether values that differ only in case and in spaces around them are the same, and written in lower case."""

    @classmethod
    def fit(cls, column: pl.Series) -> Category:
        plain = fold_spelling(column)
        folded = plain.n_unique() < column.n_unique()
        counts = (plain if folded else column).alias("value").value_counts()
        ordered = counts.sort("count", "value", descending=[True, False], nulls_last=True)
        return cls(column.name, ordered["value"].head(MAX_CATEGORIES).to_list(), folded)

    def check(self) -> None:
        """Raise a ``TypeError`` for values that ``fit`` cannot have produced."""
        named = isinstance(self.name, str) and isinstance(self.values, list)
        if (
            not named
            or type(self.folded) is not bool
            or not all(value is None or isinstance(value, str) for value in self.values)
        ):
            raise TypeError(f"the column {self.name!r} needs a name and a list of texts")
        if len(set(self.values)) < len(self.values):
            raise TypeError(f"the column {self.name!r} has a value twice")

    @property
    def feature_names(self) -> list[str]:
        shown = ("is missing" if value is None else f"= {value}" for value in self.values)
        return [f"{self.name} {text}" for text in (*shown, "is another")]

    def encode(self, column: pl.Series) -> NDArray[np.float32]:
        encoded = np.zeros((len(column), len(self.values) + 1), dtype=np.float32)
        text = fold_spelling(column) if self.folded else column.cast(pl.String)
        for place, value in enumerate(self.values):
            encoded[:, place] = (text.is_null() if value is None else (text == value).fill_null(False)).to_numpy()
        encoded[:, -1] = 1 - encoded[:, :-1].sum(axis=1)
        return encoded

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Text:
    """TF-IDF of a column of text, or of the spelling of a category with many values."""

    kind: ClassVar[str] = "text"
    name: str
    tfidf: Tfidf

    @classmethod
    def fit(cls, column: pl.Series) -> Text:
        return cls(column.name, Tfidf.fit(_distinct(column)))

    @classmethod
    def fit_spelling(cls, column: pl.Series) -> Text:
        return cls(column.name, Tfidf.fit(_distinct(column), kinds=["sequences"], size=SPELLING_FEATURES))

    def check(self) -> None:
        """Raise a ``TypeError`` for values that ``fit`` cannot have produced."""
        if not isinstance(self.name, str):
            raise TypeError(f"the column {self.name!r} needs a name")
        self.tfidf.check()

    @property
    def feature_names(self) -> list[str]:
        return [f"{self.name} text {place}" for place in range(self.tfidf.size)]

    def encode(self, column: pl.Series, progress: Progress | None = None) -> NDArray[np.float32]:
        texts, rows = _texts(column)
        chunks = tracked(_chunks(texts), f"encoding {self.name}", -(-len(texts) // CHUNK), progress)
        parts = [self.tfidf.dense(chunk) for chunk in chunks]
        return np.concatenate(parts)[rows] if parts else np.zeros((0, self.tfidf.size), np.float32)

    def encode_sparse(self, column: pl.Series) -> sparse.csr_matrix:
        """(N, terms) TF-IDF without the reduction."""
        texts, rows = _texts(column)
        return sparse.csr_matrix(sparse.vstack([self.tfidf.sparse(chunk) for chunk in _chunks(texts)]))[rows]

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, **asdict(self.tfidf)}

    @classmethod
    def from_json(cls, name: str, **content: Any) -> Text:
        return cls(name, Tfidf(**content))


@dataclass(frozen=True)
class EmbeddedText:
    """Embeddings of a column of text by an encoder, which is not part of what is stored."""

    kind: ClassVar[str] = "embedding"
    name: str
    embedding: Embedding

    @classmethod
    def fit(cls, column: pl.Series, encoder: NamedEncoder, progress: Progress | None = None) -> EmbeddedText:
        return cls(column.name, Embedding.fit(encoder.texts(_distinct(column), progress), encoder))

    def check(self) -> None:
        """Raise a ``TypeError`` for values that ``fit`` cannot have produced."""
        if not isinstance(self.name, str):
            raise TypeError(f"the column {self.name!r} needs a name")
        self.embedding.check()

    @property
    def feature_names(self) -> list[str]:
        return [f"{self.name} embedding {place}" for place in range(self.embedding.size)]

    def encode(self, column: pl.Series, progress: Progress | None = None) -> NDArray[np.float32]:
        texts, rows = _texts(column)
        encoder = self.embedding.at_hand(f"the column {self.name!r}", "text_encoder=, --text-encoder")
        return self.embedding.scaled(encoder.texts(texts, progress))[rows]

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, **self.embedding.to_json()}

    @classmethod
    def from_json(cls, name: str, **content: Any) -> EmbeddedText:
        return cls(name, Embedding(**content))

    def with_encoder(self, encoder: NamedEncoder) -> EmbeddedText:
        """The same encoding with its encoder."""
        return EmbeddedText(self.name, self.embedding.with_encoder(encoder))


Encoding = Number | Category | Text | EmbeddedText

_RESTORE: dict[str, Callable[..., Encoding]] = {
    "number": Number,
    "category": Category,
    "text": Text.from_json,
    "embedding": EmbeddedText.from_json,
}


def from_json(content: Mapping[str, Any], text_encoder: NamedEncoder | None = None) -> Encoding:
    """Restore an encoding from its kind and the result of ``to_json``; other content is a TypeError or KeyError."""
    restored = _RESTORE[content["kind"]](**{key: value for key, value in content.items() if key != "kind"})
    if isinstance(restored, EmbeddedText) and text_encoder is not None:
        restored = restored.with_encoder(text_encoder)
    restored.check()
    return restored


def as_numbers(column: pl.Series, style: str = ".") -> Array:
    """(N,) values of a column, NaN where missing; dates in microseconds, whatever the unit in the file.

    Args:
        column: Column of numbers, truth values, dates or text.
        style: How text is read, as in ``Number``.
    """
    if column.dtype in (pl.Categorical, pl.Enum):
        column = column.cast(pl.String)
    if column.dtype == pl.String:
        parse = parse_dates if style in DATE_ORDERS else parse_numbers
        parsed = parse_booleans(column) if style == "words" else parse(column, style)
        if parsed.strays and parsed.share == 0:
            raise DataError(
                f"The column {column.name!r} must hold numbers, but holds text: {str(parsed.stray)[:50]!r}."
            )
        column = parsed.values
    kind = column.dtype
    if kind in (pl.Date, pl.Datetime):
        column = column.dt.epoch("us")
    elif kind == pl.Duration:
        column = column.dt.total_microseconds()
    elif kind == pl.Time:
        column = column.cast(pl.Int64)
    elif not (kind.is_numeric() or kind in (pl.Boolean, pl.Null)):
        raise DataError(f"The column {column.name!r} must hold numbers, but holds {kind}.")
    values = column.cast(pl.Float64).fill_null(np.nan).to_numpy()
    return np.clip(values, -_HUGE, _HUGE)


def fold_spelling(column: pl.Series) -> pl.Series:
    """Text in lower case without spaces around it."""
    return column.cast(pl.String).str.strip_chars().str.to_lowercase()


def _distinct(column: pl.Series) -> list[str]:
    return column.drop_nulls().cast(pl.String).unique(maintain_order=True).to_list()


def _texts(column: pl.Series) -> tuple[list[str], NDArray[np.int64]]:
    """The distinct texts of a column, empty where missing, and the place of each row's text among them."""
    filled = column.cast(pl.String).fill_null("")
    numbered = filled.to_frame("text").with_columns(place=pl.col("text").rank("dense") - 1)
    return filled.unique().sort().to_list(), numbered["place"].to_numpy().astype(np.int64)


def _chunks(texts: list[str]) -> Iterator[list[str]]:
    return (texts[start : start + CHUNK] for start in range(0, len(texts), CHUNK))
