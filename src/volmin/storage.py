"""Files that are either complete or not there, and that tell when they were damaged."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout


class BusyError(OSError):
    """Another process is at work in a folder."""


class DamagedFileError(ValueError):
    """A file does not hold what was written to it."""


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
def only_process(folder: Path, seconds: float = 0) -> Iterator[None]:
    """Keep other processes out of a folder; where one is at work for longer than ``seconds``, a ``BusyError`` says so.

    The operating system lifts the lock of a process that dies, so a folder is never left locked. What such a process
    was writing when it died is cleared away.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / ".lock", timeout=seconds)
    try:
        lock.acquire()
    except Timeout:
        raise BusyError(f"Another process is at work in {folder}: wait for it to end, or stop it.") from None
    try:
        for left_over in folder.glob(".*.tmp"):
            left_over.unlink(missing_ok=True)
        yield
    finally:
        Path(lock.lock_file).unlink(missing_ok=True)
        lock.release()


def is_busy(folder: Path) -> bool:
    """Whether another process is at work in a folder."""
    try:
        with only_process(folder):
            return False
    except BusyError:
        return True


def write_text(path: Path, text: str) -> None:
    """Write a whole text file, or nothing."""
    with replace_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, content: Any) -> None:
    """Write a whole JSON file, or nothing; numbers that are not finite are refused."""
    write_text(path, json.dumps(content, indent=2, allow_nan=False) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file, or a ``DamagedFileError`` that says why there is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise DamagedFileError(f"{path} is damaged ({error}): delete it, and run the command anew.") from None
    if not isinstance(content, dict):
        raise DamagedFileError(f"{path} is damaged (no object): delete it, and run the command anew.")
    return content


def write_sealed_json(path: Path, content: Mapping[str, Any], files: Iterable[str] = ()) -> None:
    """Write a JSON file with checksums of its content and of ``files`` beside it."""
    seal = {
        "content": _digest(_canonical(content)),
        "files": {name: file_digest(path.with_name(name)) for name in files},
    }
    write_json(path, {**content, "seal": seal})


def read_sealed_json(path: Path, files: bool = False) -> dict[str, Any]:
    """The content of a sealed file, once its checksum, and maybe those of the files beside it, were found right.

    A file from before there were seals is taken as it is.
    """
    content = read_json(path)
    seal = content.pop("seal", None)
    if seal is None:
        return content
    checksum, digests = (seal.get("content"), seal.get("files")) if isinstance(seal, dict) else (None, None)
    if checksum != _digest(_canonical(content)) or not isinstance(digests, dict):
        raise DamagedFileError(f"{path} is damaged: its checksum is wrong. Delete it, and run the command anew.")
    for name, expected in digests.items() if files else ():
        beside = path.with_name(name)
        if not beside.is_file() or file_digest(beside) != expected:
            raise DamagedFileError(
                f"{beside} is damaged or missing: its checksum in {path.name} is another. "
                f"Delete the folder {path.parent}, and run the command anew."
            )
    return content


def file_digest(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _canonical(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True).encode()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def write_sealed_bytes(path: Path, content: bytes) -> None:
    """Write a whole file whose first line is the checksum of the rest."""
    with replace_file(path) as temporary:
        temporary.write_bytes(_digest(content).encode() + b"\n" + content)


def read_sealed_bytes(path: Path) -> bytes:
    """What ``write_sealed_bytes`` wrote, once its checksum was found right."""
    checksum, _, content = path.read_bytes().partition(b"\n")
    if checksum != _digest(content).encode():
        raise DamagedFileError(f"{path} is damaged: its checksum is wrong.")
    return content


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
