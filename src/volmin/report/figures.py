"""Figures of a report, as SVG that takes its text colour from the page: readable in light and dark."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

COLOURS = ("#2563eb", "#d97706", "#059669", "#db2777", "#7c3aed", "#0891b2")
_INK = "#010203"
"""A colour nothing else has: the page's own text colour takes its place."""

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "volmin",
    "font.family": "sans-serif",
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.2,
    **dict.fromkeys(
        ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color", "grid.color"), _INK
    ),
}


def learning_curves(histories: Mapping[str, Sequence[Mapping[str, Any]]], chosen: Mapping[str, int]) -> Markup:
    """Test accuracy and T error by epoch, a line per method; a dot marks the epoch that noisy validation chose."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(9, 3.4), layout="constrained")
        accuracy, error = figure.subplots(1, 2)
        for colour, (name, history) in zip(COLOURS, histories.items(), strict=False):
            for axes, key in ((accuracy, "accuracy"), (error, "transition_error")):
                _curve(axes, history, key, name, chosen[name], colour)
        accuracy.set(title="Test accuracy on clean labels", xlabel="epoch", ylim=(None, 1.0))
        accuracy.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        error.set(title="Error of the estimated T", xlabel="epoch", ylim=(0, None))
        accuracy.legend(frameon=False, loc="lower right")
        return _svg(figure)


def _curve(axes: Axes, history: Sequence[Mapping[str, Any]], key: str, name: str, chosen: int, colour: str) -> None:
    points = [(record["epoch"], record[key]) for record in history if record.get(key) is not None]
    if not points:
        return
    epochs, values = zip(*points, strict=True)
    axes.plot(epochs, values, color=colour, label=name, linewidth=1.8)
    marked = [(epoch, value) for epoch, value in points if epoch == chosen]
    axes.plot(*zip(*marked, strict=True), "o", color=colour, markersize=7)


def _svg(figure: Figure) -> Markup:
    buffer = io.StringIO()
    nothing_said = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(buffer, format="svg", transparent=True, metadata=nothing_said)
    drawing = buffer.getvalue()
    # Text is escaped by matplotlib; the prologue has no place inside a page.
    return Markup(drawing[drawing.index("<svg") :].replace(_INK, "currentColor"))
