"""Noise rate of each annotator, with an interval.

The noise rate is the share of an annotator's answers that differ from the clean label, the mean of ``1 - P(clean =
answer)`` over the answers. How far answers to one item may be trusted as separate observations is known only roughly:
with a weight w of an answer (``fit_crowd``), the rates under w squared and under the square root of w are plausible
too. The three are equal where w = 1, and far apart where annotators err on the same items. The interval reaches from
the lower bound of the lowest to the upper bound of the highest rate, each with the uncertainty of a binomial count and
of the matrices (a jackknife over parts of the items).

Where no item has more than one answer, as with groups of single labels, w plays no role, and the second rate is that
of the reading in which each example has one right label (``volmin.readings``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy

from volmin import readings
from volmin._typing import AnyArray, Array
from volmin.crowds.aggregation import clean_posteriors
from volmin.crowds.answers import Answers
from volmin.crowds.consensus import CrowdFit, refit_transitions

PARTS = 10
"""Parts of the items; the jackknife leaves out one after another."""

REFITTED_ANSWERS = 100_000
"""Largest number of answers of the jackknife; the variance of more is taken to fall with their number."""


@dataclass(frozen=True)
class Rates:
    """Shares of wrong answers with the bounds of their intervals.

    Attributes:
        rate: Estimates; NaN for an annotator without answers.
        low: Lower bounds; 0 without answers.
        high: Upper bounds; 1 without answers.
    """

    rate: Array
    low: Array
    high: Array


def annotator_rates(answers: Answers, fit: CrowdFit, level: float = 0.95) -> tuple[Rates, Rates]:
    """Noise rates of the M annotators, and of all answers together (arrays of length one).

    Args:
        answers: Answers of all annotators.
        fit: The model fitted to them.
        level: Nominal coverage of the intervals.
    """
    wrong = np.stack([_wrong(answers, fit, fit.transitions, w) for w in (fit.weight, fit.weight**2, fit.weight**0.5)])
    if answers.answers_of_items.max(initial=0) <= 1:
        wrong = np.stack([wrong[0], _wrong_if_one_is_right(answers, fit)])
    counts = np.bincount(answers.annotator, minlength=answers.num_annotators)
    sums = np.stack([_sums(answers, row) for row in wrong])
    variances, variance = _variances(answers, fit)
    own = _intervals(sums, counts, counts, variances, level)
    # Answers to one item are not independent, so that items are counted here.
    items = np.array([(answers.answers_of_items > 0).sum()])
    return own, _intervals(wrong.sum(axis=1, keepdims=True), np.array([len(answers)]), items, variance, level)


def _sums(answers: Answers, values: Array) -> Array:
    """(M,) sums of (A,) values over the answers of each annotator."""
    return np.bincount(answers.annotator, values, minlength=answers.num_annotators).astype(np.float64)


def _variances(answers: Answers, fit: CrowdFit) -> tuple[Array, Array]:
    """Variances of the rates of annotators, (M,), and of that of all, (1,), because the matrices are estimates."""
    share = min(1.0, REFITTED_ANSWERS / max(1, len(answers)))
    kept = np.flatnonzero(np.random.default_rng(1).random(answers.num_items) < share)
    part = np.random.default_rng(0).permutation(len(kept)) % PARTS
    sample, of_sample = answers.take(kept), replace(fit, classifier_probs=fit.classifier_probs[kept])
    counts = np.bincount(sample.annotator, minlength=answers.num_annotators)
    rates, overall = [], []
    for left_out in range(PARTS):
        T = refit_transitions(sample, of_sample, np.flatnonzero(part != left_out))
        wrong = _wrong(sample, of_sample, T, fit.weight)
        rates.append(_sums(sample, wrong) / np.maximum(counts, 1))
        overall.append([wrong.mean()])
    factor = share * (PARTS - 1)
    return factor * np.var(rates, axis=0), factor * np.var(overall, axis=0)


def _wrong(answers: Answers, fit: CrowdFit, T: Array, weight: float) -> Array:
    """(A,) probabilities that the answers are wrong."""
    posteriors = clean_posteriors(answers, T, fit.classifier_probs, weight)
    return 1 - _of_answer(answers, posteriors)


def _of_answer(answers: Answers, posteriors: Array) -> Array:
    """(A,) probability that the clean label is the answer; zero for an abstention."""
    return np.where(
        answers.label < answers.num_classes,
        posteriors[answers.item, np.minimum(answers.label, answers.num_classes - 1)],
        0,
    )


def _wrong_if_one_is_right(answers: Answers, fit: CrowdFit) -> Array:
    wrong = np.empty(len(answers))
    for m in range(answers.num_annotators):
        own = np.flatnonzero(answers.annotator == m)
        if len(own):
            probs = fit.classifier_probs[answers.item[own]]
            wrong[own] = 1 - readings.read(answers.label[own], probs, fit.transitions[m], np.inf).quality
    return wrong


def _intervals(wrong: Array, counts: AnyArray, items: AnyArray, variance: Array, level: float) -> Rates:
    """Intervals around the first of (K, M) numbers of wrong answers, so wide that they hold for all K of them.

    Args:
        wrong: (K, M) estimated numbers of wrong answers.
        counts: (M,) numbers of answers.
        items: (M,) numbers of independent observations among them.
        variance: (M,) further variances of the shares.
        level: Nominal coverage.
    """
    given = counts > 0
    shares = wrong / np.where(given, counts, 1)
    tail = (1 - level) / 2

    def bound(share: Array, probability: float) -> Array:
        # As many independent observations as have the variance of both sources together.
        spread = np.maximum(share * (1 - share), 1e-6)
        observations = spread / (spread / np.maximum(items, 1) + variance)
        return scipy.stats.beta.ppf(probability, share * observations + 0.5, (1 - share) * observations + 0.5)

    rate = np.where(given, shares[0], np.nan)
    low = np.minimum(bound(shares.min(axis=0), tail), shares[0])
    high = np.maximum(bound(shares.max(axis=0), 1 - tail), shares[0])
    return Rates(rate, np.where(given, low, 0.0), np.where(given, high, 1.0))
