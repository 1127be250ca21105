"""The result of an audit as text."""

from __future__ import annotations

import math

import numpy as np

from volmin.auditing.reading import MODEL_ERROR
from volmin.auditing.result import AuditResult, Check
from volmin.formatting import terminal_safe
from volmin.identifiability import Verdict

MOST_NAMED = 5
"""Number of classes that a text names."""

SURE = 0.9
"""Probability from which on the suggestions for rows without a label are counted."""

SAID_ELSEWHERE = ("readings_disagree", "two_classes", "not_identified", "rare_classes")
"""Findings whose content other sentences of the summary state; only their codes are listed."""


def summary(result: AuditResult, fdr: float | None) -> str:
    """Noise rate, worst classes, flagged labels and identifiability in a few lines."""
    lines = [
        f"{result.num_labels:,} labels in {len(result.classes)} classes. {headline(result)}",
        *unlabelled(result),
        "",
        *_worst_classes(result),
        "",
        _flagged(result, fdr),
        identifiability(result),
        *(f"{finding.code}: {finding.text}" for finding in result.findings if finding.code not in SAID_ELSEWHERE),
    ]
    if result.rare:
        lines.append(rare_classes(result))
    if result.findings:
        codes = ", ".join(finding.code for finding in result.findings)
        lines.append(f"Findings, each explained on a page of its name in docs/findings: {codes}.")
    if result.judges:
        lines += ["", judges(result)]
    return terminal_safe("\n".join(lines))


def unlabelled(result: AuditResult) -> list[str]:
    """How many rows have no label, and how the shares are weighted; empty where neither applies."""
    lines = []
    if count := len(result) - result.num_labels:
        sure = int((result.certainty >= SURE).sum())
        lines.append(
            f"{count:,} more rows have no label; they get suggestions, {sure:,} of them with a probability of at least"
            f" {SURE:.0%}."
        )
    if result.weights is not None:
        lines.append("The shares are weighted by the weights of the rows; numbers of labels are not.")
    return lines


def judges(result: AuditResult) -> str:
    """The models whose posteriors were used, with their weights and held-out agreement."""
    named = "; ".join(
        f"{judge.name} (weight {judge.weight:.2f}, agrees with {judge.agreement:.1%} of the labels, log-likelihood"
        f" {judge.log_likelihood:.3f})"
        for judge in result.judges
    )
    return f"Judged on rows not trained on: {named}."


def headline(result: AuditResult) -> str:
    """The noise rate, as a range where the readings of hard examples differ."""
    if result.readings is None or (result.class_dependent and not result.readings.differ):
        return f"{_class_dependent_rate(result)}."
    first, second = (f"{rate:.1%}" for rate in result.readings.noise_rates)
    if result.class_dependent:
        rate = _class_dependent_rate(result)
        return (
            f"If hard examples may rightly carry either label: {rate[0].lower()}{rate[1:]}."
            f" If each has one right label: {second} are wrong."
        )
    if math.isinf(result.readings.sharpness):
        return (
            f"If each example has one right label: {second} are wrong."
            f" If hard examples may rightly carry either label: {first}."
        )
    low, high = result.noise_range
    return (
        f"Between {low:.1%} and {high:.1%} are wrong: {first} if hard examples may rightly carry either label,"
        f" {second} if each has one right label{_widened(result)}. The estimates lie between the two, at"
        f" {result.noise_rate:.1%}."
    )


def _widened(result: AuditResult) -> str:
    if result.two_classes:
        return ", and fewer if there are no anchor points"
    if result.may_be_lower or (result.readings and min(result.mistakes, result.readings.noise_rates[0]) > MODEL_ERROR):
        return ", and fewer if the model is weak or the classes overlap"
    return "; errors of sampling and of the model widen the range"


def _class_dependent_rate(result: AuditResult) -> str:
    """The noise rate, with an interval where T is identified and as a range elsewhere."""
    rate, (low, high) = f"{result.noise_rate:.1%}", result.noise_range
    if result.intervals is not None:
        level = f"{result.intervals.level:.0%}"
        return f"About {rate} are wrong ({level} interval {low:.1%} to {high:.1%}, widened by the model's error)"
    return f"Between {low:.1%} and {high:.1%} are wrong; the estimate is {rate}"


def identifiability(result: AuditResult) -> str:
    """Whether the data determine T and the reading of hard examples, in a few sentences."""
    if not result.class_dependent:
        refuted = result.scatter is not None and result.scatter.refuted
        undetermined = " Under neither of them do the data determine T." if refuted else ""
        return (
            f"The labels alone cannot tell which reading of hard examples is right.{undetermined} {hand_check(result)}"
        )
    if result.scatter is None:
        return f"Whether the data determine T was not examined for {len(result.classes)} classes. {hand_check(result)}"
    verdict = result.scatter.verdict
    if result.two_classes and verdict is not Verdict.NOT_IDENTIFIED:
        return (
            "With two classes, T is identified only if there are anchor points, examples that certainly belong to a"
            f" class. The estimate assumes them; the labels cannot show them, and fewer may be wrong."
            f" {hand_check(result)}"
        )
    s = f"scatter index {result.scatter.index:.2f}, above 1 is needed"
    if verdict is Verdict.WELL_IDENTIFIED:
        return f"T is well identified ({s}). This check can reject T but never prove it."
    if verdict is Verdict.BORDERLINE:
        return f"T is barely identified ({s}): the true noise rate may be lower. {hand_check(result)}"
    names = ", ".join(str(result.classes[j]) for j in _failing(result)[:MOST_NAMED])
    missing = f" Examples that clearly do not belong to {names} are missing." if names else ""
    largest = f"T is not identified ({s}): the estimate is the largest noise that the data allow.{missing}"
    return f"{largest} {hand_check(result)}"


