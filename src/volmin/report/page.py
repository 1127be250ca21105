"""HTML pages of runs. Templates escape everything that is inserted."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from volmin import __version__
from volmin._typing import Array
from volmin.formatting import count, duration, percent
from volmin.io.atomic import write_text
from volmin.report.figures import learning_curves
from volmin.transition import transition_error

TEMPLATES = Environment(
    loader=PackageLoader("volmin.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
)
TEMPLATES.filters |= {"percent": percent, "count": count, "duration": duration}
TEMPLATES.globals["scripts"] = ()

MOST_TABLE_CLASSES = 20
"""With more classes, T is drawn as a matrix to zoom: a table of so many cells can neither be read nor opened fast."""

MOST_ENTRIES = 60_000
SMALLEST_ENTRY = 0.0005
"""Entries of a matrix to zoom that a page holds; the others count as zero there."""


@dataclass(frozen=True)
class Script:
    """A script of a page, and its digest for the page's security policy."""

    text: Markup
    digest: str

    @classmethod
    def of(cls, name: str) -> Script:
        """The script among the templates."""
        text = files("volmin.report").joinpath("templates", name).read_text(encoding="utf-8")
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        return cls(Markup(text), f"sha256-{digest}")


def zoomable_matrix(T: Array, classes: Sequence[str]) -> dict[str, Any] | None:
    """The names and the largest entries (row, column, value) of a matrix to zoom; None if it fits into a table."""
    if len(classes) <= MOST_TABLE_CLASSES:
        return None
    i, j = np.nonzero(T >= SMALLEST_ENTRY)
    largest = np.argsort(-T[i, j], kind="stable")[:MOST_ENTRIES]
    entries = [[int(a), int(b), round(float(T[a, b]), 4)] for a, b in zip(i[largest], j[largest], strict=True)]
    return {"names": list(classes), "entries": entries}


def bar_end(shares: Sequence[float]) -> float:
    """The right end of the bars of a page: a round number not below the largest share."""
    return next((end for end in (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8) if end >= max(shares)), 1.0)


@dataclass(frozen=True)
class RunPage:
    """Content of the page of one or several runs on the same noisy data."""

    title: str
    dataset: str
    noise: str
    classes: Sequence[str]
    T: Array
    """(C, C) transition matrix of the noise."""
    estimate: Array
    """(C, C) estimated transition matrix."""
    results: Mapping[str, Mapping[str, Any]]
    """``result.json`` by the name of the method; the first method is the subject of the page."""
    histories: Mapping[str, Sequence[Mapping[str, Any]]]
    command: str


def write_run_report(path: Path, page: RunPage) -> None:
    """Write the page to ``path``."""
    main, result = next(iter(page.results.items()))
    selected = {name: found["selected_epoch"] for name, found in page.results.items()}
    matrices = [zoomable_matrix(T, page.classes) for T in (page.T, page.estimate)]
    rates = [1 - page.T.diagonal(), 1 - page.estimate.diagonal()]
    html = TEMPLATES.get_template("run.html").render(
        page=page,
        main=main,
        result=result,
        error=transition_error(page.T, page.estimate),
        curves=learning_curves(page.histories, selected),
        rates=list(zip(page.classes, *rates, strict=True)),
        scale=bar_end(np.concatenate(rates).tolist()),
        matrices=matrices,
        scripts=[Script.of("matrix.js")] if any(matrices) else [],
        version=__version__,
    )
    write_text(path, html)


@dataclass(frozen=True)
class Section:
    """Tables of many runs, one per data set, and their curves."""

    title: str
    caption: str
    tables: Mapping[str, tuple[Sequence[str], Mapping[str, Sequence[Any]]]]
    """By data set: column names, and by row name cells (``ours``, ``seeds``, ``paper``, ``difference``, ``best``)."""
    figure: Markup | None


def write_grid_report(
    path: Path, sections: Sequence[Section], runs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]
) -> None:
    """Write the page of many runs.

    Args:
        path: Path of the HTML file.
        sections: Tables and curves.
        runs: Spec and result of each run.
    """
    title = f"{len(runs)} finished run{'s'[: len(runs) != 1]}"
    template = TEMPLATES.get_template("grid.html")
    write_text(path, template.render(title=title, sections=sections, runs=runs, version=__version__))
