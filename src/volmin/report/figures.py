"""Figures. In a page they are SVG with the text colour of the page, readable in light and dark mode."""

from __future__ import annotations

import io
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, PercentFormatter

from volmin.io.atomic import replace_file

COLOURS = ("#2563eb", "#d97706", "#059669", "#db2777", "#7c3aed", "#0891b2", "#65a30d", "#b45309", "#64748b")
FEW_EPOCHS = 15
"""Curves of at most so many epochs have a marker at each."""
_INK = "#010203"
"""Unique colour that ``svg`` replaces by the text colour of the page."""

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


def learning_curves(histories: Mapping[str, Sequence[Mapping[str, Any]]], selected: Mapping[str, int]) -> Markup:
    """Test accuracy and T error by epoch, one line per method; a dot marks the selected epoch."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(9, 3.4), layout="constrained")
        accuracy, error = figure.subplots(1, 2)
        for colour, (name, history) in zip(COLOURS, histories.items(), strict=False):
            for axes, key in ((accuracy, "accuracy"), (error, "transition_error")):
                _curve(axes, history, key, name, selected[name], colour)
        for axes in (accuracy, error):
            _whole_epochs(axes)
        accuracy.set(title="Test accuracy on clean labels", xlabel="epoch", ylim=(None, 1.0))
        accuracy.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        error.set(title="Error of the estimated T", xlabel="epoch", ylim=(0, None))
        accuracy.legend(frameon=False, loc="lower right")
        return svg(figure)


def curve_panels(panels: Mapping[str, Mapping[str, Sequence[Sequence[float]]]], metric: str) -> Figure:
    """A metric by epoch: one panel per setting, one line per method for the mean of its seeds.

    The shaded area is one standard deviation. Methods may have different numbers of epochs.
    """
    columns = min(4, len(panels))
    rows = -(-len(panels) // columns)
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(3.3 * columns, 2.8 * rows + 0.6), layout="constrained")
        grid = figure.subplots(rows, columns, squeeze=False).flat
        names = dict.fromkeys(name for panel in panels.values() for name in panel)
        # Tables end with the method that they are about: it gets the first colour.
        colours = dict(zip(reversed(names), itertools.cycle(COLOURS), strict=False))
        for axes, (title, lines) in zip(grid, panels.items(), strict=False):
            for name, curves in lines.items():
                length = min(map(len, curves))
                values = np.array([curve[:length] for curve in curves])
                mean, std, epochs = values.mean(0), values.std(0), np.arange(1, length + 1)
                axes.plot(epochs, mean, color=colours[name], label=name, linewidth=1.8, **_markers(length))
                axes.fill_between(epochs, mean - std, mean + std, color=colours[name], alpha=0.2, linewidth=0)
            axes.set(title=title, xlabel="epoch")
            _whole_epochs(axes)
            if metric == "accuracy":
                axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
            else:
                axes.set_ylim(0, None)
        for axes in list(figure.axes)[len(panels) :]:
            axes.remove()
        figure.axes[0].set_ylabel("test accuracy" if metric == "accuracy" else "error of T")
        handles = [Line2D([], [], color=colour, label=name) for name, colour in reversed(colours.items())]
        figure.legend(handles=handles, loc="outside lower center", ncols=min(6, len(handles)), frameon=False)
    return figure


def write_figure(figure: Figure, path: Path) -> Path:
    """Write a figure, black on white, in the format of the suffix."""
    with replace_file(path) as temporary:
        figure.savefig(temporary, format=path.suffix[1:], dpi=200, facecolor="white")
    return path


def fold_curves(histories: Sequence[Sequence[Mapping[str, Any]]]) -> Markup:
    """Loss on training labels and on held-out noisy labels by epoch: a faint line per fold, and their mean."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(9, 2.8), layout="constrained")
        axes = figure.subplots()
        for colour, (key, name) in zip(COLOURS, _LOSSES.items(), strict=False):
            lines = [[record[key] for record in history if record.get(key) is not None] for history in histories]
            lines = [line for line in lines if line]
            if not lines:
                continue
            for line in lines:
                axes.plot(range(1, len(line) + 1), line, color=colour, alpha=0.25, linewidth=1)
            shared = min(map(len, lines))
            means = [sum(line[epoch] for line in lines) / len(lines) for epoch in range(shared)]
            axes.plot(range(1, shared + 1), means, color=colour, label=name, linewidth=2, **_markers(shared))
        _whole_epochs(axes)
        axes.set(xlabel="epoch", ylabel="loss")
        axes.legend(frameon=False)
        return svg(figure)


_LOSSES = {"train_loss": "training labels", "val_loss": "held-out noisy labels"}


def _markers(epochs: int) -> dict[str, Any]:
    """A marker at each of a few epochs: a single one would otherwise leave no line at all."""
    return {"marker": "o", "markersize": 3.5} if epochs <= FEW_EPOCHS else {}


def _whole_epochs(axes: Axes) -> None:
    """Ticks at whole numbers of epochs."""
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    low, high = axes.get_xlim()
    if high - low < 1:
        axes.set_xlim(low - 0.5, high + 0.5)


def _curve(axes: Axes, history: Sequence[Mapping[str, Any]], key: str, name: str, selected: int, colour: str) -> None:
    points = [(record["epoch"], record[key]) for record in history if record.get(key) is not None]
    if not points:
        return
    epochs, values = zip(*points, strict=True)
    axes.plot(epochs, values, color=colour, label=name, linewidth=1.8, **_markers(len(epochs)))
    marked = [(epoch, value) for epoch, value in points if epoch == selected]
    axes.plot(*zip(*marked, strict=True), "o", color=colour, markersize=8)


def svg(figure: Figure) -> Markup:
    """A figure as SVG to embed in a page."""
    buffer = io.StringIO()
    no_metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(buffer, format="svg", transparent=True, metadata=no_metadata)
    drawing = buffer.getvalue()
    # matplotlib escapes text; the XML prologue is not valid inside a page.
    return Markup(drawing[drawing.index("<svg") :].replace(_INK, "currentColor"))
