"""Noise rate of each annotator, with an interval.

The noise rate is the share of an annotator's answers that differ from the clean label, the mean of ``1 - P(clean =
answer)`` over the answers. How far answers to one item may be trusted as separate observations is known only roughly:
with a weight w of an answer (``fit_crowd``), the rates under w squared and under the square root of w are plausible
too. The three are equal where w = 1, and far apart where annotators err on the same items. The interval reaches from
the lower bound of the lowest to the upper bound of the highest rate, each with the uncertainty of a binomial count and
of the model (a jackknife over parts of the items, which fits the classifier and all matrices anew). Bounds are rounded
outwards to shares that the number of answers allows.

Where no item has more than one answer, as with groups of single labels, w plays no role, and the second rate is that
of the reading in which each example has one right label (``volmin.readings``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import scipy

from volmin import readings
from volmin._typing import AnyArray, Array, Labels
from volmin.crowds.aggregation import posteriors_given_answers
from volmin.crowds.answers import Answers
from volmin.crowds.consensus import CrowdFit, refit_transitions
from volmin.crowds.head import regressors
from volmin.crowds.joint import fit_jointly

PARTS = 10
"""Parts of the items; the jackknife leaves out one after another."""

REFITTED_ANSWERS = 100_000
REFITTED_NUMBERS = 10_000_000
"""Largest numbers of answers, and of items times features, of the jackknife; the variance of more answers is taken to
fall with their number."""


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


def annotator_rates(
    answers: Answers, fit: CrowdFit, features: AnyArray | None = None, level: float = 0.95
) -> tuple[Rates, Rates]:
    """Noise rates of the M annotators, and of all answers together (arrays of length one).

    Args:
        answers: Answers of all annotators.
        fit: The model fitted to them.
        features: (N, ...) features that it was fitted with, if any.
        level: Nominal coverage of the intervals.
    """
    wrong = np.stack([_wrong(answers, fit, w) for w in (fit.weight, fit.weight**2, fit.weight**0.5)])
    if answers.answers_of_items.max(initial=0) <= 1:
        wrong = np.stack([wrong[0], _wrong_if_one_is_right(answers, fit)])
    counts = np.bincount(answers.annotator, minlength=answers.num_annotators)
    sums = np.stack([_sums(answers, row) for row in wrong])
    variances, variance = _variances(answers, fit, features, level)
    own = _intervals(sums, counts, counts, variances, level)
    # Answers to one item are not independent, so that items are counted here.
    items = np.array([(answers.answers_of_items > 0).sum()])
    return own, _intervals(wrong.sum(axis=1, keepdims=True), np.array([len(answers)]), items, variance, level)


def _sums(answers: Answers, values: Array) -> Array:
    """(M,) sums of (A,) values over the answers of each annotator."""
    return np.bincount(answers.annotator, values, minlength=answers.num_annotators).astype(np.float64)


def _variances(answers: Answers, fit: CrowdFit, features: AnyArray | None, level: float) -> tuple[Array, Array]:
    """Variances of the rates of annotators, (M,), and of that of all, (1,), because the model is an estimate.

    Times the square of the ratio of the quantiles of Student's and the normal distribution, since the variance itself
    is estimated from few parts.
    """
    most = REFITTED_ANSWERS / max(1, len(answers))
    if features is not None:
        most = min(most, REFITTED_NUMBERS / max(1, features.size))
    share = min(1.0, most)
    kept = np.flatnonzero(np.random.default_rng(1).random(answers.num_items) < share)
    part = np.random.default_rng(0).permutation(len(kept)) % PARTS
    sample = answers.take(kept)
    counts = np.bincount(sample.annotator, minlength=answers.num_annotators)
    rates, overall = [], []
    for h, T in _refits(sample, fit, features, kept, part):
        wrong = 1 - _of_answer(sample, posteriors_given_answers(sample, T, h, fit.weight))
        rates.append(_sums(sample, wrong) / np.maximum(counts, 1))
        overall.append([wrong.mean()])
    tail = (1 - level) / 2
    quantiles = float(scipy.stats.t.ppf(tail, PARTS - 1) / scipy.stats.norm.ppf(tail))
    factor = share * (PARTS - 1) * quantiles**2
    return factor * np.var(rates, axis=0), factor * np.var(overall, axis=0)


def _refits(
    sample: Answers, fit: CrowdFit, features: AnyArray | None, kept: Labels, part: Labels
) -> Iterator[tuple[Array, Array]]:
    """Posteriors of the items of the sample, (N, C), and matrices, (M, R, C), fitted without each part of the items."""
    if features is None or sample.source is not None:  # the joint fit knows no copies
        h = fit.classifier_probs[kept]
        of_sample = replace(fit, classifier_probs=h)
        for left_out in range(PARTS):
            yield h, refit_transitions(sample, of_sample, np.flatnonzero(part != left_out))
        return
    x = regressors(features[kept])
    whole = fit_jointly(sample, x, fit.ridge, fit.lam, weight=fit.weight)
    for left_out in range(PARTS):
        rest = np.flatnonzero(part != left_out)
        found = fit_jointly(
            sample.take(rest), x[rest], fit.ridge, fit.lam, weight=fit.weight, start=whole, max_iterations=100
        )
        yield found.posteriors(x), found.transitions


def _wrong(answers: Answers, fit: CrowdFit, weight: float) -> Array:
    """(A,) probabilities that the answers are wrong."""
    posteriors = posteriors_given_answers(answers, fit.transitions, fit.classifier_probs, weight)
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
    # The number of wrong answers is whole: without rounding, none of 5 would never be inside.
    total = np.maximum(counts, 1)
    low, high = np.floor(low * total) / total, np.ceil(high * total) / total
    return Rates(rate, np.where(given, low, 0.0), np.where(given, high, 1.0))
