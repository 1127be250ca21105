"""Data sets in four IDX files, gzipped or not: the format of MNIST and Fashion-MNIST."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from volmin.data.dataset import Part, class_numbers
from volmin.data.sources.download import cache_dir, download
from volmin.exceptions import DataError
from volmin.progress import Progress

_MOST_BYTES = 400_000_000
"""Largest accepted size of a decompressed file; the official ones hold 47 MB."""
_FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


def download_idx(name: str, source: str, digests: Sequence[str], progress: Progress | None = None) -> Path:
    """Download the four gzipped files, with checksums in the order of ``_FILES``; give their folder."""
    folder = cache_dir() / name
    for file, digest in zip(_FILES, digests, strict=True):
        download(f"{source}{file}.gz", digest, folder, progress)
    return folder


def read_parts(data_dir: Path, title: str, folders: Sequence[str], num_classes: int = 10) -> tuple[Part, Part]:
    """Read the training and the test part from the first of ``folders`` below ``data_dir`` with IDX files."""
    files = _find(data_dir, title, folders)
    return _read(files, "train", num_classes), _read(files, "t10k", num_classes)


def _read(files: Mapping[str, Path], prefix: str, num_classes: int) -> Part:
    images = read_idx(files[f"{prefix}-images-idx3-ubyte"], dimensions=3)
    path = files[f"{prefix}-labels-idx1-ubyte"]
    labels = read_idx(path, dimensions=1)
    if len(images) != len(labels):
        raise DataError(f"There are {len(images)} {prefix} images but {len(labels)} labels: download the files again.")
    return Part(torch.from_numpy(images).unsqueeze(1), class_numbers(labels, len(images), num_classes, path))


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """Read the array of unsigned bytes in an IDX file; a damaged file is a ``DataError``."""
    try:
        content = path.read_bytes()
        if content[:2] == b"\x1f\x8b":
            with gzip.open(path) as stream:
                content = stream.read(_MOST_BYTES + 1)
            if len(content) > _MOST_BYTES:
                raise OSError(f"it expands to more than {_MOST_BYTES // 1_000_000:,} MB")
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read ({error}): download the file again.") from None
    header = 4 + 4 * dimensions
    if len(content) < header or content[:4] != bytes([0, 0, 8, dimensions]):
        raise DataError(f"{path} is not an IDX file of {dimensions}-dimensional bytes: download the file again.")
    shape = struct.unpack(f">{dimensions}I", content[4:header])
    if len(content) - header != prod(shape):
        raise DataError(
            f"{path} is damaged: its header announces {prod(shape):,} values, but it holds {len(content) - header:,}. "
            "Download the file again."
        )
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape).copy()


def _find(data_dir: Path, title: str, folders: Sequence[str]) -> dict[str, Path]:
    """Paths of the four files by name, in the first of the usual folders that has them."""
    for folder in (data_dir / name for name in folders):
        candidates = {name: (folder / name, folder / f"{name}.gz") for name in _FILES}
        files = {name: path for name, paths in candidates.items() for path in paths[::-1] if path.is_file()}
        if len(files) == len(_FILES):
            return files
        if files:
            missing = [name for name in _FILES if name not in files]
            raise DataError(f"{folder} lacks {', '.join(missing)} (or the same with .gz).")
    raise DataError(
        f"No {title} files in {data_dir}. Put {', '.join(_FILES)} there (gzipped or not), "
        "or leave the data directory out to download them."
    )
