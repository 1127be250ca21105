"""Files of tables: CSV, Parquet and NPZ, read whole and checked."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from volmin.exceptions import DataError
from volmin.io.arrays import read_arrays

SUFFIXES = (".csv", ".tsv", ".parquet", ".npz")

_SEPARATORS = ",;\t|"
_MISSING_WORDS = ("", "na", "n/a", "#n/a", "nan", "null", "-", "?")
"""What stands for a missing number; in a column of text they are text."""


def read_table(path: str | Path) -> pl.DataFrame:
    """The rows of a table in file order, or a ``DataError`` that says what is wrong with the file.

    CSV files may be separated by commas, semicolons, tabs or bars, in UTF-8, UTF-16 or a Western 8-bit encoding; the
    first line names the columns. Arrays of an NPZ file must be of equal length; an array ``x`` of more than one
    dimension becomes the columns ``x0``, ``x1``, ..., as does a Parquet column of lists of equal length.
    """
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        raise DataError(f"{path} is not a table that can be read: give a file that ends in {', '.join(SUFFIXES)}.")
    if not path.is_file():
        raise DataError(f"There is no table at {path}.")
    try:
        frame = _READERS[path.suffix.lower()](path)
    except DataError:
        raise
    except (OSError, ValueError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise DataError(f"{path} cannot be read: {first_line(error)}") from None
    if frame.is_empty():
        raise DataError(f"{path} has no rows.")
    return frame


def _read_csv(path: Path) -> pl.DataFrame:
    frame, separator = read_text(path)
    return frame.select(_typed(column, decimal_comma=separator != ",") for column in frame)


def read_text(path: Path) -> tuple[pl.DataFrame, str]:
    """The cells of a CSV file as the text that they are, and the separator between them."""
    text, _ = decoded(path)
    separator = separator_of(path, text)
    header, blank, count = _checked_records(text, separator, path)
    # Types are found afterwards, over all rows: what a first thousand of them look like may not hold further down.
    try:
        frame = pl.read_csv(io.BytesIO(text.encode()), separator=separator, infer_schema=False, new_columns=header)
    except pl.exceptions.PolarsError as error:
        raise DataError(f"{path} cannot be read: {first_line(error)}") from None
    if frame.height != count:
        raise DataError(f"{path} has quotation marks that do not match: {count} or {frame.height} rows.")
    if blank:
        frame = frame.filter(~pl.int_range(pl.len()).is_in(blank))
    return frame, separator


def decoded(path: Path) -> tuple[str, str]:
    """The text of a file and its encoding: by its byte-order mark, else UTF-8, else as Western Windows or Latin-1."""
    content = path.read_bytes()
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        encodings = ("utf-16",)
    else:
        if b"\0" in content:
            raise DataError(f"{path} is not a text file.")
        encodings = ("utf-8-sig", "cp1252", "latin-1")
    for encoding in encodings:
        try:
            return content.decode(encoding), encoding
        except UnicodeDecodeError:
            continue
    raise DataError(f"{path} is not a text file in {encodings[0]}, which its first bytes announce.")


def separator_of(path: Path, text: str) -> str:
    """What separates the cells of a CSV file: by its name, else by its first lines."""
    return "\t" if path.suffix.lower() == ".tsv" else _sniffed(text)


def _sniffed(text: str) -> str:
    """The separator that splits the first lines into the most fields, all alike if possible; else a comma."""

    def score(separator: str) -> tuple[bool, int]:
        try:
            rows = csv.reader(io.StringIO(text[:1_000_000], newline=""), delimiter=separator)
            widths = [len(row) for row, _ in zip(rows, range(20), strict=False) if row]
        except csv.Error:
            return False, 0
        return len(set(widths)) == 1 and widths[0] > 1, widths[0] if widths else 0

    return max(_SEPARATORS, key=score)


def _checked_records(text: str, separator: str, path: Path) -> tuple[list[str], list[int], int]:
    """The names of the columns, which records are blank lines, and how many records there are.

    A record with too few or too many fields is an error here; a parser that fills it up would shift values silently.
    """
    records = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    blank, count = [], 0
    try:
        header = next(records, [])
        if not header:
            raise DataError(f"{path} is empty or begins with an empty line: its first line must name the columns.")
        repeated = sorted({name for name in header if header.count(name) > 1})
        if repeated:
            raise DataError(f"{path} has several columns called {', '.join(map(repr, repeated))}: rename them.")
        for record in records:
            if not record:
                blank.append(count)
            elif len(record) != len(header):
                raise DataError(
                    f"{path}, line {records.line_num}: {len(record)} fields, but the first line names {len(header)} "
                    "columns. Put text that holds the separator in quotation marks."
                )
            count += 1
    except csv.Error as error:
        raise DataError(f"{path}, line {records.line_num}: {error}.") from None
    return header, blank, count


def _typed(column: pl.Series, decimal_comma: bool) -> pl.Series:
    """A column of text in the type that all its values have: whole numbers, numbers, truth values, dates or text."""
    for kind in (pl.Int64, pl.Float64):
        if (parsed := as_numbers(column, kind, decimal_comma)).dtype == kind:
            return parsed
    known = column.replace("", None)
    lower = known.str.to_lowercase()
    if lower.is_in(["true", "false"]).drop_nulls().all():
        return (lower == "true").alias(column.name)
    if known.str.contains(r"^\d{4}-\d{2}-\d{2}").drop_nulls().all():
        for parse in (known.str.to_date, known.str.to_datetime):
            try:
                return parse(strict=True)
            except pl.exceptions.PolarsError:
                continue
    return known


def as_numbers(column: pl.Series, kind: type[pl.DataType], decimal_comma: bool = False) -> pl.Series:
    """Text as numbers, words for missing values as null; or the column as it was where any value is no number."""
    text = column.str.strip_chars()
    missing = text.is_null() | text.str.to_lowercase().is_in(_MISSING_WORDS).fill_null(True)
    if decimal_comma:
        text = text.str.replace(",", ".", literal=True)
    parsed = text.cast(kind, strict=False).set(missing, None)
    return parsed if parsed.null_count() == missing.sum() else column


def _read_npz(path: Path) -> pl.DataFrame:
    try:
        arrays = read_arrays(path)
    except ValueError as error:
        raise DataError(str(error)) from None
    lengths = {name: len(array) if array.ndim else None for name, array in arrays.items()}
    if len(set(lengths.values())) != 1 or None in lengths.values():
        listed = ", ".join(f"{name} {array.shape}" for name, array in arrays.items()) or "none"
        raise DataError(f"The arrays of {path} must have one entry per row each, but there are: {listed}.")
    columns = [column for name, array in arrays.items() for column in _array_columns(name, array)]
    if len(dict(columns)) < len(columns):
        raise DataError(f"{path} has several columns of one name once its arrays are split: rename an array.")
    return pl.DataFrame(dict(columns))


def _array_columns(name: str, array: NDArray[Any]) -> Iterator[tuple[str, NDArray[Any]]]:
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8", "replace")
    if array.dtype.kind in "cV":
        raise DataError(f"The array {name!r} holds {array.dtype}, which cannot be columns of a table.")
    columns = array.reshape(len(array), -1).T
    yield from zip(_part_names(name, len(columns)), columns, strict=True)


def _part_names(name: str, count: int) -> list[str]:
    """Names of the columns that an array of ``count`` values per row becomes; a single one keeps its name."""
    return [name] if count == 1 else [f"{name}{place}" for place in range(count)]


def _read_parquet(path: Path) -> pl.DataFrame:
    frame = pl.read_parquet(path)
    for name, kind in frame.schema.items():
        if isinstance(kind, pl.List | pl.Array) and (width := _width(frame[name])):
            lists = frame[name] if isinstance(kind, pl.List) else frame[name].arr.to_list()
            parts = [lists.list.get(part).alias(called) for part, called in enumerate(_part_names(name, width))]
            place = frame.columns.index(name)
            frame = pl.DataFrame([*frame.get_columns()[:place], *parts, *frame.get_columns()[place + 1 :]])
    return frame


def _width(column: pl.Series) -> int:
    """How many numbers every list of a column holds; 0 where that differs or they are no numbers."""
    if column.dtype == pl.Array:
        column = column.arr.to_list()
    lengths = column.list.len().unique()
    inner = getattr(column.dtype, "inner", None)
    return int(lengths[0]) if len(lengths) == 1 and lengths[0] and inner is not None and inner.is_numeric() else 0


def first_line(error: BaseException) -> str:
    """What an error says, without the advice that libraries add for programmers."""
    return (str(error).strip() or type(error).__name__).split("\n")[0]


_READERS: dict[str, Callable[[Path], pl.DataFrame]] = {
    ".csv": _read_csv,
    ".tsv": _read_csv,
    ".parquet": _read_parquet,
    ".npz": _read_npz,
}
