"""Reading of files as tables: CSV, JSON lines, Parquet, Feather, Excel and NPZ."""

from __future__ import annotations

import csv
import io
import re
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import polars as pl

from volmin._typing import AnyArray
from volmin.data.tables.excel import read_excel
from volmin.exceptions import DataError
from volmin.io.arrays import read_arrays
from volmin.io.expansion import expanded

SUFFIXES = (
    ".csv", ".tsv", ".txt", ".gz", ".zst", ".jsonl", ".ndjson", ".parquet", ".feather", ".arrow", ".xlsx", ".npz",
)  # fmt: skip
"""Endings of files that may be tables; .gz and .zst stand for compressed CSV and JSON lines."""

_SEPARATORS = ",;\t|"
_MISSING_WORDS = ("", "na", "n/a", "#n/a", "nan", "null", "-", "?")
"""Words for a missing number, in lower case; in a text column they are ordinary text."""


def read_table(path: str | Path) -> pl.DataFrame:
    """Read the rows of a table in file order; an unreadable file is a ``DataError``.

    The content decides about the format, not the name of the file. CSV and JSON lines may be compressed by gzip or
    zstd; of an Excel workbook the first sheet is read. CSV files may be separated by commas, semicolons, tabs or bars,
    in UTF-8, UTF-16 or a Western 8-bit encoding; the first line names the columns. The arrays of an NPZ file must have
    equal lengths. An array ``x`` of several dimensions becomes the columns ``x0``, ``x1``, ..., as does a column of
    lists of equal length.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"There is no table at {path}.")
    try:
        frame = _READERS[format_of(path)](path)
    except DataError:
        raise
    except (OSError, ValueError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise DataError(f"{path} cannot be read: {first_line(error)}") from None
    if frame.is_empty():
        raise DataError(f"{path} has no rows.")
    return frame


def format_of(path: Path) -> str:
    """Format of a table by its content: csv, jsonl, parquet, feather, xlsx or npz."""
    with path.open("rb") as file:
        start = file.read(8)
    if start.startswith(b"PK"):
        try:
            with zipfile.ZipFile(path) as archive:
                return "xlsx" if "xl/workbook.xml" in archive.namelist() else "npz"
        except zipfile.BadZipFile:
            return "xlsx" if path.suffix.lower() == ".xlsx" else "npz"
    for mark, name in ((b"PAR1", "parquet"), (b"ARROW1", "feather")):
        if start.startswith(mark):
            return name
    # An empty or damaged file is read as what its name says, so that the error names that format.
    by_name = {".parquet": "parquet", ".feather": "feather", ".arrow": "feather", ".xlsx": "xlsx", ".npz": "npz"}
    if path.suffix.lower() in by_name:
        return by_name[path.suffix.lower()]
    named = {suffix.lower() for suffix in path.suffixes}
    first = expanded(path)[:1000].removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    return "jsonl" if named & {".jsonl", ".ndjson"} or first == b"{" else "csv"


def _read_csv(path: Path) -> pl.DataFrame:
    frame, separator = read_cells(path)
    return frame.select(_typed(column, _has_decimal_commas(column, separator)) for column in frame)


def _has_decimal_commas(column: pl.Series, separator: str) -> bool:
    """Whether commas in numbers are decimal marks; three digits after one mean thousands, except between semicolons."""
    if separator in ",;":
        return separator == ";"
    return bool(column.str.contains(r"^\s*[+-]?(?:0,\d+|\d+,(?:\d{1,2}|\d{4,}))\s*$").any())


def read_cells(path: Path) -> tuple[pl.DataFrame, str]:
    """Read the cells of a CSV file as text, with the separator between them."""
    text, _ = decoded(path)
    separator = separator_of(path, text)
    _refuse_other_text(text, path)
    header, blank, count = _checked_records(text, separator, path)
    # Types are inferred afterwards from all rows, since later rows may not have the type of the first ones.
    end = "\n" if "\n" in text else "\r"
    try:
        frame = pl.read_csv(
            io.BytesIO(text.encode()), separator=separator, infer_schema=False, new_columns=header, eol_char=end
        )
    except pl.exceptions.PolarsError as error:
        raise DataError(f"{path} cannot be read: {first_line(error)}") from None
    if frame.height != count:
        raise DataError(f"{path} has quotation marks that do not match: {count} or {frame.height} rows.")
    if blank:
        frame = frame.filter(~pl.int_range(pl.len()).is_in(blank))
    return frame, separator


def _refuse_other_text(text: str, path: Path) -> None:
    start = text[:1000].lstrip()
    if re.match(r"\[\s*[\[{]", start):
        raise DataError(f"{path} holds a JSON array: write JSON lines, with one object on each line.")
    if re.match(r"sep=.[\r\n]", start):
        raise DataError(f"{path} begins with Excel's line {start[:5]!r}: delete it, the separator is recognised.")


def decoded(path: Path) -> tuple[str, str]:
    """Text of a file and its encoding: by the byte-order mark, else UTF-8, else Windows-1252 or Latin-1."""
    content = expanded(path)
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
    raise DataError(f"{path} is not a text file in {encodings[0]}, although its byte-order mark says so.")


def separator_of(path: Path, text: str) -> str:
    """Separator of a CSV file, by its name or else by its first lines."""
    return "\t" if ".tsv" in (suffix.lower() for suffix in path.suffixes) else _sniffed(text)


def _sniffed(text: str) -> str:
    """The separator that splits the first lines into most fields, preferably equally many in each; a comma on a tie."""

    def score(separator: str) -> tuple[bool, int]:
        try:
            rows = csv.reader(io.StringIO(text[:1_000_000], newline=""), delimiter=separator)
            widths = [len(row) for row, _ in zip(rows, range(20), strict=False) if row]
        except csv.Error:
            return False, 0
        return len(set(widths)) == 1 and widths[0] > 1, widths[0] if widths else 0

    return max(_SEPARATORS, key=score)


def _checked_records(text: str, separator: str, path: Path) -> tuple[list[str], list[int], int]:
    """Names of the columns, numbers of the blank records, and the number of all records.

    A record with too few or too many fields is an error, since a parser that pads it would shift values silently.
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
    """A text column in the type of all its values: integers, floats, booleans, dates or text."""
    if column.str.contains(r"^0\d+$").any():
        return column.replace("", None)  # codes, whose leading zeros are part of them
    for kind in (pl.Int64, pl.Float64):
        if (parsed := parsed_as(column, kind, decimal_comma)).dtype == kind:
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


