"""The HTML page of an audit: estimates, their uncertainty, and the flagged labels for review."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from volmin._typing import Array
from volmin.io.atomic import write_text
from volmin.report.examples import Examples
from volmin.report.figures import fold_curves
from volmin.report.page import TEMPLATES, Script, bar_end, zoomable_matrix
from volmin.report.row_map import RowPositions, row_map

MOST_CLASS_LINES = 25
"""Number of classes that the table of noise rates shows; the others are folded away."""

MOST_CONFUSION_LINES = 12
"""Number of confusions that are listed; the others are folded away."""


@dataclass(frozen=True)
class ClassNoise:
    """Noise of one class: a line of the table of noise rates.

    Attributes:
        name: Name of the class.
        given: Number of rows with this label.
        true: Estimated number of rows whose true class this is.
        rate: Share of the latter that carry another label.
        low: Lower bound of the rate: of its interval, of the bracket where T is not identified, or of the range between
            the readings.
        high: Upper bound of the rate, likewise.
        most: Upper bound of the bracket.
        confusions: (label, share) of the most frequent wrong labels.
        audited: Whether there were enough rows.
    """

    name: str
    given: int
    true: float
    rate: float
    low: float
    high: float
    most: float
    confusions: Sequence[tuple[str, float]]
    audited: bool


@dataclass(frozen=True)
class Confusion:
    """About ``count`` rows with the given label ``given`` and the true class ``true`` (positions among the classes)."""

    given: int
    true: int
    count: float


@dataclass(frozen=True)
class UnlabelledRows:
    """Rows without a label, with their suggestions, the surest first.

    Attributes:
        rows: (m,) row numbers.
        names: Names of the rows that are shown; empty if they have numbers only.
        suggested: (m,) most probable labels.
        probability: (m,) their probabilities.
        counts: (label, number of rows) of the suggestions, the most frequent first.
        examples: What is shown of the first rows.
    """

    rows: Sequence[int] = ()
    names: Sequence[str] = ()
    suggested: Sequence[str] = ()
    probability: Sequence[float] = ()
    counts: Sequence[tuple[str, int]] = ()
    examples: Examples = field(default_factory=Examples)


@dataclass(frozen=True)
class AuditPage:
    """Content of the page of an audit."""

    title: str
    headline: str
    identifiability: str
    """Whether the data determine T, in words."""
    caution: str
    """The same in one sentence, for the top of the page; shown where T is not identified."""
    identified: bool
    class_dependent: bool
    """Whether the estimates follow the class-dependent reading of hard examples."""
    expected_correct_stated: bool
    """Whether ``expected_correct`` can be stated; it cannot where the readings differ or T is not identified."""
    findings: Sequence[tuple[str, str]]
    """Codes and texts of what limits the trust in the statements."""
    judges: str
    """The models that were used, in words; empty for given probabilities."""
    check: str
    """Comparison with known true labels, in words; empty without any."""
    classes: Sequence[str]
    num_rows: int
    noise_rate: float
    noise_bounds: tuple[float, float]
    """Interval of the noise rate, its bracket where T is not identified, or its range between the readings."""
    level: float | None
    T: Array
    bounds: tuple[Array, Array] | None
    """Lower and upper bounds of the entries of T, where T is identified."""
    class_noise: Sequence[ClassNoise]
    confusions: Sequence[Confusion]
    fdr: float | None
    flagged: int
    expected_correct: float
    """Expected number of correct labels among the flagged."""
    most_correct: float
    """Upper bound of that number."""
    rows: Sequence[int]
    """Row numbers on the page: rows drawn at random, then the other flagged ones. The next fields are parallel."""
    random: int
    """Number of rows that were drawn at random."""
    is_flagged: Sequence[bool]
    rank: Sequence[int]
    """Places in the order of suspicion."""
    names: Sequence[str]
    """Names of the rows; empty if they have numbers only."""
    given: Sequence[int]
    suggested: Sequence[int]
    wrong: Sequence[float]
    """Probabilities that the labels are wrong."""
    examples: Examples
    review: Mapping[str, Any]
    """What the script needs to compute the noise rate after decisions."""
    embedding: RowPositions | None
    """Positions of some rows on the map, where features are known."""
    histories: Sequence[Sequence[Mapping[str, Any]]]
    provenance: Mapping[str, Any]
    unlabelled: UnlabelledRows = field(default_factory=UnlabelledRows)


def write_audit_report(path: Path, page: AuditPage) -> None:
    """Write the page to ``path``."""
    zoomable = zoomable_matrix(page.T, page.classes)
    scripts = ["rate.js", "cards.js", "review.js", *(["matrix.js"] if zoomable else [])]
    html = TEMPLATES.get_template("audit.html").render(
        page=page,
        first_classes=page.class_noise[:MOST_CLASS_LINES],
        other_classes=page.class_noise[MOST_CLASS_LINES:],
        first_confusions=page.confusions[:MOST_CONFUSION_LINES],
        other_confusions=page.confusions[MOST_CONFUSION_LINES:],
        scale=bar_end([page.noise_bounds[1], *(line.high for line in page.class_noise if line.audited)]),
        zoomable=zoomable,
        map=None if page.embedding is None else row_map(page.embedding),
        curves=fold_curves(page.histories) if page.histories else None,
        data=_data(page),
        scripts=[Script.of(name) for name in scripts],
    )
    write_text(path, html)


def _data(page: AuditPage) -> dict[str, Any]:
    """The data that the script shows and filters, as text and never as HTML."""
    return {
        "classes": list(page.classes),
        "columns": list(page.examples.columns),
        "rows": list(page.rows),
        "random": page.random,
        "flagged": list(page.is_flagged),
        "rank": list(page.rank),
        "names": list(page.names),
        "given": list(page.given),
        "suggested": list(page.suggested),
        "wrong": list(page.wrong),
        "cells": [list(cells) for cells in page.examples.cells],
        "images": list(page.examples.images),
        "tiny": page.examples.small,
        "review": dict(page.review),
        "key": hashlib.sha256(repr((page.title, page.rows, page.wrong)).encode()).hexdigest()[:16],
    }
