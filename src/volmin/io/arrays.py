"""Safe reading of NumPy files: no object is unpickled, and headers are validated against the file size."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from volmin._typing import AnyArray
from volmin.exceptions import DataError
from volmin.io.expansion import check_archive


def read_array(path: str | Path) -> AnyArray:
    """Read the array in an ``.npy`` file; an unreadable file is a ``DataError``."""
    path = Path(path)
    if not path.is_file():
        raise DataError(f"There is no array at {path}.")
    try:
        # Mapping compares the length in the header with the size of the file before memory is allocated.
        mapped = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # NumPy parses the header as Python, so a damaged one can raise anything
        raise DataError(f"{path} is not a NumPy array file (.npy): {_reason(error)}") from None
    if not isinstance(mapped, np.ndarray):
        mapped.close()
        raise DataError(f"{path} is an archive of several arrays; give an .npy file with one.")
    return _checked(np.array(mapped), str(path))


def read_arrays(path: Path) -> dict[str, AnyArray]:
    """Read the arrays of an ``.npz`` archive by name; an unreadable archive is a ``DataError``."""
    if not zipfile.is_zipfile(path):
        raise DataError(f"{path} is not an NPZ archive of arrays.")
    name = ""
    try:
        arrays = {}
        check_archive(path, "; if intended, write it without compression (np.savez)")
        with np.load(path, allow_pickle=False) as archive:
            for name in archive.files:
                arrays[name] = archive[name]
    except Exception as error:  # a damaged archive can raise anything
        which = f"The array {name!r} of {path}" if name else str(path)
        raise DataError(f"{which} cannot be read safely: {_reason(error)}") from None
    if strange := [name for name, array in arrays.items() if not isinstance(array, np.ndarray)]:
        raise DataError(f"{path} contains members that are not arrays: {', '.join(strange)}.")
    return {name: _checked(array, f"The array {name!r} of {path}") for name, array in arrays.items()}


def _checked(array: AnyArray, name: str) -> AnyArray:
    """Refuse text with invalid code points, which makes some libraries end the process."""
    if array.dtype.kind == "U" and array.size:
        # The file may be in either byte order.
        codes = np.ascontiguousarray(array).view(np.dtype(np.uint32).newbyteorder(array.dtype.byteorder))
        if (codes > 0x10FFFF).any() or ((codes >= 0xD800) & (codes < 0xE000)).any():
            raise DataError(f"{name} is damaged: it contains text that is not valid Unicode.")
    return array


def _reason(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return "it needs more memory than is available"
    return (str(error).strip() or type(error).__name__).split("\n")[0]
