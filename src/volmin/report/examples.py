"""What a page shows of the flagged rows: images or table cells, limited in number and size."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from PIL import Image, ImageOps

from volmin._typing import AnyArray, Labels

MOST_ROWS = 2000
MOST_IMAGES = 700
MOST_BYTES = 7_000_000
"""Size of all images, or of the text of all cells."""
MOST_COLUMNS = 12
LONGEST_CELL = 600
LONGEST_SIDE = 320
"""Longest side of an embedded image, in pixels."""
SMALL_SIDE = 64
"""Images of at most this size are enlarged with sharp pixels."""


@dataclass(frozen=True)
class Examples:
    """What is shown of some rows, in their order.

    Attributes:
        columns: Names of the cells; empty for images.
        cells: Texts of each row, one per column.
        images: Data URI of each row.
        omitted_columns: Number of columns of the table that are not shown.
        small: Whether the images are so small that their pixels should stay sharp when they are enlarged.
    """

    columns: Sequence[str] = ()
    cells: Sequence[Sequence[str]] = ()
    images: Sequence[str] = ()
    omitted_columns: int = 0
    small: bool = False

    def __len__(self) -> int:
        return max(len(self.cells), len(self.images))


def no_examples(count: int) -> Examples:
    """Rows of which only the numbers are shown."""
    return Examples(cells=[()] * min(count, MOST_ROWS))


def table_examples(frame: pl.DataFrame, rows: Labels) -> Examples:
    """The first columns of the first ``MOST_ROWS`` of ``rows``, with long cells shortened."""
    columns = frame.columns[:MOST_COLUMNS]
    if not columns:
        return no_examples(len(rows))
    cells, size = [], 0
    for record in frame[rows[:MOST_ROWS].tolist(), columns].iter_rows():
        shown = [_cell(value) for value in record]
        size += sum(map(len, shown))
        if size > MOST_BYTES:
            break
        cells.append(shown)
    return Examples(columns, cells, omitted_columns=frame.width - len(columns))


def image_examples(pictures: Any, rows: Labels) -> Examples:
    """The first ``rows``, up to the limits.

    Args:
        pictures: (N, channels, height, width) bytes, or a sequence of the paths of N image files.
        rows: Rows to show.
    """
    images, size, small = [], 0, True
    for row in rows[:MOST_IMAGES]:
        picture = pictures[int(row)]
        image = upright_image(picture) if isinstance(picture, Path) else image_of(np.asarray(picture))
        small &= max(image.size) <= SMALL_SIDE
        uri = data_uri(image)
        size += len(uri)
        if size > MOST_BYTES:
            break
        images.append(uri)
    return Examples(images=images, small=small)


def upright_image(path: Path) -> Image.Image:
    """The image in a file in its own shape, without transparency, at most ``LONGEST_SIDE`` long."""
    with Image.open(path) as file:
        file.draft("RGB", (LONGEST_SIDE, LONGEST_SIDE))  # a JPEG decoder gives smaller images faster
        return ImageOps.exif_transpose(file).convert("L" if file.mode in ("1", "L") else "RGB")


def image_of(pixels: AnyArray) -> Image.Image:
    """A (channels, height, width) array of bytes as an image."""
    return Image.fromarray(pixels[0] if len(pixels) == 1 else np.ascontiguousarray(pixels[:3].transpose(1, 2, 0)))


def data_uri(image: Image.Image) -> str:
    """An image as a data URI, WebP or PNG, whichever is smaller."""
    image.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
    encodings = {}
    for kind, settings in (("png", {"optimize": True}), ("webp", {"quality": 80})):
        buffer = io.BytesIO()
        image.save(buffer, format=kind, **settings)
        encodings[kind] = buffer.getvalue()
    kind = min(encodings, key=lambda name: len(encodings[name]))
    return f"data:image/{kind};base64,{base64.b64encode(encodings[kind]).decode()}"


def _cell(value: Any) -> str:
    text = "–" if value is None else _number(value) if isinstance(value, float) else str(value)
    return text if len(text) <= LONGEST_CELL else text[: LONGEST_CELL - 1] + "…"


def _number(value: float) -> str:
    """Six digits, or the decimals that an amount of money has."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if 1e4 <= abs(value) < 1e12 else f"{value:.6g}"
