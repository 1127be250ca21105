"""The HTML page of an audit of several annotators: their noise rates and matrices, and the items with all votes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from volmin._typing import Array
from volmin.io.atomic import write_text
from volmin.report.examples import Examples
from volmin.report.page import TEMPLATES, Script, bar_end, zoomable_matrix

MOST_LINES = 40
"""Number of annotators that the table shows; the others are folded away."""

MOST_ITEMS = 30
"""Number of items that are shown; the others are folded away."""

REMARKS = ("best_annotator", "annotators_differ", "annotators_alike", "another_vote")
"""Findings that limit nothing; they come after those that do."""


@dataclass(frozen=True)
class AnnotatorLine:
    """A line of the table of annotators.

    Attributes:
        name: Name of the annotator or group.
        answers: Number of answers.
        agreement: Share of the answers that equal the consensus.
        noise_rate: Share of wrong answers.
        low: Lower bound of its interval.
        high: Upper bound of its interval.
        mistakes: The most frequent wrong answers, in words.
    """

    name: str
    answers: int
    agreement: float
    noise_rate: float
    low: float
    high: float
    mistakes: str


@dataclass(frozen=True)
class ItemLine:
    """An item with its votes.

    Attributes:
        name: Name or number of the item.
        consensus: Most probable label.
        probability: Probability that it is right.
        votes: (annotator, label, whether it is the consensus) of each answer.
        ask: Annotator whose answer would help most; empty if there is none.
    """

    name: str
    consensus: str
    probability: float
    votes: Sequence[tuple[str, str, bool]]
    ask: str


@dataclass(frozen=True)
class CrowdPage:
    """Content of the page."""

    title: str
    headline: str
    grouped: bool
    findings: Sequence[tuple[str, str]]
    """Codes and texts."""
    classes: Sequence[str]
    num_items: int
    num_answers: int
    noise_rate: float
    noise_range: tuple[float, float]
    level: float
    uncertain: int
    """Number of items with a consensus of at most the probability ``certain``."""
    certain: float
    annotators: Sequence[AnnotatorLine]
    pooled: Array
    """T of all annotators together."""
    matrices: Sequence[tuple[str, Array]]
    """T of the annotators with the most answers."""
    items: Sequence[ItemLine]
    """The least certain items."""
    examples: Examples
    """What is shown of these items, in their order."""
    provenance: Mapping[str, Any]


def write_crowd_report(path: Path, page: CrowdPage) -> None:
    """Write the page to ``path``."""
    zoomable = zoomable_matrix(page.pooled, page.classes)
    html = TEMPLATES.get_template("crowd.html").render(
        page=page,
        cautions=[finding for finding in page.findings if finding[0] not in REMARKS],
        remarks=[finding for finding in page.findings if finding[0] in REMARKS],
        first=page.annotators[:MOST_LINES],
        others=page.annotators[MOST_LINES:],
        first_items=page.items[:MOST_ITEMS],
        other_items=page.items[MOST_ITEMS:],
        scale=bar_end([page.noise_range[1], *(line.high for line in page.annotators if line.answers)]),
        zoomable=zoomable,
        scripts=[Script.of("matrix.js")] if zoomable else [],
    )
    write_text(path, html)