def parsed_as(column: pl.Series, kind: type[pl.DataType], decimal_comma: bool = False) -> pl.Series:
    """Parse text as numbers, missing-value words as null; the column is unchanged if any value is not a number."""
    text = column.str.strip_chars()
    missing = text.is_null() | text.str.to_lowercase().is_in(_MISSING_WORDS).fill_null(True)
    if decimal_comma:
        text = text.str.replace(",", ".", literal=True)
    parsed = text.cast(kind, strict=False).set(missing, None)
    return parsed if parsed.null_count() == missing.sum() else column


def _read_npz(path: Path) -> pl.DataFrame:
    arrays = read_arrays(path)
    lengths = {name: len(array) if array.ndim else None for name, array in arrays.items()}
    if len(set(lengths.values())) != 1 or None in lengths.values():
        listed = ", ".join(f"{name} {array.shape}" for name, array in arrays.items()) or "none"
        raise DataError(f"The arrays of {path} must have one entry per row each, but they are: {listed}.")
    columns = [column for name, array in arrays.items() for column in _array_columns(name, array)]
    if len(dict(columns)) < len(columns):
        raise DataError(f"{path} has several columns of the same name once its arrays are split: rename an array.")
    return pl.DataFrame(dict(columns))


def _array_columns(name: str, array: AnyArray) -> Iterator[tuple[str, AnyArray]]:
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8", "replace")
    if array.dtype.kind in "cV":
        raise DataError(f"The array {name!r} holds {array.dtype}, which cannot be columns of a table.")
    columns = array.reshape(len(array), -1).T
    yield from zip(_part_names(name, len(columns)), columns, strict=True)


def _part_names(name: str, count: int) -> list[str]:
    """Names of the columns of an array with ``count`` values per row; a single column keeps the array's name."""
    return [name] if count == 1 else [f"{name}{place}" for place in range(count)]


def _read_parquet(path: Path) -> pl.DataFrame:
    return _split_lists(pl.read_parquet(path))


def _read_feather(path: Path) -> pl.DataFrame:
    return _split_lists(pl.read_ipc(io.BytesIO(path.read_bytes())))


def _read_json_lines(path: Path) -> pl.DataFrame:
    content = expanded(path)
    if not content.strip():
        raise DataError(f"{path} is empty.")
    try:
        frame = pl.read_ndjson(io.BytesIO(content), infer_schema_length=None)
    except RuntimeError as error:  # what polars 1.9 raises for a damaged line
        raise DataError(f"{path} cannot be read: {first_line(error)}") from None
    return _split_lists(frame)


def _split_lists(frame: pl.DataFrame) -> pl.DataFrame:
    """Columns of lists of numbers of equal length as a column for each place."""
    for name, kind in frame.schema.items():
        if isinstance(kind, pl.List | pl.Array) and (width := _width(frame[name])):
            lists = frame[name] if isinstance(kind, pl.List) else frame[name].arr.to_list()
            parts = [lists.list.get(part).alias(called) for part, called in enumerate(_part_names(name, width))]
            place = frame.columns.index(name)
            frame = pl.DataFrame([*frame.get_columns()[:place], *parts, *frame.get_columns()[place + 1 :]])
    return frame


def _width(column: pl.Series) -> int:
    """Common length of a column's lists of numbers; 0 if it varies or the lists hold something else."""
    if column.dtype == pl.Array:
        column = column.arr.to_list()
    lengths = column.list.len().unique()
    inner = getattr(column.dtype, "inner", None)
    return int(lengths[0]) if len(lengths) == 1 and lengths[0] and inner is not None and inner.is_numeric() else 0


def first_line(error: BaseException) -> str:
    """First line of an error's message, without the advice for programmers that libraries add."""
    return (str(error).strip() or type(error).__name__).split("\n")[0]


_READERS: dict[str, Callable[[Path], pl.DataFrame]] = {
    "csv": _read_csv,
    "jsonl": _read_json_lines,
    "parquet": _read_parquet,
    "feather": _read_feather,
    "xlsx": read_excel,
    "npz": _read_npz,
}
