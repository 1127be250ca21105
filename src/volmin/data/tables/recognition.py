"""What a column holds: numbers, dates, truth values, categories, text, or nothing to learn from."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from volmin.data.encoders import NamedEncoder
from volmin.data.tables.columns import (
    MAX_CATEGORIES,
    Category,
    EmbeddedText,
    Encoding,
    Number,
    Text,
    as_numbers,
    fold_spelling,
)
from volmin.data.tables.labels import MIN_IDENTIFIERS
from volmin.data.tables.parsing import DATE_ORDERS, Parsed, parse_booleans, parse_dates, parse_numbers
from volmin.exceptions import DataError
from volmin.progress import Progress

TYPES = ("number", "date", *DATE_ORDERS, "boolean", "category", "text", "ignore")
"""Types that a user can set for a column; the orders of a date say how its text is read."""

MOST_STRAYS = 0.1
"""Largest share of values of a column of numbers or dates that may be something else."""

FEW_STRAYS = 3
"""Number of distinct other values up to which they may be half of the values: words for missing ones."""

FEWEST_OTHERS = 0.001
"""A column in which at most this share of the rows differs from the most frequent value is nearly constant."""

NO_WORDS = "text without words that occur twice"

_TRIED = 2000
"""Number of distinct values on which a way of reading is tried before it is applied to the whole column."""

_IDENTIFIER = re.compile(
    r"(?i:(?:^|[\W_])(?:ids?|[ug]uid|key|index|hash|nr|no|number|code|ref|sku|ean|gtin|upc|isbn|imei|ssn|phone)$)"
    r"|[a-z](?:I[dD]|N[ro])$"
)
_NO_SPACES = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}]"


@dataclass(frozen=True)
class ColumnUse:
    """What became of a column of a table.

    Attributes:
        name: Name of the column.
        kind: number, date, boolean, category, text, or ``left out``.
        note: How it was read, or why it was left out, in a few words.
        features: Number of features that it gave.
    """

    name: str
    kind: str
    note: str = ""
    features: int = 0


Fitted = tuple[str, str, list[Encoding]]
"""Kind, note and encodings of a column."""


def fit_column(
    column: pl.Series,
    type_: str | None = None,
    text_encoder: NamedEncoder | None = None,
    progress: Progress | None = None,
) -> tuple[ColumnUse, list[Encoding]]:
    """Recognise what a column holds and fit its encoding.

    Args:
        column: Column of a table.
        type_: One of ``TYPES``, to set what the column holds.
        text_encoder: NamedEncoder of text, in place of TF-IDF.
        progress: Callback for the progress of that encoder.
    """
    kind, note, encodings = _fitted(column, type_)
    if text_encoder is not None and (kind == "text" or note == NO_WORDS):
        kind, note = "text", f"embedded by {text_encoder.name}"
        encodings = _single(EmbeddedText.fit(column.cast(pl.String), text_encoder, progress))
    features = sum(len(encoding.feature_names) for encoding in encodings)
    return ColumnUse(column.name, kind, note, features), encodings


def _fitted(column: pl.Series, type_: str | None) -> Fitted:
    if type_ == "ignore":
        return _left_out("as asked")
    if column.dtype in (pl.Categorical, pl.Enum):
        column = column.cast(pl.String)
    if column.null_count() == len(column):
        return _left_out("empty")
    if type_ is not None:
        return _as_type(column, type_)
    if (others := _others(column)) is not None and others <= FEWEST_OTHERS * len(column):
        return _left_out("constant" if others == 0 else "nearly constant")
    if column.dtype == pl.String:
        return _from_text(column)
    dtype = column.dtype
    if not (dtype.is_numeric() or dtype.is_temporal() or dtype == pl.Boolean):
        return _left_out(f"holds {dtype}")
    return _numbers(column, "date" if dtype.is_temporal() else "boolean" if dtype == pl.Boolean else "number")


def _single(encoding: Encoding) -> list[Encoding]:
    return [encoding]


def _left_out(reason: str) -> Fitted:
    return "left out", reason, []


def _others(column: pl.Series) -> int | None:
    """Number of rows that differ from the most frequent value; None for values that cannot be counted."""
    if column.dtype.is_nested() or column.dtype == pl.Object:
        return None
    return len(column) - int(column.alias("value").value_counts()["count"].max())  # pyright: ignore[reportArgumentType]


def _from_text(column: pl.Series) -> Fitted:
    distinct = column.drop_nulls().unique(maintain_order=True)
    tried = distinct.head(_TRIED)
    if parse_booleans(distinct.head(20)).share == 1 and parse_booleans(distinct).share == 1:
        return _parsed(column, parse_booleans(column), "boolean")
    if parse_numbers(tried).share >= 1 - 2 * MOST_STRAYS:
        parsed = parse_numbers(column)
        if (parsed.share >= 1 - MOST_STRAYS or _words_among(parsed)) and not _codes(distinct):
            return _parsed(column, parsed, "number")
    if parse_dates(tried).share >= 1 - 2 * MOST_STRAYS:
        parsed = parse_dates(column)
        if parsed.share >= 1 - MOST_STRAYS or _words_among(parsed):
            return _parsed(column, parsed, "date")
    count = column.count()
    if _is_text(tried, len(distinct), count):
        return _text(column)
    if len(distinct) > max(MIN_IDENTIFIERS, 0.9 * count):
        return _left_out(f"identifies rows: {len(distinct):,} different values")
    return _category(column)


def _as_type(column: pl.Series, type_: str) -> Fitted:
    """The encoding of a column as the type that the user has set."""
    if type_ in ("category", "text"):
        column = column.cast(pl.String, strict=False)
        return _category(column) if type_ == "category" else _text(column)
    kind = "date" if type_ in DATE_ORDERS else type_
    if column.dtype != pl.String:
        return _numbers(column, kind, is_set=True)
    order = type_ if type_ in DATE_ORDERS else None
    readers: dict[str, Callable[[], Parsed]] = {
        "number": lambda: parse_numbers(column),
        "boolean": lambda: parse_booleans(column),
        "date": lambda: parse_dates(column, order),
    }
    parsed = readers[kind]()
    if parsed.share == 0:
        raise DataError(f"The column {column.name!r} cannot be read as {type_}: {str(parsed.stray)[:50]!r}.")
    return _parsed(column, parsed, kind, is_set=True)


def _parsed(column: pl.Series, parsed: Parsed, kind: str, is_set: bool = False) -> Fitted:
    """The encoding of text that was read as numbers, dates or truth values."""
    notes = []
    if kind == "number" and (example := _unusual(column)):
        notes.append(f"read from text such as {example!r}")
    if kind == "date":
        notes.append(parsed.style + (" (month/day/year would fit too)" if parsed.ambiguous else ""))
    if parsed.strays:
        notes.append(
            f"{parsed.strays:,} values not understood and taken as missing, such as {str(parsed.stray)[:30]!r}"
        )
    return _numbers(parsed.values, kind, parsed.style, notes, is_set)


def _unusual(column: pl.Series) -> str | None:
    """A value that is a number only for people, with separators or signs."""
    known = column.drop_nulls()
    odd = known.filter(known.str.contains(r"\d") & known.str.strip_chars().cast(pl.Float64, strict=False).is_null())
    return str(odd[0]).strip()[:20] if len(odd) else None


def _numbers(column: pl.Series, kind: str, style: str = ".", notes: Any = (), is_set: bool = False) -> Fitted:
    values = as_numbers(column)
    missing = float(np.isnan(values).mean())
    if missing == 1:
        return _left_out("empty")
    if kind == "number" and not is_set and (reason := _identifies(column, values)):
        return _left_out(reason)
    if missing:
        notes = [*notes, f"{missing:.1%} missing"]
    return kind, "; ".join(notes), [Number.fit(column.name, values, style)]


def _identifies(column: pl.Series, values: np.ndarray) -> str | None:
    """Why whole numbers only identify rows: they count them, or all differ in a column called so."""
    known = values[~np.isnan(values)]
    whole = column.dtype.is_integer() or bool((known == np.round(known)).all())
    if not whole or len(known) < MIN_IDENTIFIERS or len(np.unique(known)) < len(column):
        return None
    if known.max() - known.min() < 2 * len(known):
        return "numbers the rows"
    return "identifies rows: all values differ" if _IDENTIFIER.search(column.name) else None


def _words_among(parsed: Parsed) -> bool:
    """Whether a few words stand for missing values among many different numbers or dates."""
    many = parsed.values.drop_nulls().n_unique() > MAX_CATEGORIES
    return many and parsed.stray_kinds <= FEW_STRAYS and parsed.share >= 0.5


def _codes(distinct: pl.Series) -> bool:
    """Whether whole numbers are codes of one length with leading zeros, such as postal codes."""
    digits = distinct.str.strip_chars()
    codes = digits.filter(digits.str.contains(r"^\d+$"))
    return bool(len(codes) and codes.str.contains(r"^0\d").any() and codes.str.len_chars().n_unique() == 1)


def _is_text(tried: pl.Series, num_distinct: int, count: int) -> bool:
    """Whether values are phrases rather than names of categories or identifiers."""
    spaced = tried.str.strip_chars().str.count_matches(r"\s+") + 1
    dense = tried.str.count_matches(_NO_SPACES) / 3
    words = float(pl.DataFrame({"spaced": spaced, "dense": dense}).max_horizontal().mean())  # pyright: ignore[reportArgumentType]
    many = num_distinct > MAX_CATEGORIES or num_distinct > count / 2
    if words >= 3:
        return many
    if words < 2 or num_distinct <= max(MIN_IDENTIFIERS, count / 2):
        return False
    # Short titles are text if their words occur again; names of rows are not.
    found = tried.str.to_lowercase().str.split(" ").explode()
    return found.n_unique() < len(found) / 2


def _category(column: pl.Series) -> Fitted:
    category = Category.fit(column)
    spellings = column.n_unique()
    distinct = fold_spelling(column).n_unique() if category.folded else spellings
    if distinct <= MAX_CATEGORIES:
        note = f"{distinct} values" + (f" in {spellings} spellings" if distinct < spellings else "")
        return "category", note, [category]
    note = f"{distinct:,} values: the {MAX_CATEGORIES} most frequent, and the spelling of all"
    return "category", note, [category, Text.fit_spelling(column)]


def _text(column: pl.Series) -> Fitted:
    text = Text.fit(column)
    if not text.tfidf.size:
        return _left_out(NO_WORDS)
    terms = text.tfidf.num_terms
    return "text", f"TF-IDF of {terms:,} words and character sequences, reduced", [text]
