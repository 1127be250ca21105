"""Arrays from files of NumPy. Nothing in them is executed, and nothing that they announce is believed."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmin.exceptions import InputError


def read_array(path: str | Path) -> NDArray[Any]:
    """The array in an ``.npy`` file, or a ``ValueError`` that says why there is none."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"There is no array at {path}.")
    try:
        # Mapped first: the length that the file announces is compared with the length that it has.
        mapped = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # NumPy parses the header as Python, so that a damaged one can raise anything
        raise InputError(f"{path} is not a NumPy array file (.npy): {_reason(error)}") from None
    if not isinstance(mapped, np.ndarray):
        mapped.close()
        raise InputError(f"{path} is an archive of several arrays; give an .npy file with one.")
    return _checked(np.array(mapped), str(path))


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of an ``.npz`` archive by name, or a ``ValueError`` that says what is wrong with it."""
    if not zipfile.is_zipfile(path):
        raise InputError(f"{path} is not an NPZ archive of arrays.")
    name = ""
    try:
        arrays = {}
        _check_size(path)
        with np.load(path, allow_pickle=False) as archive:
            for name in archive.files:
                arrays[name] = archive[name]
    except Exception as error:
        which = f"The array {name!r} of {path}" if name else str(path)
        raise InputError(f"{which} cannot be read safely: {_reason(error)}") from None
    if strange := [name for name, array in arrays.items() if not isinstance(array, np.ndarray)]:
        raise InputError(f"{path} holds something that is no array: {', '.join(strange)}.")
    return {name: _checked(array, f"The array {name!r} of {path}") for name, array in arrays.items()}


def _check_size(path: Path) -> None:
    """Refuse an archive that is small and expands to what may not fit into memory."""
    with zipfile.ZipFile(path) as archive:
        whole = sum(member.file_size for member in archive.infolist())
    if whole > max(_ALWAYS_EXPANDED, _MOST_EXPANDED * path.stat().st_size):
        raise InputError(
            f"it expands to {whole / 1e9:.1f} GB, {whole // path.stat().st_size:,} times its size; if it is meant to, "
            "write it without compression (np.savez)"
        )


_ALWAYS_EXPANDED, _MOST_EXPANDED = 1_000_000_000, 100
"""Bytes that any archive may expand to, and how many times its size a larger one may."""


def _checked(array: NDArray[Any], name: str) -> NDArray[Any]:
    """Refuse text that is none: libraries that are handed it end the process."""
    if array.dtype.kind == "U" and array.size:
        # Files may be in either order of bytes.
        codes = np.ascontiguousarray(array).view(np.dtype(np.uint32).newbyteorder(array.dtype.byteorder))
        if (codes > 0x10FFFF).any() or ((codes >= 0xD800) & (codes < 0xE000)).any():
            raise InputError(f"{name} is damaged: it holds text that is no Unicode.")
    return array


def _reason(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return "it needs more memory than there is"
    return (str(error).strip() or type(error).__name__).split("\n")[0]
