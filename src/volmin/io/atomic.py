"""Text and JSON files that are written whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from volmin.exceptions import DamagedFileError


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
