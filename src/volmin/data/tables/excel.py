"""Excel workbooks (.xlsx): the first sheet as a table, and copies with some cells changed."""

from __future__ import annotations

import datetime
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl

from volmin.exceptions import DataError
from volmin.io.expansion import check_archive


def read_excel(path: Path) -> pl.DataFrame:
    """The first sheet, whose first row names the columns; empty rows are left out."""
    frame, _ = _sheet(path)
    return frame


def write_excel(path: Path, out: Path, column: str, donors: Mapping[int, int]) -> None:
    """Copy a workbook with some cells of a column replaced by other cells of it."""
    import openpyxl

    frame, rows = _sheet(path)
    place = frame.columns.index(column) + 1
    with _readable(path), path.open("rb") as file:
        book = openpyxl.load_workbook(file)
        sheet = book.worksheets[0]
        values = {row: sheet.cell(rows[donor], place).value for row, donor in donors.items()}
        for row, value in values.items():
            sheet.cell(rows[row], place, value)
        book.save(out)


def _sheet(path: Path) -> tuple[pl.DataFrame, list[int]]:
    """The table of the first sheet, and the number of each of its rows in the sheet, from 1."""
    import openpyxl

    with _readable(path), path.open("rb") as file:
        check_archive(path)
        book = openpyxl.load_workbook(file, read_only=True, data_only=True)
        sheet = book.worksheets[0]
        first = next(sheet.iter_rows(max_row=1, values_only=True), ())
        header = ["" if name is None else str(name) for name in first]
        while header and not header[-1]:
            header.pop()
        cells = [
            (number, values)
            for number, values in enumerate(
                sheet.iter_rows(min_row=2, max_col=max(1, len(header)), values_only=True), start=2
            )
            if any(value not in (None, "") for value in values)
        ]
        book.close()
    if not header or "" in header:
        raise DataError(f"The first row of the first sheet of {path} must name every column.")
    if repeated := sorted({name for name in header if header.count(name) > 1}):
        raise DataError(f"{path} has several columns called {', '.join(map(repr, repeated))}: rename them.")
    columns = [_column(name, [values[place] for _, values in cells]) for place, name in enumerate(header)]
    return pl.DataFrame(columns), [number for number, _ in cells]


def _column(name: str, values: list[Any]) -> pl.Series:
    """Cells of one type as they are, and others as text."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int, float}:
        return pl.Series(name, values, dtype=pl.Float64 if float in kinds else pl.Int64)
    if kinds in ({bool}, {datetime.datetime}, {datetime.date}, {datetime.time}):
        return pl.Series(name, values)
    return pl.Series(name, [None if value is None else str(value) for value in values], dtype=pl.String)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Convert every error of the reader, to which a damaged workbook can lead, to a ``DataError``."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about styles and extensions that are not needed
            yield
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).split("\n")[0]
        raise DataError(f"{path} cannot be read as an Excel workbook: {reason}") from None
