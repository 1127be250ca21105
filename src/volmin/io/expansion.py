"""Compressed files: limits that refuse small files which expand to more than may fit into memory."""

from __future__ import annotations

import gzip
import zipfile
import zlib
from pathlib import Path
from typing import Any

import zstandard

from volmin.exceptions import DataError

ALWAYS_EXPANDED, MOST_EXPANDED = 1_000_000_000, 100
"""Bytes that any file may expand to, and the largest expansion factor beyond that."""

GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_BLOCK = 1 << 20


def check_archive(path: Path, advice: str = "") -> None:
    """Refuse a zip archive that expands too much."""
    with zipfile.ZipFile(path) as archive:
        whole = sum(member.file_size for member in archive.infolist())
    if whole > _limit(path):
        size = path.stat().st_size
        raise DataError(f"it expands to {whole / 1e9:.1f} GB, {whole // size:,} times its size{advice}")


def expanded(path: Path) -> bytes:
    """Content of a file, decompressed if it is compressed by gzip or zstd."""
    with path.open("rb") as file:
        start = file.read(4)
        file.seek(0)
        try:
            if start.startswith(GZIP):
                with gzip.GzipFile(fileobj=file) as stream:
                    return _read(stream, path)
            if start == ZSTD:
                with zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True) as stream:
                    return _read(stream, path)
        except (EOFError, OSError, zlib.error, zstandard.ZstdError) as error:
            raise DataError(f"{path} is damaged and cannot be decompressed: {error}.") from None
        return file.read()


def compressed_like(path: Path, content: bytes) -> bytes:
    """``content`` compressed as the file at ``path`` is."""
    with path.open("rb") as file:
        start = file.read(4)
    if start.startswith(GZIP):
        return gzip.compress(content, mtime=0)
    return zstandard.ZstdCompressor().compress(content) if start == ZSTD else content


def _read(stream: Any, path: Path) -> bytes:
    limit, blocks, whole = _limit(path), [], 0
    while block := stream.read(_BLOCK):
        blocks.append(block)
        whole += len(block)
        if whole > limit:
            raise DataError(
                f"{path} expands to more than {limit / 1e9:.1f} GB; decompress it first if that is intended."
            )
    return b"".join(blocks)


def _limit(path: Path) -> int:
    return max(ALWAYS_EXPANDED, MOST_EXPANDED * path.stat().st_size)
