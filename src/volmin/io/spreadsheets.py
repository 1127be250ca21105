"""CSV files without cells that a spreadsheet program would evaluate."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from volmin.io.atomic import write_text


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a CSV file atomically, with every cell made ``spreadsheet_safe``."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([spreadsheet_safe(cell) for cell in header])
    writer.writerows([spreadsheet_safe(cell) for cell in row] for row in rows)
    write_text(path, buffer.getvalue())


def spreadsheet_safe(cell: Any) -> str:
    """Text of a cell, with an apostrophe before a formula (``=1+2``, ``@SUM``); numbers are unchanged."""
    text = str(cell)
    formula = text[:1] in ("=", "+", "-", "@", "\t", "\r", "\n") and not _NUMBER.fullmatch(text)
    return f"'{text}" if formula else text


_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?")
