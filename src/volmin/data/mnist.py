"""MNIST, from its four IDX files, gzipped or not."""

from __future__ import annotations

import gzip
import struct
import zlib
from math import prod
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from volmin.data.base import DataError, Dataset, Part

_SOURCE = "https://ossci-datasets.s3.amazonaws.com/mnist/"
_SHA256 = {
    "train-images-idx3-ubyte": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "train-labels-idx1-ubyte": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "t10k-images-idx3-ubyte": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "t10k-labels-idx1-ubyte": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
}
_FOLDERS = ("", "MNIST/raw", "mnist", "raw")


def load(data_dir: Path | None = None) -> Dataset:
    """60,000 training and 10,000 test digits of 28 x 28 pixels, from ``data_dir`` or else downloaded once."""
    files = _find(data_dir if data_dir is not None else _download())
    parts = []
    for prefix in ("train", "t10k"):
        images = read_idx(files[f"{prefix}-images-idx3-ubyte"], dimensions=3)
        labels = read_idx(files[f"{prefix}-labels-idx1-ubyte"], dimensions=1)
        if len(images) != len(labels):
            raise DataError(f"There are {len(images)} {prefix} images but {len(labels)} labels: fetch the files anew.")
        parts.append(Part(torch.from_numpy(images).unsqueeze(1), labels.astype(np.int64)))
    return Dataset("mnist", *parts, classes=tuple("0123456789"), mean=(0.1307,), std=(0.3081,))


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """The array of unsigned bytes in an IDX file, or a ``DataError`` that says what is wrong with it."""
    try:
        content = path.read_bytes()
        if content[:2] == b"\x1f\x8b":
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read ({error}): fetch the file anew.") from None
    header = 4 + 4 * dimensions
    if len(content) < header or content[:4] != bytes([0, 0, 8, dimensions]):
        raise DataError(f"{path} is not an IDX file of {dimensions}-dimensional bytes: fetch the file anew.")
    shape = struct.unpack(f">{dimensions}I", content[4:header])
    if len(content) - header != prod(shape):
        raise DataError(
            f"{path} is damaged: it announces {prod(shape):,} values and holds {len(content) - header:,}. "
            "Fetch the file anew."
        )
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape).copy()


def _find(data_dir: Path) -> dict[str, Path]:
    """The four files by name, from the first of the usual folders that has them."""
    for folder in (data_dir / name for name in _FOLDERS):
        candidates = {name: (folder / name, folder / f"{name}.gz") for name in _SHA256}
        files = {name: path for name, paths in candidates.items() for path in paths[::-1] if path.is_file()}
        if len(files) == len(_SHA256):
            return files
        if files:
            missing = [name for name in _SHA256 if name not in files]
            raise DataError(f"{folder} lacks {', '.join(missing)} (or the same with .gz).")
    raise DataError(
        f"No MNIST files in {data_dir}. Put {', '.join(_SHA256)} there (gzipped or not), "
        "or leave the data directory out to download them."
    )


def _download() -> Path:
    import pooch

    folder = Path(pooch.os_cache("volmin")) / "mnist"
    try:
        for name, digest in _SHA256.items():
            pooch.retrieve(f"{_SOURCE}{name}.gz", known_hash=f"sha256:{digest}", fname=f"{name}.gz", path=folder)
    except (OSError, ValueError) as error:
        raise DataError(
            f"MNIST could not be downloaded from {_SOURCE} to {folder} ({type(error).__name__}). "
            "Give a directory that holds its IDX files (--data-dir, data_dir=)."
        ) from None
    return folder
