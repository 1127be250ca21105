"""Findings: named reasons why a statement of an audit can be trusted less, or what to look at first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from volmin._typing import AnyArray, Array, Labels
from volmin.data import label_variants
from volmin.data.tables import as_frame, label_leaks
from volmin.identifiability import Verdict

if TYPE_CHECKING:
    from volmin.auditing.result import AuditResult

CERTAIN = 0.8
"""A model is weak if its most probable class has a smaller mean probability, and near-ties are frequent."""

SKILL = 0.05
"""A model is weak if it agrees with at most this share more of the labels than the most frequent label does."""

SPREAD = 0.05
"""Repetitions of the cross-fitting disagree if their noise rates differ by more."""

MANY_COPIES = 0.05
"""Share of rows that are copies of others from which on they are reported."""

MOST_NAMED = 5
"""Number of classes or columns that a text names."""

SUSPICIOUS_AGREEMENT = 0.995
SUSPICIOUS_UNDERCONFIDENCE = 0.1
"""Posteriors probably come from a model that was trained on the labels if their argmax agrees with more than the former
share of labels, or if it agrees with 98 % and the mean confidence is lower by the latter, as in a forest."""


@dataclass(frozen=True)
class Finding:
    """A named observation.

    Attributes:
        code: Stable name; ``docs/findings/`` has a page of this name.
        text: One or two sentences for the reader of the audit.
    """

    code: str
    text: str


def find(result: AuditResult, repeated_rates: Sequence[float]) -> list[Finding]:
    """The findings of an audit that follow from its result.

    Args:
        result: The audit, without findings.
        repeated_rates: Noise rates of the repetitions of the cross-fitting.
    """
    found = [
        _weak_judge(result),
        _readings(result),
        _identification(result),
        _repetitions(repeated_rates),
        _rare(result),
    ]
    return [finding for finding in found if finding is not None]


def about_data(labels: AnyArray, features: Any, rows: Labels, copies: float) -> list[Finding]:
    """The findings that follow from labels and features.

    Args:
        labels: (n,) given labels.
        features: What the models learned from, before it was encoded; None if probabilities were given.
        rows: (n,) rows of the features that have these labels.
        copies: Share of rows whose features are those of an earlier row.
    """
    frame = None if features is None else as_frame(features)
    frame = frame[rows.tolist()] if frame is not None and frame.height > len(rows) else frame
    found = [_spellings(labels), None if frame is None else _leaks(frame, labels), _copies(copies)]
    return [finding for finding in found if finding is not None]


def in_sample(probs: Array, labels: Labels) -> Finding | None:
    """Probabilities that look as if the model had been trained on these labels."""
    agreement = float((probs.argmax(axis=1) == labels).mean())
    confidence = float(probs.max(axis=1).mean())
    underconfident = agreement > 0.98 and agreement - confidence > SUSPICIOUS_UNDERCONFIDENCE
    if agreement <= SUSPICIOUS_AGREEMENT and not underconfident:
        return None
    return Finding(
        "in_sample_probabilities",
        f"The probabilities agree with {agreement:.1%} of the labels. Either hardly any label is wrong, or the"
        " model was trained on these labels, and wrong ones cannot be found: give probabilities from"
        " cross-validation (scikit-learn's cross_val_predict), or features.",
    )


def _weak_judge(result: AuditResult) -> Finding | None:
    if result.clean_probs is None or not result.judges:
        return None
    agreement = sum(judge.weight * judge.agreement for judge in result.judges)
    majority = np.bincount(result.codes).max() / len(result)
    if agreement <= majority + SKILL:
        return Finding(
            "weak_judge",
            f"The model agrees with {agreement:.0%} of the labels, and the most frequent label alone with"
            f" {majority:.0%}: it has hardly learned anything, and the labels cannot be audited with it. Give features"
            " that say more about the classes, or the probabilities of a better model.",
        )
    certainty = float(result.clean_probs.max(axis=1).mean())
    # Errors that people make on hard examples lower the certainty of a strong model too, but leave few near-ties.
    strong = result.readings is not None and not result.readings.overlapping
    if certainty >= CERTAIN or strong:
        return None
    return Finding(
        "weak_judge",
        f"The model is unsure: its most probable class has a probability of {certainty:.0%} on average. Mistakes of"
        " the model count as label noise, so the true noise rate may be lower. Better features or a better model"
        " narrow the range.",
    )


def _readings(result: AuditResult) -> Finding | None:
    if result.readings is None or not result.readings.differ:
        return None
    first, second = result.readings.noise_rates
    rates = f"{first:.1%} if hard examples may rightly carry either label, {second:.1%} if each has one right label"
    if result.readings.overlapping:
        return Finding(
            "overlapping_classes",
            f"Examples between classes are as frequent as where classes overlap: {rates}. The labels alone cannot tell"
            " overlap from wrong labels.",
        )
    return Finding("readings_disagree", f"The noise rate depends on the meaning of hard examples: {rates}.")


def _identification(result: AuditResult) -> Finding | None:
    if result.two_classes:
        return Finding(
            "two_classes",
            "With two classes, T is identified only if there are anchor points, examples that certainly belong to a"
            " class. The labels cannot show them; without them, fewer labels are wrong.",
        )
    if result.scatter is None or result.scatter.verdict is Verdict.WELL_IDENTIFIED:
        return None
    hardly = "hardly determine" if result.scatter.verdict is Verdict.BORDERLINE else "do not determine"
    return Finding(
        "not_identified",
        f"The posteriors {hardly} T (scatter index {result.scatter.index:.2f}, clearly above 1 is needed): less noise"
        " explains the labels equally well.",
    )


def _repetitions(rates: Sequence[float]) -> Finding | None:
    if len(rates) < 2 or max(rates) - min(rates) <= SPREAD:
        return None
    return Finding(
        "seeds_disagree",
        f"With other folds the noise rate lies between {min(rates):.1%} and {max(rates):.1%}: there are too few rows"
        " for a more precise statement.",
    )


def _spellings(labels: AnyArray) -> Finding | None:
    groups = label_variants(labels)
    if not groups:
        return None
    named = "; ".join(" and ".join(f"{name!r} ({count:,})" for name, count in group) for group in groups[:MOST_NAMED])
    return Finding(
        "label_spellings",
        f"Labels that are equal up to case, spaces and Unicode form count as different classes: {named}. Merge them"
        " (--merge-labels on the command line).",
    )


def _leaks(frame: Any, labels: AnyArray) -> Finding | None:
    leaks = label_leaks(frame, labels)
    if not leaks:
        return None
    named = ", ".join(f"{leak.column} ({leak.accuracy:.1%} of the labels)" for leak in leaks[:MOST_NAMED])
    return Finding(
        "leaking_feature",
        f"A single column predicts nearly every label: {named}. If it was derived from the labels, it hides wrong ones:"
        " leave it out (--ignore on the command line).",
    )


def _copies(share: float) -> Finding | None:
    if share < MANY_COPIES:
        return None
    return Finding(
        "duplicates",
        f"{share:.0%} of the rows have the features of another row. Copies are kept in one fold; labels of copies that"
        " differ contradict each other.",
    )


def _rare(result: AuditResult) -> Finding | None:
    if not result.rare:
        return None
    more = ", …" if len(result.rare) > MOST_NAMED else ""
    names = ", ".join(str(result.classes[j]) for j in result.rare[:MOST_NAMED]) + more
    have = "1 class has" if len(result.rare) == 1 else f"{len(result.rare)} classes have"
    return Finding("rare_classes", f"{have} too few rows to be audited; their labels count as correct: {names}.")
