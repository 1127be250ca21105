"""Images of one's own: a folder per class, or a table of paths and labels."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from volmin.cli.progress import tracked
from volmin.data.images.files import decode, quiet_pillow, reason
from volmin.data.tables.encoder import SUFFIXES as TABLE_SUFFIXES
from volmin.data.tables.encoder import check_column, load_table
from volmin.exceptions import DataError

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
SMALLEST_SIDE, LARGEST_SIDE = 16, 64
"""Of images whose size is left to the data."""

_GREY_MODES = ("1", "L", "LA", "I", "I;16", "I;16B")


@dataclass(frozen=True)
class LabelledImages:
    """Images in memory with their given labels."""

    paths: tuple[Path, ...]
    labels: NDArray[Any]
    """(N,) given labels: the names of the folders, or what the table says."""
    x: Tensor
    """(N, channels, height, width) uint8; one channel where all images are grey."""
    left_out: tuple[tuple[Path, str], ...] = ()
    """Images that are missing or damaged, and why."""
    clean: pl.Series | None = None
    """(N,) true labels, where a column of the table has them; with gaps, where it knows only some."""

    def __len__(self) -> int:
        return len(self.paths)


def load_images(
    path: str | Path,
    label: str | None = None,
    path_column: str | None = None,
    size: int | tuple[int, int] | None = None,
    clean: str | None = None,
) -> LabelledImages:
    """Images with their labels, decoded and resized.

    Args:
        path: a folder with a folder of images per class, or a table of paths (relative to it) and labels.
        label: the label column of a table.
        path_column: its column of paths; by default the one whose values end like names of images.
        size: (height, width) or the side of a square; by default that of the median image, within 16..64.
        clean: the column of a table that holds the true labels, where they are known too.

    Images that are missing or damaged are left out with a warning; it is an error if a class loses all of its images.
    """
    path = Path(path)
    if path.is_dir():
        if clean is not None:
            raise DataError(
                f"{path} is a folder, whose folders are the labels: it has no column {clean!r} of true ones."
            )
        paths, labels, truth = *_folder_per_class(path), None
    elif path.suffix.lower() in TABLE_SUFFIXES:
        paths, labels, truth = _table_of_paths(path, label, path_column, clean)
    else:
        raise DataError(f"There is no folder of images at {path}, nor a table of their paths.")
    with quiet_pillow():
        headers = _in_parallel(_header, paths, "looking at images")
        read = [header for header in headers if isinstance(header, _Header)]
        if not read:
            raise DataError(f"None of the {len(paths)} images of {path} can be read; the first: {headers[0]}.")
        height, width = _median_size(read) if size is None else (size, size) if isinstance(size, int) else size
        channels = 1 if all(header.grey for header in read) else 3
        pixels = _in_parallel(lambda image: decode(image, height, width, channels), paths, "decoding images")
    kept = [row for row, image in enumerate(pixels) if not isinstance(image, str)]
    left_out = tuple((paths[row], image) for row, image in enumerate(pixels) if isinstance(image, str))
    _report(path, labels, kept, left_out)
    x = torch.from_numpy(np.stack([pixels[row] for row in kept]))
    return LabelledImages(
        tuple(paths[row] for row in kept), labels[kept], x, left_out, None if truth is None else truth[kept]
    )


@dataclass(frozen=True)
class _Header:
    height: int
    width: int
    grey: bool


def _header(path: Path) -> _Header:
    with Image.open(path) as image:
        return _Header(image.height, image.width, image.mode in _GREY_MODES)


def _median_size(headers: Sequence[_Header]) -> tuple[int, int]:
    height, width = np.median([(header.height, header.width) for header in headers], axis=0)
    scale = min(1.0, LARGEST_SIDE / max(height, width))
    return max(SMALLEST_SIDE, round(scale * height)), max(SMALLEST_SIDE, round(scale * width))


def _folder_per_class(root: Path) -> tuple[list[Path], NDArray[np.str_]]:
    classes = sorted(folder for folder in root.iterdir() if folder.is_dir() and not _hidden(folder.name))
    if not classes:
        raise DataError(f"{root} has no folders: put the images of each class into a folder with its name.")
    found = {folder.name: sorted(_images_below(folder)) for folder in classes}
    if empty := [name for name, paths in found.items() if not paths]:
        raise DataError(
            f"{root} has class folders without images: {', '.join(map(repr, empty))}. Fill or delete them. "
            f"Images end in {', '.join(SUFFIXES)}."
        )
    if len(classes) < 2:
        raise DataError(f"{root} holds one class only ({classes[0].name!r}): a folder per class is needed.")
    paths = [path for images in found.values() for path in images]
    return paths, np.repeat(list(found), [len(images) for images in found.values()])


def _images_below(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        parts = path.relative_to(folder).parts
        if path.suffix.lower() in SUFFIXES and not any(map(_hidden, parts)) and path.is_file():
            yield path


def _hidden(name: str) -> bool:
    return name.startswith(".") or name == "__MACOSX"


def _table_of_paths(
    path: Path, label: str | None, path_column: str | None, clean: str | None
) -> tuple[list[Path], NDArray[Any], pl.Series | None]:
    if label is None:
        raise DataError(f"Name the label column of {path} (--label, label=).")
    table = load_table(path, label, ignore=[path_column] if path_column else [])
    column = path_column or next(filter(lambda name: _names_images(table.frame[name]), table.feature_columns), None)
    if column is None:
        raise DataError(f"{path} has no column of image files: name it (path_column=).")
    missing = table.frame[column].null_count()
    if missing or table.frame[column].dtype != pl.String:
        raise DataError(f"The column {column!r} of {path} must hold a path in every row; {missing} are empty.")
    truth = None
    if clean is not None:
        check_column(table.frame, clean, path)
        truth = table.frame[clean]
    return [path.parent / name for name in table.frame[column]], table.labels, truth


def _names_images(column: pl.Series) -> bool:
    if column.dtype != pl.String:
        return False
    return bool(column.drop_nulls().str.to_lowercase().str.contains(rf"\.({'|'.join(s[1:] for s in SUFFIXES)})$").all())


def _in_parallel(function: Any, paths: Sequence[Path], title: str) -> list[Any]:
    """The function of every path, in order; what it raised, in words, where it failed."""

    def safely(path: Path) -> Any:
        try:
            return function(path)
        except Exception as error:  # a damaged image may raise anything, and must not stop the others
            return reason(error, path)

    # Pillow decodes outside of Python's global lock.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(tracked(pool.map(safely, paths), title, len(paths)))


def _report(path: Path, labels: NDArray[Any], kept: Sequence[int], left_out: Sequence[tuple[Path, str]]) -> None:
    """Warn of images that were left out; refuse where a class has lost all of them."""
    if not left_out:
        return
    named = "; ".join(f"{image} ({reason})" for image, reason in left_out[:5]) + ("; ..." if len(left_out) > 5 else "")
    counts = Counter(labels[list(kept)].tolist())
    if lost := [str(name) for name in np.unique(labels) if not counts[name.item()]]:
        raise DataError(f"No image of {', '.join(map(repr, lost))} in {path} can be read: {named}")
    warnings.warn(f"{len(left_out)} of {len(labels)} images of {path} were left out: {named}", stacklevel=3)
