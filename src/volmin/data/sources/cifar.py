"""The format of CIFAR-10 and CIFAR-100: pickled batches in a folder or a tar archive.

Unpickling can execute arbitrary code. The official files are pickles of plain containers and NumPy arrays, and the
unpickler here constructs nothing else; it does not even call NumPy's own constructors. Archives are read as a stream
and never extracted, so paths in them have no effect.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import pickle
import tarfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import torch

from volmin.data.dataset import Dataset, Part, class_numbers
from volmin.data.sources.download import cache_dir, download
from volmin.exceptions import DataError
from volmin.progress import Progress

# Channel statistics of CIFAR-10, which the VolMinNet code uses for CIFAR-100 too.
_MEAN, _STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
_OPENERS = {b"\x1f\x8b": gzip.open, b"\xfd7zXZ": lzma.open, b"BZh": bz2.open}
_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2")
_MOST_BYTES = 400_000_000
"""Largest accepted size of a decompressed archive; the official ones hold 186 MB."""


class Layout(NamedTuple):
    """Names of the files, entries and archive of one of the two data sets."""

    name: str
    title: str
    folder: str
    train: tuple[str, ...]
    test: str
    meta: str
    labels: str
    class_names: str
    num_classes: int
    archive: str
    url: str
    digest: str


def load_cifar(layout: Layout, data_dir: Path | None, progress: Progress | None = None) -> Dataset:
    """Read a CIFAR data set from a folder with its files, their folder or their archive, or download it once."""
    if data_dir is None:
        data_dir = download(layout.url, layout.digest, cache_dir() / layout.name, progress).parent
    files = _read_files(layout, data_dir)
    train = [_part(files[name], layout, name) for name in layout.train]
    whole = Part(torch.cat([part.tensor for part in train]), np.concatenate([part.y for part in train]))
    test = _part(files[layout.test], layout, layout.test)
    return Dataset(layout.name, whole, test, _class_names(files.get(layout.meta), layout), mean=_MEAN, std=_STD)


def _read_files(layout: Layout, data_dir: Path) -> dict[str, Any]:
    """Unpickled content of each file by name."""
    needed = (*layout.train, layout.test)
    for base in (data_dir, data_dir / layout.name):
        for folder in (base, base / layout.folder):
            found = [name for name in needed if (folder / name).is_file()]
            if len(found) == len(needed):
                present = (folder / name for name in (*needed, layout.meta) if (folder / name).is_file())
                return {path.name: _read_pickle(path, path.read_bytes()) for path in present}
            if found and folder.name == layout.folder:
                raise DataError(f"{folder} lacks {', '.join(name for name in needed if name not in found)}.")
        for stem in (layout.archive, layout.folder):
            for archive in (base / f"{stem}{suffix}" for suffix in _SUFFIXES):
                if archive.is_file():
                    return _read_archive(archive, layout, needed)
    raise DataError(
        f"No {layout.title} files in {data_dir}. Put the folder {layout.folder} or the archive {layout.archive}.tar.gz "
        "there, or leave the data directory out to download it."
    )


def _read_archive(path: Path, layout: Layout, needed: Sequence[str]) -> dict[str, Any]:
    wanted = {f"{layout.folder}/{name}": name for name in (*needed, layout.meta)}
    files: dict[str, Any] = {}
    try:
        with _decompressed(path) as content, tarfile.open(fileobj=_Bounded(content), mode="r|") as archive:  # type: ignore[call-overload]
            for member in archive:
                name = wanted.get(member.name.removeprefix("./"))
                if name is not None and (file := archive.extractfile(member)) is not None:
                    files[name] = _read_pickle(Path(f"{path}:{name}"), file.read())
    except (OSError, EOFError, OverflowError, tarfile.TarError, lzma.LZMAError, zlib.error) as error:
        raise DataError(f"{path} cannot be read ({error}): download the archive again.") from None
    if missing := [name for name in needed if name not in files]:
        raise DataError(f"{path} lacks {', '.join(f'{layout.folder}/{name}' for name in missing)}.")
    return files


def _decompressed(path: Path) -> BinaryIO:
    with path.open("rb") as file:
        start = file.read(8)
    opener = next((opener for magic, opener in _OPENERS.items() if start.startswith(magic)), open)
    return opener(path, "rb")  # type: ignore[return-value]


class _Bounded:
    """A stream that raises an error after more bytes than an official archive holds, against compression bombs."""

    def __init__(self, stream: BinaryIO) -> None:
        self.stream, self.left = stream, _MOST_BYTES

    def read(self, size: int) -> bytes:
        content = self.stream.read(size)
        self.left -= len(content)
        if self.left < 0:
            raise tarfile.ReadError(f"it expands to more than {_MOST_BYTES // 1_000_000} MB")
        return content


class _Kind:
    """Replaces a pickled dtype; only integers are accepted."""

    def __init__(self, code: str, *_: Any) -> None:
        if code not in ("u1", "|u1", "i4", "i8", "<i4", "<i8"):
            raise DataError(f"it holds values of the type {code!r}, which official files do not contain")
        self.dtype = np.dtype(code)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        """Ignore the rest of a pickled dtype, which integers do not need."""


class _Array:
    """Replaces a pickled array, since NumPy does not validate what a pickle says about memory."""

    def __init__(self, *_: Any) -> None:
        self.values = np.empty(0)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, columns_first, raw = state
        content = _latin1(raw) if isinstance(raw, str) else raw
        self.values = np.frombuffer(content, kind.dtype).reshape(shape, order="F" if columns_first else "C")


def _array_of_protocol_5(buffer: bytes, kind: _Kind, shape: tuple[int, ...], order: str) -> _Array:
    array = _Array()
    array.__setstate__((1, shape, kind, order == "F", buffer))
    return array


def _number(kind: _Kind, raw: bytes | str) -> int:
    return np.frombuffer(_latin1(raw) if isinstance(raw, str) else raw, kind.dtype)[0].item()


def _latin1(text: str, encoding: str = "latin1") -> bytes:
    """Replaces ``codecs.encode``, by which Python 3 pickles bytes in the old protocols."""
    return text.encode("latin1")


class _ArrayUnpickler(pickle.Unpickler):
    """Reads plain containers, numbers, text and NumPy arrays, and refuses any other class or function."""

    # By name only, since NumPy's versions keep them in different modules.
    _numpy: Mapping[str, Any] = {
        "ndarray": _Array,
        "dtype": _Kind,
        "_reconstruct": _Array,
        "_frombuffer": _array_of_protocol_5,
        "scalar": _number,
    }

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        if (module_name, global_name) == ("_codecs", "encode"):
            return _latin1
        if module_name.split(".")[0] == "numpy" and global_name in self._numpy:
            return self._numpy[global_name]
        raise DataError(f"it refers to {module_name}.{global_name}, which official files do not")


def _read_pickle(path: Path, content: bytes) -> Any:
    try:
        # Strings of Python 2 are read as text; bytes that Python 3 pickled stay bytes.
        return _ArrayUnpickler(io.BytesIO(content), encoding="latin1").load()
    except Exception as error:  # a damaged pickle can raise anything
        raise DataError(f"{path} cannot be read ({error or type(error).__name__}): download the file again.") from None


def _entries(content: Any) -> dict[str, Any]:
    """A pickled dictionary with text keys and NumPy arrays; empty if the content is not a dictionary."""
    items = content.items() if isinstance(content, dict) else ()
    return {_text(key): value.values if isinstance(value, _Array) else value for key, value in items}


def _text(value: Any) -> str:
    return value.decode("latin1") if isinstance(value, bytes) else str(value)


def _part(content: Any, layout: Layout, name: str) -> Part:
    """Images and labels of one file, in file order."""
    entries = _entries(content)
    pixels = np.asarray(entries.get("data", ()))
    if pixels.dtype != np.uint8 or pixels.ndim != 2 or pixels.shape[1] != 3 * 32 * 32:
        raise DataError(f"The file {name} of {layout.title} does not hold rows of 3,072 bytes: download it again.")
    source = f"The file {name} of {layout.title}"
    labels = class_numbers(entries.get(layout.labels, ()), len(pixels), layout.num_classes, source)
    return Part(torch.tensor(pixels).view(-1, 3, 32, 32), labels)


def _class_names(content: Any, layout: Layout) -> tuple[str, ...]:
    """Names of the classes, or their numbers if the file of names is missing."""
    found = _entries(content).get(layout.class_names)
    if not isinstance(found, list) or len(found) != layout.num_classes:
        return tuple(map(str, range(layout.num_classes)))
    return tuple(map(_text, found))
