"""Labelled images read into memory: a folder per class, or a table of paths and labels."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch
from torch import Tensor

from volmin._typing import AnyArray
from volmin.data.images.files import decode, failure_reason, pillow_warnings
from volmin.exceptions import DataError
from volmin.progress import Progress, tracked

if TYPE_CHECKING:
    import polars as pl

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
SMALLEST_SIDE, LARGEST_SIDE = 16, 64
"""Limits of the sides of images for which no size is given."""

_GREY_MODES = ("1", "L", "LA", "I", "I;16", "I;16B")

Result = TypeVar("Result")


@dataclass(frozen=True)
class LabelledImages:
    """Images in memory with their given labels."""

    paths: tuple[Path, ...]
    labels: AnyArray
    """(N,) given labels: names of the folders, or values of the table's label column."""
    x: Tensor
    """(N, channels, height, width) uint8; one channel if all images are grey."""
    left_out: tuple[tuple[Path, str], ...] = ()
    """Images that are missing or damaged, each with the reason."""
    clean: pl.Series | None = None
    """(N,) true labels if the table has a column of them, null where unknown."""

    def __len__(self) -> int:
        return len(self.paths)


def load_images(
    path: str | Path,
    label: str | None = None,
    path_column: str | None = None,
    size: int | tuple[int, int] | None = None,
    clean: str | None = None,
    progress: Progress | None = None,
) -> LabelledImages:
    """Read labelled images into memory, decoded and resized to one size.

    Images that are missing or damaged are left out with a warning; a class without a readable image is an error.

    Args:
        path: Folder with a folder of images per class, or table of labels and of paths relative to it.
        label: Label column of a table.
        path_column: Column of paths; by default the first whose values all end in an image suffix.
        size: (height, width) or the side of a square; by default the size of the median image, within 16..64.
        clean: Column of a table with the true labels, if they are known.
        progress: Callback that reports the progress of decoding.
    """
    path = Path(path)
    if path.is_dir():
        if clean is not None:
            raise DataError(f"{path} is a folder, whose folders are the labels: it has no column {clean!r}.")
        paths, labels, truth = *_folder_per_class(path), None
    else:
        paths, labels, truth = _table_of_paths(path, label, path_column, clean)
    with pillow_warnings():
        headers = _in_parallel(_header, paths, "reading image sizes", progress)
        read = [header for header in headers if isinstance(header, _Header)]
        if not read:
            raise DataError(f"None of the {len(paths)} images of {path} can be read; the first: {headers[0]}.")
        height, width = _median_size(read) if size is None else (size, size) if isinstance(size, int) else size
        channels = 1 if all(header.grey for header in read) else 3
        pixels = _in_parallel(lambda image: decode(image, height, width, channels), paths, "decoding images", progress)
    found = {row: image for row, image in enumerate(pixels) if not isinstance(image, str)}
    left_out = tuple((paths[row], image) for row, image in enumerate(pixels) if isinstance(image, str))
    kept = list(found)
    _report(path, labels, kept, left_out)
    x = torch.from_numpy(np.stack(list(found.values())))
    return LabelledImages(
        tuple(paths[row] for row in kept), labels[kept], x, left_out, None if truth is None else truth[kept]
    )


@dataclass(frozen=True)
class _Header:
    height: int
    width: int
    grey: bool


def _header(path: Path) -> _Header:
    from PIL import Image

    with Image.open(path) as image:
        return _Header(image.height, image.width, image.mode in _GREY_MODES)


def _median_size(headers: Sequence[_Header]) -> tuple[int, int]:
    height, width = np.median([(header.height, header.width) for header in headers], axis=0)
    scale = min(1.0, LARGEST_SIDE / max(height, width))
    return max(SMALLEST_SIDE, round(scale * height)), max(SMALLEST_SIDE, round(scale * width))


