"""Files with checksums, so that damage is detected on reading."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from volmin.exceptions import DamagedFileError
from volmin.io.atomic import read_json, replace_file, write_json


def write_sealed_json(path: Path, content: Mapping[str, Any], files: Iterable[str] = ()) -> None:
    """Write a JSON file with checksums of its content and of ``files`` beside it."""
    seal = {
        "content": _digest(_canonical(content)),
        "files": {name: file_digest(path.with_name(name)) for name in files},
    }
    write_json(path, {**content, "seal": seal})


def read_sealed_json(path: Path, files: bool = False) -> dict[str, Any]:
    """Read a sealed JSON file and verify its checksum, and with ``files`` those of the files beside it.

    A file without a seal, as older versions wrote it, is accepted.
    """
    content = read_json(path)
    seal = content.pop("seal", None)
    if seal is None:
        return content
    checksum, digests = (seal.get("content"), seal.get("files")) if isinstance(seal, dict) else (None, None)
    if checksum != _digest(_canonical(content)) or not isinstance(digests, dict):
        raise DamagedFileError(f"{path} is damaged: its checksum is wrong. Delete it, and run the command again.")
    for name, expected in digests.items() if files else ():
        beside = path.with_name(name)
        if not beside.is_file() or file_digest(beside) != expected:
            raise DamagedFileError(
                f"{beside} is damaged or missing: it does not match its checksum in {path.name}. "
                f"Delete the folder {path.parent}, and run the command again."
            )
    return content


def file_digest(path: Path) -> str:
    """SHA-256 of a file in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _canonical(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True).encode()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def write_sealed_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically; its first line is the checksum of the rest."""
    with replace_file(path) as temporary:
        temporary.write_bytes(_digest(content).encode() + b"\n" + content)


def read_sealed_bytes(path: Path) -> bytes:
    """Read what ``write_sealed_bytes`` wrote and verify its checksum."""
    checksum, _, content = path.read_bytes().partition(b"\n")
    if checksum != _digest(content).encode():
        raise DamagedFileError(f"{path} is damaged: its checksum is wrong.")
    return content
