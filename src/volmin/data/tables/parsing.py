"""Values in text: numbers, dates and truth values as people write them, and words for missing values."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from volmin.data.tables.units import UNIT, relative_sizes

MISSING_WORDS = (
    "", "-", "--", "---", "–", "—", "?", "??", ".", "..", "...", "…", "na", "n/a", "n.a.", "n.a", "n. a.", "#n/a",
    "#na", "<na>", "nan", "nat", "null", "none", "nil", "(null)", "(none)", "(blank)", "unknown", "unk", "missing",
    "not available", "not applicable", "not known", "not recorded", "no data", "undefined", "tbd", "n/d", "n.d.", "nd",
    "s/d", "k.a.", "k. a.", "keine angabe", "unbekannt", "#value!", "#div/0!", "#ref!", "#num!", "#name?",
    "#null!",
)  # fmt: skip
"""Words for a missing number, date or truth value, in lower case; in categories and text they are ordinary values."""

TRUE_WORDS = ("true", "yes", "y", "t", "on", "ja", "oui", "si", "sí", "wahr", "vrai", "1")
FALSE_WORDS = ("false", "no", "n", "f", "off", "nein", "non", "falsch", "faux", "0")

_CURRENCIES = "usd|eur|gbp|chf|jpy|cny|inr|cad|aud|sek|nok|dkk|pln|brl|mxn|rub|zar|krw|us|rs"
_SPACES = r"[\s\u{a0}\u{202f}'’]"
_BOUND = r"^(?:[<>≤≥~≈±]=?|ca\.?\s)\s*"
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_TIME = (
    r"(?:(?:t|[\s,]+)(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:[.,]\d+)?)?\s*(?P<half>[ap]m)?"
    r"\s*(?:z|utc|[+-]\d{2}:?\d{2})?)?$"
)
_MONTH = r"(?P<month>\d{1,2}|[a-z]{3,9})"
DATE_ORDERS = {
    "year-month-day": r"^(?P<year>\d{4})[-/.\s]" + _MONTH + r"[-/.\s](?P<day>\d{1,2})",
    "day/month/year": r"^(?P<day>\d{1,2})(?:st|nd|rd|th)?[-/.\s]+" + _MONTH + r"[-/.,\s]+(?P<year>\d{4}|\d{2})",
    "month/day/year": r"^" + _MONTH + r"[-/.\s]+(?P<day>\d{1,2})(?:st|nd|rd|th)?[-/.,\s]+(?P<year>\d{4}|\d{2})",
}
"""Patterns of dates in lower case. Of two orders that read equally many values, the first is taken."""

CENTURY_BREAK = 70
"""Years of two digits are in the 2000s if they are smaller, and in the 1900s otherwise."""


@dataclass(frozen=True)
class Parsed:
    """Values read from text.

    Attributes:
        values: (N,) values, null where the text is missing or not understood.
        missing: Number of texts that are null or a word for a missing value.
        strays: Number of other texts that were not understood.
        stray: One of them, for a message.
        stray_kinds: Number of distinct texts among them.
        style: How the texts were read, to read others alike: the decimal mark, or the order of a date.
        ambiguous: Whether another style reads as many of the texts.
    """

    values: pl.Series
    missing: int
    strays: int
    stray: str | None
    stray_kinds: int
    style: str
    ambiguous: bool = False

    @property
    def share(self) -> float:
        """Share of the texts that were understood, among those that are not missing."""
        given = len(self.values) - self.missing
        return 1 - self.strays / given if given else 0.0


def is_missing(text: pl.Series) -> pl.Series:
    """Mask of the texts that are null or a word for a missing value."""
    words = text.str.strip_chars().str.to_lowercase().is_in(list(MISSING_WORDS))
    return text.is_null() | words.fill_null(True)


def parse_numbers(text: pl.Series, decimal: str | None = None) -> Parsed:
    """Read numbers with thousands separators, signs of currencies and per cent, bounds ("< 0.6"), and units.

    A column has one unit, or several of one quantity, which are converted.

    Args:
        text: Column of text.
        decimal: Decimal mark, "." or ",", followed by the unit in which to read, where there are several; by default
            the mark that reads more values.
    """
    missing = is_missing(text)
    plain, sizes, unit = _in_one_unit(_without_signs(text.set(missing, None)), decimal[1:] if decimal else "")
    found = {mark: _cast(plain, mark) for mark in ([decimal[0]] if decimal else [".", ","])}
    best = max(found, key=lambda mark: found[mark].count())
    values = found[best] if sizes is None else found[best] * sizes
    return _parsed(text, values, missing, best + unit)


def parse_dates(text: pl.Series, order: str | None = None) -> Parsed:
    """Read dates, with or without a time, in one order of day, month and year for the whole column.

    Args:
        text: Column of text.
        order: One of ``DATE_ORDERS``; by default the one that reads most values.
    """
    missing = is_missing(text)
    lower = text.set(missing, None).str.strip_chars().str.to_lowercase()
    found = {name: _dates(lower, DATE_ORDERS[name]) for name in ([order] if order else DATE_ORDERS)}
    best = max(found, key=lambda name: found[name].count())
    others = [values for name, values in found.items() if name != best]
    ambiguous = any(values.count() == found[best].count() and not values.equals(found[best]) for values in others)
    return _parsed(text, found[best], missing, best, ambiguous)


def parse_booleans(text: pl.Series) -> Parsed:
    """Read truth values in words: yes and no, true and false, and the like."""
    missing = is_missing(text)
    lower = text.set(missing, None).str.strip_chars().str.to_lowercase()
    known = pl.Series(text.name, [None], dtype=pl.Boolean).new_from_index(0, len(text))
    values = known.set(lower.is_in(list(TRUE_WORDS)).fill_null(False), True)
    values = values.set(lower.is_in(list(FALSE_WORDS)).fill_null(False), False)
    return _parsed(text, values, missing, "words")


def _parsed(text: pl.Series, values: pl.Series, missing: pl.Series, style: str, ambiguous: bool = False) -> Parsed:
    strays = values.is_null() & ~missing
    first = strays.arg_max() if strays.any() else None
    return Parsed(
        values.alias(text.name),
        int(missing.sum()),
        int(strays.sum()),
        None if first is None else text[first],
        text.filter(strays).n_unique(),
        style,
        ambiguous,
    )


def _without_signs(text: pl.Series) -> pl.Series:
    """Texts without bounds, currencies, per cent signs, and spaces between digits."""
    plain = text.str.strip_chars().str.to_lowercase().str.replace_all("[−–]", "-").str.replace(_BOUND, "")
    plain = plain.str.replace_all(r"[\p{Sc}%‰]", "").str.replace(rf"^([+-]?)\s*(?:{_CURRENCIES})\b", "$1")
    plain = plain.str.replace(rf"([^a-z])(?:{_CURRENCIES})\s*$", "$1").str.strip_chars()
    plain = plain.str.replace(r"^\(\s*(.*?)\s*\)$", "-$1")  # negative amounts in accounts
    for _ in range(2):  # matches do not overlap: 1 234 567 needs two passes
        plain = plain.str.replace_all(rf"(\d){_SPACES}(\d{{3}})", "$1$2")
    return plain.str.replace_all(r"^([+-]?)\s+", "$1").str.strip_chars()


def _in_one_unit(plain: pl.Series, wanted: str) -> tuple[pl.Series, pl.Series | None, str]:
    """Texts without units, the size of each one's unit relative to that in which to read, and that one.

    Units other than the most frequent one are left in place unless they measure the same quantity.

    Args:
        plain: Texts from ``_without_signs``.
        wanted: Unit in which to read; empty for the most frequent one.
    """
    units = plain.str.extract(rf"^[^a-z/]*\d[.,]?\s*({UNIT})$").alias("unit")
    counts = units.drop_nulls().value_counts(sort=True)
    if not len(counts):
        return plain, None, wanted
    sizes, base = relative_sizes(counts["unit"].to_list(), counts["count"].to_list(), wanted)
    known = units.is_in(list(sizes)).fill_null(False)
    bare = plain.to_frame("text").with_columns(unit=units.set(~known, "").fill_null(""))
    texts = bare.select(pl.col("text").str.strip_suffix(pl.col("unit")).str.strip_chars()).to_series()
    factors = units.replace_strict(sizes, default=1.0, return_dtype=pl.Float64)
    return texts, None if set(sizes.values()) == {1.0} else factors, base


def _cast(plain: pl.Series, decimal: str) -> pl.Series:
    thousands = "," if decimal == "." else "."
    d, t = (rf"\{mark}" for mark in (decimal, thousands))
    shape = rf"^[+-]?(?:[1-9]\d{{0,2}}(?:{t}\d{{3}})+|\d+)?(?:{d}\d*)?(?:e[+-]?\d+)?$"
    valid = plain.str.contains(shape).fill_null(False)
    bare = plain.str.replace_all(thousands, "", literal=True).str.replace(decimal, ".", literal=True)
    return bare.set(~valid, None).cast(pl.Float64, strict=False)


def _dates(lower: pl.Series, pattern: str) -> pl.Series:
    """Dates in one order as datetimes; null where a text has another form or there is no such day."""
    parts = lower.str.extract_groups(pattern + _TIME).struct.unnest()
    month = parts["month"].str.slice(0, 3).replace({name: str(1 + place) for place, name in enumerate(_MONTHS)})
    year = parts["year"].cast(pl.Int32, strict=False)
    short = (parts["year"].str.len_chars() == 2).fill_null(False)
    century = year.to_frame("year").select(
        pl.when(short).then(pl.col("year") + pl.when(pl.col("year") < CENTURY_BREAK).then(2000).otherwise(1900))
        .otherwise(pl.col("year"))
    )["year"]  # fmt: skip
    hour = parts["hour"].cast(pl.Int32, strict=False)
    if parts["half"].count():
        afternoon = (parts["half"] == "pm").fill_null(False)
        hour = hour.set((parts["half"].is_not_null()) & (hour == 12), 0)
        hour = hour.to_frame("hour").select(pl.col("hour") + pl.Series(afternoon).cast(pl.Int32) * 12)["hour"]
    clock = pl.DataFrame(
        {
            "date": century.cast(pl.String).str.zfill(4) + "-" + month + "-" + parts["day"],
            "time": hour.fill_null(0).cast(pl.String)
            + ":"
            + parts["minute"].fill_null("0")
            + ":"
            + parts["second"].fill_null("0"),
        }
    )
    joined = clock.select((pl.col("date") + " " + pl.col("time")).str.to_datetime("%Y-%m-%d %H:%M:%S", strict=False))
    return joined.to_series()
