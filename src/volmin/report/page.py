"""HTML pages. Everything that enters a template is escaped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from numpy.typing import NDArray

from volmin import __version__
from volmin.formatting import duration
from volmin.io.atomic import write_text
from volmin.report.figures import learning_curves
from volmin.transition import transition_error

PAGES = Environment(loader=PackageLoader("volmin.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True)


@dataclass(frozen=True)
class RunStory:
    """What the page of one or several runs on the same noisy data tells."""

    title: str
    dataset: str
    noise: str
    classes: Sequence[str]
    T: NDArray[np.float64]
    """(C, C) the matrix that made the noise."""
    estimate: NDArray[np.float64]
    """(C, C) what was found."""
    results: Mapping[str, Mapping[str, Any]]
    """``result.json`` by method; the first is the one the page is about."""
    histories: Mapping[str, Sequence[Mapping[str, Any]]]
    command: str


def write_run_report(path: Path, story: RunStory) -> None:
    """Write the page to ``path``."""
    main, result = next(iter(story.results.items()))
    chosen = {name: found["selected_epoch"] for name, found in story.results.items()}
    page = PAGES.get_template("run.html").render(
        story=story,
        main=main,
        result=result,
        error=transition_error(story.T, story.estimate),
        curves=learning_curves(story.histories, chosen),
        rates=list(zip(story.classes, 1 - story.T.diagonal(), 1 - story.estimate.diagonal(), strict=True)),
        version=__version__,
    )
    write_text(path, page)


@dataclass(frozen=True)
class Section:
    """A table of many runs, data set by data set, and its curves."""

    title: str
    caption: str
    tables: Mapping[str, tuple[Sequence[str], Mapping[str, Sequence[Any]]]]
    """By data set: the columns, and by row the cells with ``ours``, ``seeds``, ``paper``, ``difference``, ``best``."""
    figure: Markup | None


def write_grid_report(
    path: Path, sections: Sequence[Section], runs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]
) -> None:
    """Write the page of many runs; ``runs`` are their specs and results."""
    title = f"{len(runs)} run{'s'[: len(runs) != 1]}"
    template = PAGES.get_template("grid.html")
    write_text(path, template.render(title=title, sections=sections, runs=runs, duration=duration, version=__version__))
