"""The map of an audit: rows as points, near each other where their features are similar, coloured by suspicion."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from volmin._typing import Array

WIDTH, HEIGHT, MARGIN = 640, 420, 12
LEVELS = (0.25, 0.5, 0.9)
"""Probabilities of a wrong label at which the colour of a point changes."""


@dataclass(frozen=True)
class RowPositions:
    """Positions of some rows.

    Attributes:
        rows: (n,) rows.
        points: (n, 2) positions.
        wrong: (n,) probabilities that their labels are wrong.
        places: (n,) positions of the rows in the list for review; None for those that are not in it.
    """

    rows: Sequence[int]
    points: Array
    wrong: Array
    places: Sequence[int | None]


def row_map(embedding: RowPositions) -> Markup:
    """The map as SVG; the most suspicious rows are drawn last and largest."""
    points = np.asarray(embedding.points)
    # A few distant rows must not press the others together.
    low, high = np.quantile(points, [0.01, 0.99], axis=0)
    span = np.where(high > low, high - low, 1)
    placed = ((points - low) / span).clip(-0.02, 1.02)
    x = MARGIN * 2 + placed[:, 0] * (WIDTH - 4 * MARGIN)
    y = HEIGHT - MARGIN * 2 - placed[:, 1] * (HEIGHT - 4 * MARGIN)
    levels = np.searchsorted(LEVELS, embedding.wrong, side="right")
    circles = []
    for k in np.argsort(levels, kind="stable"):
        place = embedding.places[k]
        listed = "" if place is None else f' data-place="{place:d}"'
        circles.append(
            f'<circle class="s{levels[k]}" cx="{x[k]:.1f}" cy="{y[k]:.1f}" r="{1.8 + 0.6 * levels[k]:.1f}"{listed}/>'
        )
    suspicious = int((levels >= 2).sum())
    label = (
        f"Map of {len(x)} rows by the similarity of their features; {suspicious} labels are more likely wrong than not"
    )
    head = f'<svg id="map" class="map" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">'
    return Markup(f"{head}{''.join(circles)}</svg>")