def hand_check(result: AuditResult) -> str:
    """How many labels to check by hand, and what for."""
    return (
        f"Decisions settle it: about {result.decisions_needed:,} labels drawn at random and checked by hand bring the"
        " noise rate to within 2.5 percentage points (the report offers a random sample; --clean, audit.check in"
        " Python)."
    )


def states_expected_correct(result: AuditResult) -> bool:
    """Whether the expected share of correct labels among the flagged can be stated."""
    differ = result.readings is not None and result.readings.differ
    return not differ and not result.two_classes and (result.scatter is None or not result.scatter.refuted)


def rare_classes(result: AuditResult) -> str:
    """Which classes were not audited, and what to do about it."""
    names = ", ".join(str(result.classes[j]) for j in result.rare[:MOST_NAMED])
    names += ", …" if len(result.rare) > MOST_NAMED else ""
    if len(result.rare) == 1:
        return f"1 class has too few rows, so its labels are assumed to be correct: {names}. Merge it with another one."
    return (
        f"{len(result.rare)} classes have too few rows, so their labels are assumed to be correct: {names}."
        " Merge them with others."
    )


def check_summary(check: Check) -> str:
    """The comparison with known true labels in a few lines."""
    # Rows that were chosen because they are suspicious say nothing about the rates in T.
    error = f"; the error of T is {check.transition_error:.3f}" if check.sample == "random" else ""
    lines = [
        f"In {check.rows:,} rows with a known true label, {check.noise_rate:.1%} of the given labels are wrong{error}."
    ]
    if check.flagged:
        lines.append(
            f"Of {check.flagged:,} flagged labels, {check.precision:.1%} are wrong; the suggested label is correct for"
            f" {check.suggestion_accuracy:.1%}."
        )
    if not np.isnan(check.recall):
        lines.append(f"Of the wrong labels, {check.recall:.1%} are flagged.")
    low, high = check.noise_range
    drawn = "drawn at random" if check.sample == "random" else "chosen because they are suspicious"
    lines.append(
        f"Of all labels, {low:.1%} to {high:.1%} are wrong (95% interval; the rows count as {drawn}, --sample says"
        " otherwise)."
    )
    if check.correct_range is not None:
        low, high = check.correct_range
        lines.append(f"Of the flagged labels, {low:.0%} to {high:.0%} are correct.")
    mean, low, high = check.reading_weight
    if high - low < 1:
        lines.append(
            f"That each example has one right label explains the decisions with a weight of {mean:.0%} ({low:.0%} to"
            f" {high:.0%}), that hard ones may rightly carry either label with the rest."
        )
    if check.more_decisions:
        lines.append(
            f"About {check.more_decisions:,} {'more ' if check.sample == 'random' else ''}decisions about rows drawn at"
            " random bring the noise rate to within 2.5 percentage points."
        )
    return "\n".join(lines)


def main_confusions(result: AuditResult, true: int, most: int = 2) -> list[tuple[int, float]]:
    """(given, share) of the wrong labels that a true class carries most often."""
    column = result.transition[:, true].copy()
    column[true] = 0
    return [(int(i), float(column[i])) for i in np.argsort(-column, kind="stable")[:most] if column[i] >= 0.005]


def _flagged(result: AuditResult, fdr: float | None) -> str:
    rows = result.issues(fdr)
    limit = "" if fdr is None else f"limit {fdr:.0%}"
    if len(rows) == 0:
        return f"No label is flagged{f' ({limit} correct labels among the flagged)' if limit else ''}."
    flagged = "1 label is flagged" if len(rows) == 1 else f"{len(rows):,} labels are flagged"
    if not states_expected_correct(result):
        refuted = result.scatter is not None and result.scatter.refuted
        if fdr is None and result.readings is not None and not refuted and not result.two_classes:
            either, one = (f"{share:.0%}" for share in result.readings.flagged_correct)
            return (
                f"{flagged}; {one} of them are correct if each example has one right label, {either} if hard ones may"
                " rightly carry either label."
            )
        return f"{flagged}; what share of them is correct cannot be known from the labels alone."
    expected = f"about {result.quality[rows].mean():.0%} of them (at most {result.most_correct(rows):.0%})"
    correct = f"{flagged}; {expected} are expected to be correct"
    return f"{correct}{f' ({limit})' if limit else ''}."


def _worst_classes(result: AuditResult) -> list[str]:
    rates = result.class_noise_rates
    worst = [j for j in np.argsort(-rates, kind="stable")[:MOST_NAMED] if rates[j] >= 0.005]
    if not worst:
        return ["Every class has a noise rate below 0.5%."]
    width = max(10, *(len(_short(result.classes[j])) for j in worst))
    bounds = "interval" if result.identified else "bounds" if result.class_dependent else "range"
    lines = [f"{'true class':<{width}}  wrong  {bounds:<13}  mislabelled as"]
    for j in worst:
        low, high = result.noise_bounds[j]
        labels = ", ".join(f"{_short(result.classes[i])} ({share:.0%})" for i, share in main_confusions(result, j))
        lines.append(
            f"{_short(result.classes[j]):<{width}}  {rates[j]:5.1%}  {f'{low:.0%} to {high:.0%}':<13}  {labels}"
        )
    return lines


def _failing(result: AuditResult) -> list[int]:
    """Classes that fail a condition of identifiability, as positions among all classes, the rare ones included."""
    audited = [j for j in range(len(result.classes)) if j not in result.rare]
    return [audited[k] for k in result.scatter.per_class.failing] if result.scatter else []


def _short(label: object, most: int = 24) -> str:
    text = " ".join(str(label).split())
    return text if len(text) <= most else text[: most - 1] + "…"
