"""The findings of an audit in plain words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from volmin.formatting import terminal_safe
from volmin.identifiability import Verdict

if TYPE_CHECKING:
    from volmin.auditing.result import Audit, Check

WORST = 5
"""Classes that a summary names."""


def summary(audit: Audit, fdr: float) -> str:
    """A few lines that a person can act on."""
    rows = audit.issues(fdr)
    right = audit.quality[rows].mean() if len(rows) else 0.0
    flagged = f"{len(rows):,} labels are flagged" if len(rows) != 1 else "1 label is flagged"
    lines = [
        f"{len(audit):,} labels in {len(audit.classes)} classes. {headline(audit)}",
        "",
        *_worst_classes(audit),
        "",
        f"{flagged}: about {right:.0%} of them may be right after all (limit {fdr:.0%})."
        if len(rows)
        else f"No label is suspicious enough to be flagged (limit: {fdr:.0%} of the flagged may be right).",
        identifiability(audit),
    ]
    if audit.rare:
        lines.append(rare_classes(audit))
    return terminal_safe("\n".join(lines))


def headline(audit: Audit) -> str:
    """The noise rate, with an interval where T is identified, and with bounds where it is not."""
    rate = f"{audit.noise_rate:.1%}"
    if audit.intervals is not None:
        interval = audit.intervals.noise_rate
        return (
            f"About {rate} are wrong ({audit.intervals.level:.0%} interval {interval.low:.1%} to {interval.high:.1%})."
        )
    low, high = noise_rate_bracket(audit)
    condition = "by estimate" if audit.scatter is None else "if the noise is as large as the data allow"
    return f"Between {low:.1%} and {high:.1%} are wrong; {rate} {condition}."


def noise_rate_bracket(audit: Audit) -> tuple[float, float]:
    """Bounds of the noise rate from those of the classes; the estimate lies between them."""
    high = float(audit.class_priors @ audit.bracket[:, 1])
    return 0.0, max(high, audit.noise_rate)


def identifiability(audit: Audit) -> str:
    """How far T can be trusted, in one or two sentences."""
    if audit.scatter is None:
        return f"With {len(audit.classes)} classes it is not examined whether the data determine T. {HAND_CHECK}"
    s = f"scatter index {audit.scatter.index:.2f}, above 1 is needed"
    verdict = audit.scatter.verdict
    if verdict is Verdict.WELL_IDENTIFIED:
        return f"T is well identified ({s}). The data could have contradicted it; they can never prove it."
    if verdict is Verdict.BORDERLINE:
        return f"T is at the border of what the data determine ({s}): the true noise may be smaller. {HAND_CHECK}"
    names = ", ".join(str(audit.classes[j]) for j in _failing(audit)[:WORST])
    short = f" Examples that are clearly no {names} are missing." if names else ""
    return f"T is not identified ({s}): it is the most noise that the data allow.{short} {HAND_CHECK}"


HAND_CHECK = "Check 100 labels drawn at random by hand, and give them with --clean (audit.check) to be sure."


def rare_classes(audit: Audit) -> str:
    """Which classes were not judged, and what to do."""
    names = ", ".join(str(audit.classes[j]) for j in audit.rare[:WORST]) + (", …" if len(audit.rare) > WORST else "")
    number = f"{len(audit.rare)} classes have" if len(audit.rare) > 1 else "1 class has"
    return (
        f"{number} too few rows to be judged, so their labels count as right: {names}."
        " Merge them with others, or find more examples."
    )


def checked(check: Check) -> str:
    """What known labels say of the audit."""
    lines = [
        f"{check.rows:,} known labels: {check.noise_rate:.1%} of them were wrong; T error {check.transition_error:.3f}."
    ]
    if check.flagged:
        lines.append(
            f"Of {check.flagged:,} flagged, {check.precision:.1%} are wrong indeed, and the suggestion is right for"
            f" {check.suggestion_accuracy:.1%}."
        )
    if not np.isnan(check.recall):
        lines.append(f"Of the wrong labels, {check.recall:.1%} are flagged.")
    lines.append(
        f"Counted in, they put the share of wrong labels at {check.updated_noise_rate:.1%} (if drawn at random)."
    )
    return "\n".join(lines)


def main_confusions(audit: Audit, true: int, most: int = 2) -> list[tuple[int, float]]:
    """(given, share) of the labels that a true class is mostly mistaken for."""
    column = audit.transition[:, true].copy()
    column[true] = 0
    return [(int(i), float(column[i])) for i in np.argsort(-column, kind="stable")[:most] if column[i] >= 0.005]


def _worst_classes(audit: Audit) -> list[str]:
    rates = audit.class_noise_rates
    worst = [j for j in np.argsort(-rates, kind="stable")[:WORST] if rates[j] >= 0.005]
    if not worst:
        return ["No class loses as much as half a percent of its labels."]
    width = max(10, *(len(_short(audit.classes[j])) for j in worst))
    bounds = "interval" if audit.identified else "bounds"
    lines = [f"{'true class':<{width}}  wrong  {bounds:<13}  mostly labelled"]
    for j in worst:
        low, high = audit.noise_bounds[j]
        mostly = ", ".join(f"{_short(audit.classes[i])} ({share:.0%})" for i, share in main_confusions(audit, j))
        lines.append(
            f"{_short(audit.classes[j]):<{width}}  {rates[j]:5.1%}  {f'{low:.0%} to {high:.0%}':<13}  {mostly}"
        )
    return lines


def _failing(audit: Audit) -> list[int]:
    """Classes short of evidence, as positions among all classes: the scatter knows only those that were judged."""
    judged = [j for j in range(len(audit.classes)) if j not in audit.rare]
    return [judged[k] for k in audit.scatter.per_class.failing] if audit.scatter else []


def _short(label: object, most: int = 24) -> str:
    text = " ".join(str(label).split())
    return text if len(text) <= most else text[: most - 1] + "…"
