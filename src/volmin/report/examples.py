"""What a page shows of the flagged rows: thumbnails or table cells, limited in number and size."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from PIL import Image

from volmin._typing import AnyArray, Labels

MOST_ROWS = 2000
MOST_IMAGES = 700
MOST_IMAGE_BYTES = 4_000_000
MOST_COLUMNS = 12
LONGEST_CELL = 120
THUMBNAIL = 96
"""Longest side of an embedded image, in pixels."""


@dataclass(frozen=True)
class Examples:
    """What is shown of some rows, in their order.

    Attributes:
        columns: Names of the cells; empty for images.
        cells: Texts of each row, one per column.
        images: Data URI of each row.
        omitted_columns: Number of columns of the table that are not shown.
    """

    columns: Sequence[str] = ()
    cells: Sequence[Sequence[str]] = ()
    images: Sequence[str] = ()
    omitted_columns: int = 0

    def __len__(self) -> int:
        return max(len(self.cells), len(self.images))


def no_examples(count: int) -> Examples:
    """Rows of which only the numbers are shown."""
    return Examples(cells=[()] * min(count, MOST_ROWS))


def table_examples(frame: pl.DataFrame, rows: Labels) -> Examples:
    """The first columns of the first ``MOST_ROWS`` of ``rows``, with long cells shortened."""
    columns = frame.columns[:MOST_COLUMNS]
    shown = frame[rows[:MOST_ROWS].tolist(), columns] if columns else frame[:0]
    cells = [[_cell(value) for value in record] for record in shown.iter_rows()] or [()] * min(len(rows), MOST_ROWS)
    return Examples(columns, cells, omitted_columns=frame.width - len(columns))


def image_examples(pixels: Any, rows: Labels) -> Examples:
    """Thumbnails of the first ``rows``, up to the limits; ``pixels`` is (N, channels, height, width) of bytes."""
    images, size = [], 0
    for row in rows[:MOST_IMAGES]:
        uri = data_uri(np.asarray(pixels[int(row)]))
        size += len(uri)
        if size > MOST_IMAGE_BYTES:
            break
        images.append(uri)
    return Examples(images=images)


def data_uri(pixels: AnyArray) -> str:
    """A (channels, height, width) image as a data URI, WebP or PNG, whichever is smaller."""
    image = Image.fromarray(pixels[0] if len(pixels) == 1 else np.ascontiguousarray(pixels[:3].transpose(1, 2, 0)))
    image.thumbnail((THUMBNAIL, THUMBNAIL))
    encodings = {}
    for kind, settings in (("png", {"optimize": True}), ("webp", {"quality": 80})):
        buffer = io.BytesIO()
        image.save(buffer, format=kind, **settings)
        encodings[kind] = buffer.getvalue()
    kind = min(encodings, key=lambda name: len(encodings[name]))
    return f"data:image/{kind};base64,{base64.b64encode(encodings[kind]).decode()}"


def _cell(value: Any) -> str:
    text = "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= LONGEST_CELL else text[: LONGEST_CELL - 1] + "…"
