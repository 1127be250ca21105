"""An audit in a notebook: a line for ``repr``, a short page for display, and a figure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup, escape

from volmin.auditing import text
from volmin.auditing.result import AuditResult
from volmin.auditing.unlabelled import of_labelled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_CLASSES = 10
MOST_SUSPECTS = 5
LONGEST_LABEL = 60


class DisplayedResult(AuditResult):
    """A result with the representations that a notebook shows."""

    def __repr__(self) -> str:
        return short(self)

    def _repr_html_(self) -> str:
        return html(self)

    def plot(self) -> Figure:
        """Draw T as a heat map, and the noise rate of each class with its range; a notebook displays the figure."""
        return plot(self)


def short(result: AuditResult) -> str:
    """One line: labels, noise rate and flagged labels."""
    low, high = result.noise_range
    return (
        f"<Audit of {result.num_labels:,} labels in {len(result.classes)} classes: {result.noise_rate:.1%} wrong"
        f" (between {low:.1%} and {high:.1%}), {len(result.issues()):,} flagged>"
    )


def html(result: AuditResult) -> str:
    """Headline, classes of largest noise rate, and first flagged labels."""
    others, low_high = text.unlabelled(result), result.noise_bounds
    result, places = of_labelled(result)
    given = np.bincount(result.codes, minlength=len(result.classes))
    worst = np.argsort(-result.class_noise_rates, kind="stable")
    classes = [
        (
            result.classes[j],
            f"{given[j]:,}",
            f"{result.class_noise_rates[j]:.1%}",
            f"{low_high[j, 0]:.0%} to {low_high[j, 1]:.0%}",
            ", ".join(f"{result.classes[i]} ({share:.0%})" for i, share in text.main_confusions(result, int(j))),
        )
        for j in worst[:MOST_CLASSES]
    ]
    rows = result.issues()
    suspects = [
        (places[row], result.labels[row], result.suggested[row], f"{1 - result.quality[row]:.0%}")
        for row in rows[:MOST_SUSPECTS]
    ]
    more_classes = len(worst) - len(classes)
    parts = [
        Markup("<p><b>{}</b></p>").format(_sentence(result)),
        _note(" ".join(others)),
        _table(("true class", "given", "wrong", "range", "mislabelled as"), classes),
        _note(f"and {more_classes} more classes" if more_classes else ""),
        Markup("<p>{}</p>").format(f"{len(rows):,} labels are flagged; the most suspicious:" if len(rows) else ""),
        _table(("row", "given", "suggested", "probability wrong"), suspects) if suspects else Markup(""),
        _note("All rows: .frame(); rows to review: .issues(); report: .to_html(path)"),
    ]
    return str(Markup("<div>{}</div>").format(Markup("").join(parts)))


def plot(result: AuditResult) -> Figure:
    """T as a heat map, and the noise rate of each class with its range."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import PercentFormatter

    names = [_label(name) for name in result.classes]
    places = np.arange(len(names))
    side = min(12.0, 2.5 + 0.35 * len(names))
    figure = Figure(figsize=(2 * side, side), layout="constrained")
    matrix, bars = figure.subplots(1, 2)
    image = matrix.imshow(result.transition, vmin=0, vmax=1, cmap="Blues")
    matrix.set(title="Transition matrix", xlabel="true class", ylabel="given label", xticks=places, yticks=places)
    matrix.set_xticklabels(names, rotation=60, ha="right")
    matrix.set_yticklabels(names)
    figure.colorbar(image, ax=matrix, format=PercentFormatter(1, decimals=0), fraction=0.046)
    if len(names) <= 20:
        for (i, j), share in np.ndenumerate(result.transition):
            if share >= 0.005:
                colour = "white" if share > 0.5 else "black"
                matrix.text(j, i, f"{share:.0%}", ha="center", va="center", fontsize=7, color=colour)
    rates, bounds = result.class_noise_rates, result.noise_bounds
    errors = np.stack([rates - bounds[:, 0], bounds[:, 1] - rates]).clip(min=0)
    bars.barh(places, rates, xerr=errors, color="#2563eb", ecolor="#64748b", capsize=3)
    bars.set(title="Wrong labels of each true class", yticks=places, xlim=(0, None))
    bars.set_yticklabels(names)
    bars.invert_yaxis()
    bars.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    return figure


def _sentence(result: AuditResult) -> str:
    return f"{len(result):,} labels in {len(result.classes)} classes. {text.headline(result)}"


def _note(line: str) -> Markup:
    return Markup('<p style="opacity:.7">{}</p>').format(line) if line else Markup("")


def _table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> Markup:
    """A table whose cells are escaped; numbers are aligned to the right."""
    head = Markup("").join(Markup('<th style="text-align:left">{}</th>').format(name) for name in header)
    body = Markup("").join(
        Markup("<tr>{}</tr>").format(Markup("").join(_cell(_label(value)) for value in row)) for row in rows
    )
    return Markup("<table><thead><tr>{}</tr></thead><tbody>{}</tbody></table>").format(head, body)


def _cell(value: str) -> Markup:
    side = "right" if re.fullmatch(r"[\d.,]+%?", value) else "left"
    return Markup('<td style="text-align:{}">{}</td>').format(Markup(side), escape(value))


def _label(value: Any) -> str:
    shown = " ".join(str(value).split())
    return shown if len(shown) <= LONGEST_LABEL else shown[: LONGEST_LABEL - 1] + "…"
