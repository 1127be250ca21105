"""The choice between the readings of hard examples (``volmin.readings``), and the ranking of suspicious labels."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from volmin import readings
from volmin._typing import Array, Labels
from volmin.exceptions import InputError
from volmin.readings import Reading

SHARPNESS = {"class_dependent": 1.0, "one_right_label": math.inf}
"""Readings that a user can choose; ``auto`` takes the first where both agree and otherwise one between them."""

LARGEST_GAP = 0.25
"""The readings agree if at least three quarters of the labels that are wrong under the second are wrong under the first
too. Whichever of them is true, flagging as many labels as the other finds, in a perfect ranking, then has an F1 of at
least 6/7."""

OVERLAPPING, DECIDED = 1.5, 3.0
"""Smallest and largest sharpness of the estimates where the readings differ. At 3, a class with twice the probability
of another gets eight times it, so that ambiguity remains only in examples that are close to undecided."""

FEW_UNDECIDED = (0.36, 0.40)
"""Values of ``decided_share`` at which the sharpness is the smallest and the largest, with a line between them. They
lie above the 1/3 of classes that overlap continuously, and were set on label sets whose true labels are known."""

MODEL_ERROR = 0.01
"""Error of a noise rate that comes from the model and not from sampling; stated ranges are widened by it. Where noise
depends on the class alone, the estimates for networks' posteriors of 50,000 rows were off by up to 0.007, and for
digits by 0.014, several times the sampling error."""

SMALLEST = 1e-12
"""Probabilities are moved this far from 0 and 1 before their log-odds are taken."""


@dataclass(frozen=True)
class Readings:
    """The two readings of hard examples, and the sharpness of the one that the estimates follow.

    Attributes:
        sharpness: 1 where hard examples may rightly carry either label, ``inf`` where each has one right label, and
            a number between them for a compromise.
        noise_rates: Shares of wrong labels under the first and the second reading.
        class_noise_rates: (C, 2) shares of each true class that carry another label, likewise.
        flagged_correct: Expected shares of correct labels among those that are flagged by default, likewise; zero if
            none is flagged.
        decided: ``decided_share`` of the labels.
        transition: (C, C) T of the class-dependent reading; None for audits that an earlier version saved.
    """

    sharpness: float
    noise_rates: tuple[float, float]
    class_noise_rates: Array
    flagged_correct: tuple[float, float]
    decided: float = 1.0
    transition: Array | None = None

    @property
    def overlapping(self) -> bool:
        """Whether undecided examples are as frequent as where classes overlap continuously, or the model is weak."""
        return self.differ and self.decided <= FEW_UNDECIDED[0]

    @property
    def mistaken(self) -> float:
        """Share of the gap between the readings by which the class-dependent one may overestimate the noise.

        Mistakes that a model makes with confidence, such as between similar classes, look like class-dependent noise.
        They are assumed to be as frequent as near-ties where these are as frequent as between overlapping classes.
        """
        return float(np.interp(self.decided, FEW_UNDECIDED, (1.0, 0.0)))

    @property
    def gap(self) -> float:
        """Share of the labels that are wrong under the second reading and not under the first, in [0, 1]."""
        return _gap(*self.noise_rates)

    @property
    def differ(self) -> bool:
        """Whether the gap is too large to state one noise rate."""
        return self.gap > LARGEST_GAP


@dataclass(frozen=True)
class Chosen:
    """Estimates under the chosen reading.

    Attributes:
        reading: Joint distribution, qualities and suggestions under the chosen reading.
        transition: (C, C) T under the chosen reading.
        flagged: Rows of the labels that are flagged by default, the most suspicious first.
        suspicion: (N,) scores of the labels, larger for more suspicious ones.
        readings: Both readings, for comparison.
        qualities: (N, 2) qualities under both.
    """

    reading: Reading
    transition: Array
    flagged: Labels
    suspicion: Array
    readings: Readings
    qualities: Array


def validate_reading(reading: str) -> None:
    """Reject unknown readings."""
    if reading != "auto" and reading not in SHARPNESS:
        raise InputError(f"There is no reading {reading!r}. Choose one of: auto, {', '.join(SHARPNESS)}.")


def choose(
    codes: Labels, clean: Array, T: Array, given_probs: Array, reading: str, weights: Array | None = None
) -> Chosen:
    """Estimates under a reading, or for ``auto`` under the class-dependent one unless the readings differ.

    Args:
        codes: (N,) given labels in ``0 .. C-1``.
        clean: (N, C) clean class posteriors.
        T: (C, C) transition matrix of the class-dependent reading.
        given_probs: (N,) posteriors of the given labels.
        reading: Name of the reading.
        weights: (N,) weights of the rows in the shares; the reading and the flags do not depend on them.
    """
    first, second = (readings.read(codes, clean, T, sharpness) for sharpness in SHARPNESS.values())
    rates = first.noise_rate, second.noise_rate
    decided = decided_share(rates[0], readings.read(codes, clean, T, OVERLAPPING).noise_rate, rates[1])
    if reading in SHARPNESS:
        chosen = first if SHARPNESS[reading] == 1 else second
    elif _gap(*rates) > LARGEST_GAP:
        chosen = readings.read(codes, clean, T, sharpness_between(decided))
    else:
        chosen = first
    sharpness = chosen.sharpness
    suspicion = -_log_odds(first.quality) - _log_odds(given_probs)
    flagged = most_suspicious(suspicion, int((chosen.suggested != codes).sum()))
    first_correct, second_correct = (
        float(found.quality[flagged].mean()) if len(flagged) else 0.0 for found in (first, second)
    )
    if weights is not None:
        second, chosen = (readings.read(codes, clean, T, found.sharpness, weights) for found in (second, chosen))
        rates = readings.read(codes, clean, T, 1.0, weights).noise_rate, second.noise_rate
    return Chosen(
        reading=chosen,
        # The columns of the joint distribution are a noisier estimate than T itself.
        transition=T if sharpness == 1 else chosen.transition(T),
        flagged=flagged,
        suspicion=suspicion,
        readings=Readings(
            sharpness=sharpness,
            noise_rates=rates,
            class_noise_rates=1 - np.stack([np.diag(T), np.diag(second.transition(T))], axis=1),
            flagged_correct=(first_correct, second_correct),
            decided=decided,
            transition=T,
        ),
        qualities=np.stack([first.quality, second.quality], axis=1),
    )


def most_suspicious(suspicion: Array, count: int) -> Labels:
    """The ``count`` rows of largest suspicion, in descending order."""
    return np.argsort(-suspicion, kind="stable")[:count].astype(np.int64)


def decided_share(first: float, between: float, second: float) -> float:
    """Share of the gap between the readings that the reading of sharpness ``OVERLAPPING`` closes.

    For classes that overlap continuously, examples near a tie are as frequent as clearer ones: the log-odds z of their
    two leading classes are locally uniform. The reading of sharpness g then closes the share ``1 - 1 / g``, because the
    integral of ``sigmoid(g z) - sigmoid(z)`` over z > 0 is ``(1 - 1 / g) log 2``; that is 1/3 at 1.5. A larger share
    means that ties are rarer, as where every example has one right label and only some of the labels are wrong.

    Args:
        first: Noise rate under the class-dependent reading.
        between: Noise rate under the reading of sharpness ``OVERLAPPING``.
        second: Noise rate where each example has one right label.
    """
    return (between - first) / (second - first) if second > first else 0.0


def sharpness_between(decided: float) -> float:
    """Sharpness of the estimates where the readings differ, larger where undecided examples are rare."""
    return float(np.interp(decided, FEW_UNDECIDED, (OVERLAPPING, DECIDED)))


def _gap(first: float, second: float) -> float:
    return max(0.0, 1 - first / second) if second > 0 else 0.0


def _log_odds(probs: Array) -> Array:
    clipped = np.clip(probs, SMALLEST, 1 - SMALLEST)
    return np.log(clipped) - np.log1p(-clipped)
