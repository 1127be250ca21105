"""Atomic writes: a file is replaced as a whole or left as it was."""

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
    """Give a temporary path to write to, and move it to ``path`` once it is complete and on the disk."""
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
    """Write a text file atomically."""
    with replace_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file atomically; numbers must be finite."""
    write_text(path, json.dumps(content, indent=2, allow_nan=False) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Read the object in a JSON file; any other content is a ``DamagedFileError``."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise DamagedFileError(f"{path} is damaged ({error}): delete it, and run the command again.") from None
    if not isinstance(content, dict):
        raise DamagedFileError(f"{path} is damaged (not a JSON object): delete it, and run the command again.")
    return content
