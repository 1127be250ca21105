"""The page of an audit: what is wrong, how sure that is, and the flagged labels to decide on."""

from __future__ import annotations

import base64
import hashlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray
from PIL import Image

from volmin.io.atomic import write_text
from volmin.report.examples import Examples
from volmin.report.figures import fold_curves
from volmin.report.page import PAGES

MOST_CELLS_A_SIDE = 30
"""A heat map of more classes is drawn as a picture: a table of them would freeze a browser."""

MOST_CLASS_LINES = 25


@dataclass(frozen=True)
class ClassLine:
    """A class in the table of noise rates.

    Attributes:
        name: of the class.
        given: rows with this label.
        true: rows that truly are of this class, by estimate.
        rate: share of the latter with another label.
        low: least noise rate: of the interval, or of the bracket.
        high: largest noise rate, likewise.
        most: upper end of the bracket.
        mostly: (label, share) of what it is mistaken for.
        judged: whether there were rows enough.
    """

    name: str
    given: int
    true: float
    rate: float
    low: float
    high: float
    most: float
    mostly: Sequence[tuple[str, float]]
    judged: bool


@dataclass(frozen=True)
class Confusion:
    """About ``count`` rows are labelled ``given`` but truly are ``true`` (positions among the classes)."""

    given: int
    true: int
    count: float


@dataclass(frozen=True)
class AuditStory:
    """What the page tells."""

    title: str
    headline: str
    verdict: str
    identified: bool
    notes: Sequence[str]
    known: str
    """What known labels said of the audit; empty without any."""
    classes: Sequence[str]
    num_rows: int
    noise_rate: tuple[float, float, float]
    """Estimate, and the ends of its interval or bracket."""
    level: float | None
    scatter_index: float | None
    T: NDArray[np.float64]
    bounds: tuple[NDArray[np.float64], NDArray[np.float64]] | None
    """Lower and upper ends of the intervals of T, where T is identified."""
    class_lines: Sequence[ClassLine]
    confusions: Sequence[Confusion]
    fdr: float
    flagged: int
    expected_right: float
    rows: Sequence[int]
    """Of the flagged labels that the page shows, the most suspicious first; the next five go with them."""
    names: Sequence[str]
    """What the rows are called; empty if they have numbers only."""
    given: Sequence[int]
    suggested: Sequence[int]
    wrong: Sequence[float]
    examples: Examples
    histories: Sequence[Sequence[Mapping[str, Any]]]
    provenance: Mapping[str, Any]


def write_audit_report(path: Path, story: AuditStory) -> None:
    """Write the page to ``path``."""
    script = files("volmin.report").joinpath("templates/audit.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    page = PAGES.get_template("audit.html").render(
        story=story,
        first_lines=story.class_lines[:MOST_CLASS_LINES],
        other_lines=story.class_lines[MOST_CLASS_LINES:],
        picture=None if len(story.classes) <= MOST_CELLS_A_SIDE else _picture(story.T),
        curves=fold_curves(story.histories) if story.histories else None,
        data=_data(story),
        # Only this very script may run, whatever a label says.
        script=Markup(script),
        script_policy=f"'sha256-{digest}'",
    )
    write_text(path, page)


def _data(story: AuditStory) -> dict[str, Any]:
    """What the script shows and filters; as text only, never as HTML."""
    return {
        "classes": list(story.classes),
        "columns": list(story.examples.columns),
        "rows": list(story.rows),
        "names": list(story.names),
        "given": list(story.given),
        "suggested": list(story.suggested),
        "wrong": list(story.wrong),
        "cells": [list(cells) for cells in story.examples.cells],
        "images": list(story.examples.images),
        "key": hashlib.sha256(repr((story.title, story.rows, story.wrong)).encode()).hexdigest()[:16],
    }


def _picture(T: NDArray[np.float64]) -> str:
    """T as a picture with a pixel for each entry, a data URI: the stronger, the larger."""
    pixels = np.zeros((*T.shape, 4), np.uint8)
    pixels[..., :3] = (60, 120, 245)
    # Small entries are what a picture is looked at for: the square root brings them out.
    pixels[..., 3] = np.round(255 * np.sqrt(T))
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="png", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
