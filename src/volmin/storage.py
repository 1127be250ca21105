"""Files that are either complete or not there."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout


class BusyError(OSError):
    """Another process is at work in a folder."""


@contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """A temporary name to write to; it takes the place of ``path`` once it is complete and on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def only_process(folder: Path) -> Iterator[None]:
    """Keep other processes out of a folder; where one is at work already, a ``BusyError`` says so.

    The operating system lifts the lock of a process that dies, so a folder is never left locked.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / ".lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise BusyError(f"Another process is at work in {folder}: wait for it to end, or stop it.") from None
    try:
        yield
    finally:
        Path(lock.lock_file).unlink(missing_ok=True)
        lock.release()


def write_text(path: Path, text: str) -> None:
    """Write a whole text file, or nothing."""
    with replace_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, content: Any) -> None:
    """Write a whole JSON file, or nothing; numbers that are not finite are refused."""
    write_text(path, json.dumps(content, indent=2, allow_nan=False) + "\n")


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a whole CSV file, or nothing; no cell of it is taken for a formula by a spreadsheet."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([spreadsheet_safe(cell) for cell in header])
    writer.writerows([spreadsheet_safe(cell) for cell in row] for row in rows)
    write_text(path, buffer.getvalue())


def spreadsheet_safe(cell: Any) -> str:
    """A cell's text, with an apostrophe before what a spreadsheet would compute (``=1+2``, ``@SUM``); numbers stay."""
    text = str(cell)
    formula = text[:1] in ("=", "+", "-", "@", "\t", "\r", "\n") and not _NUMBER.fullmatch(text)
    return f"'{text}" if formula else text


_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?")
