"""The result of an audit of several annotators as data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from volmin._typing import AnyArray, Array, Labels
from volmin.auditing.findings import Finding
from volmin.crowds import AnnotatorComparison, Answers, Copying, CrowdFit, Information, NextVotes, Rates

SMALLEST_CONFUSION = 0.005
"""Smaller shares are not named as confusions."""


@dataclass(frozen=True)
class Profile:
    """What the audit says about one annotator or group.

    Attributes:
        name: Name of the annotator.
        answers: Number of answers.
        agreement: Share of the answers that equal the consensus; NaN without answers.
        noise_rate: Estimated share of wrong answers; NaN without answers.
        low: Lower bound of its interval.
        high: Upper bound of its interval.
        confusions: (given, true, share of the answers) of the most frequent wrong answers, as positions among the
            classes.
    """

    name: str
    answers: int
    agreement: float
    noise_rate: float
    low: float
    high: float
    confusions: tuple[tuple[int, int, float], ...]


@dataclass(frozen=True)
class CrowdResult:
    """Estimates for all annotators and items.

    Attributes:
        classes: (C,) classes.
        names: (M,) names of the annotators, or of the groups.
        items: (N,) names of the items.
        answers: The answers, as numbers.
        fit: The fitted model: a T for each annotator, and the posteriors of the clean labels.
        rates: Noise rates of the annotators with intervals.
        overall: Noise rate of all answers with its interval, in arrays of length one.
        information: What the answers of each annotator say about the class.
        level: Nominal coverage of the intervals.
        comparison: Test of whether all annotators have the same T; None with fewer than two.
        copies: Annotators who agree more often than independent ones would.
        votes: Answers that would help most.
        grouped: Whether the annotators are groups of single labels.
        findings: Named observations.
        provenance: How the audit was made.
    """

    classes: AnyArray
    names: AnyArray
    items: AnyArray
    answers: Answers
    fit: CrowdFit
    rates: Rates
    overall: Rates
    information: Information
    level: float
    comparison: AnnotatorComparison | None
    copies: Sequence[Copying]
    votes: NextVotes
    grouped: bool = False
    findings: list[Finding] = field(default_factory=list)
    provenance: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return self.answers.num_items

    @property
    def transitions(self) -> Array:
        """(M, C, C) matrices: ``transitions[m, i, j] = P(answer of m = i | clean = j)``."""
        return self.fit.transitions

    @property
    def clean_probs(self) -> Array:
        """(N, C) posteriors of the clean label from features and answers."""
        return self.fit.clean_probs

    @property
    def consensus(self) -> AnyArray:
        """(N,) most probable clean labels, of the type of the given ones."""
        return self.classes[self.consensus_codes]

    @cached_property
    def consensus_codes(self) -> Labels:
        """(N,) most probable clean labels, as positions in ``classes``."""
        return self.clean_probs.argmax(axis=1)

    @property
    def consensus_probability(self) -> Array:
        """(N,) probabilities that the consensus is right."""
        return self.clean_probs.max(axis=1)

    @property
    def noise_rate(self) -> float:
        """Estimated share of wrong answers."""
        return float(self.overall.rate[0])

    @property
    def noise_range(self) -> tuple[float, float]:
        """Interval of the noise rate."""
        return float(self.overall.low[0]), float(self.overall.high[0])

    @cached_property
    def counts(self) -> Labels:
        """(M,) numbers of answers."""
        return np.bincount(self.answers.annotator, minlength=self.answers.num_annotators)

    @cached_property
    def annotators(self) -> pl.DataFrame:
        """One line per annotator: annotator, answers, noise_rate, low, high. The rate is null without answers."""
        return pl.DataFrame(
            {
                "annotator": self._names(self.names),
                "answers": self.counts,
                "noise_rate": pl.Series(self.rates.rate).fill_nan(None),
                "low": self.rates.low,
                "high": self.rates.high,
            }
        )

    def frame(self) -> pl.DataFrame:
        """One line per item: item, consensus, probability, answers, agreeing (answers equal to the consensus)."""
        answers = self.answers
        agreeing = (answers.label == self.consensus_codes[answers.item]).astype(np.float64)
        return pl.DataFrame(
            {
                "item": self._names(self.items),
                "consensus": self._names(self.consensus),
                "probability": self.consensus_probability,
                "answers": answers.answers_of_items.astype(np.int64),
                "agreeing": answers.per_item(agreeing[:, None])[:, 0].astype(np.int64),
            }
        )

    def next_votes(self) -> pl.DataFrame:
        """Items with an uncertain consensus, the most useful question first: item, consensus, probability, ask, gain.

        ``ask`` is the annotator whose answer would help most, null if nobody's would; ``gain`` is the expected rise of
        the probability that the consensus is right.
        """
        item, ask = self.votes.item, self.votes.annotator
        asked = pl.Series(self._names(self.names)).gather(np.maximum(ask, 0))
        return pl.DataFrame(
            {
                "item": self._names(self.items[item]),
                "consensus": self._names(self.consensus[item]),
                "probability": self.consensus_probability[item],
                "ask": asked.zip_with(pl.Series(ask >= 0), pl.Series([None] * len(ask), dtype=asked.dtype)),
                "gain": self.votes.gain,
            }
        )

    def profiles(self) -> list[Profile]:
        """The annotators, the one with the highest noise rate first and those without answers last."""
        answers = self.answers
        agreeing = (answers.label == self.consensus_codes[answers.item]).astype(np.float64)
        agreed = np.bincount(answers.annotator, agreeing, minlength=len(self.names))
        # Shares of answers by given and clean label.
        joint = answers.per_answer(self.clean_probs[answers.item])
        joint /= np.maximum(self.counts, 1)[:, None, None]
        order = np.argsort(np.where(self.counts > 0, -self.rates.rate, np.inf), kind="stable")
        return [
            Profile(
                str(self.names[m]),
                int(self.counts[m]),
                float(agreed[m] / self.counts[m]) if self.counts[m] else float("nan"),
                float(self.rates.rate[m]),
                float(self.rates.low[m]),
                float(self.rates.high[m]),
                _confusions(joint[m]),
            )
            for m in order
        ]

    @staticmethod
    def _names(values: AnyArray) -> pl.Series:
        """Values as a column; those that are neither numbers nor text become text."""
        return pl.Series(values if values.dtype != object else [str(value) for value in values])


def _confusions(joint: Array, most: int = 2) -> tuple[tuple[int, int, float], ...]:
    wrong = joint.copy()
    np.fill_diagonal(wrong, 0)
    places = np.argsort(-wrong, axis=None, kind="stable")[:most]
    found = ((int(place // wrong.shape[1]), int(place % wrong.shape[1])) for place in places)
    return tuple((i, j, float(wrong[i, j])) for i, j in found if wrong[i, j] >= SMALLEST_CONFUSION)