def _folder_per_class(root: Path) -> tuple[list[Path], AnyArray]:
    classes = sorted(folder for folder in root.iterdir() if folder.is_dir() and not _hidden(folder.name))
    if not classes:
        raise DataError(f"{root} has no folders: put the images of each class into a folder named after it.")
    found = {folder.name: sorted(images_below(folder)) for folder in classes}
    if empty := [name for name, paths in found.items() if not paths]:
        raise DataError(
            f"{root} has class folders without images: {', '.join(map(repr, empty))}. Fill or delete them. "
            f"Images end in {', '.join(SUFFIXES)}."
        )
    if len(classes) < 2:
        raise DataError(f"{root} has only one class folder ({classes[0].name!r}): at least two are needed.")
    paths = [path for images in found.values() for path in images]
    return paths, np.repeat(list(found), [len(images) for images in found.values()])


def images_below(folder: Path) -> Iterator[Path]:
    """The image files in a folder and the folders in it, except hidden ones."""
    for path in folder.rglob("*"):
        parts = path.relative_to(folder).parts
        if path.suffix.lower() in SUFFIXES and not any(map(_hidden, parts)) and path.is_file():
            yield path


def _hidden(name: str) -> bool:
    return name.startswith(".") or name == "__MACOSX"


def _table_of_paths(
    path: Path, label: str | None, path_column: str | None, clean: str | None
) -> tuple[list[Path], AnyArray, pl.Series | None]:
    # Imported here, so that folders of images do not need the library for tables.
    import polars as pl

    from volmin.data.tables import SUFFIXES as TABLE_SUFFIXES
    from volmin.data.tables import check_column, load_table

    if path.suffix.lower() not in TABLE_SUFFIXES:
        raise DataError(f"There is no folder of images at {path}, nor a table of their paths.")
    if label is None:
        raise DataError(f"Name the label column of {path} (--label, label=).")
    table = load_table(path, label, ignore=[path_column] if path_column else [])
    column = path_column or next(filter(lambda name: names_images(table.frame[name]), table.feature_columns), None)
    if column is None:
        raise DataError(f"{path} has no column of image paths: name it (path_column=).")
    missing = table.frame[column].null_count()
    if missing or table.frame[column].dtype != pl.String:
        raise DataError(f"The column {column!r} of {path} must hold a path in every row; {missing} are empty.")
    truth = None
    if clean is not None:
        check_column(table.frame, clean, path)
        truth = table.frame[clean]
    return [path.parent / name for name in table.frame[column]], table.labels, truth


def names_images(column: pl.Series) -> bool:
    """Whether all values of a column end like the names of image files."""
    import polars as pl

    if column.dtype != pl.String:
        return False
    return bool(column.drop_nulls().str.to_lowercase().str.contains(rf"\.({'|'.join(s[1:] for s in SUFFIXES)})$").all())


def _in_parallel(
    function: Callable[[Path], Result], paths: Sequence[Path], title: str, progress: Progress | None
) -> list[Result | str]:
    """Call the function for every path; give its results in order, and the reason as text where it failed."""

    def attempt(path: Path) -> Result | str:
        try:
            return function(path)
        except Exception as error:  # Pillow may raise anything on a damaged image, which must not stop the others
            return failure_reason(error, path)

    # Threads suffice: Pillow releases the global interpreter lock while it decodes.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(tracked(pool.map(attempt, paths), title, len(paths), progress))


def _report(path: Path, labels: AnyArray, kept: Sequence[int], left_out: Sequence[tuple[Path, str]]) -> None:
    """Warn about images that were left out; refuse a class without any readable image."""
    if not left_out:
        return
    named = "; ".join(f"{image} ({reason})" for image, reason in left_out[:5]) + ("; ..." if len(left_out) > 5 else "")
    counts = Counter(labels[list(kept)].tolist())
    if lost := [str(name) for name in np.unique(labels) if not counts[name.item()]]:
        raise DataError(f"No image of the class {', '.join(map(repr, lost))} in {path} can be read: {named}")
    warnings.warn(f"{len(left_out)} of {len(labels)} images of {path} were left out: {named}", stacklevel=3)
