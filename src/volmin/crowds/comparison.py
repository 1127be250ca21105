"""Whether annotators differ, which of them copy each other, and how much their answers say about the class.

Each answer has a context r, the distribution of the clean label given the features and the *other* answers to the item,
under which the annotator answers y with probability ``sum_k r_k T[m, y, k]``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy
from scipy.special import softmax, xlogy

from volmin._typing import Array, Labels
from volmin.crowds.aggregation import log
from volmin.crowds.answers import Answers
from volmin.crowds.consensus import CrowdFit

TESTED_ANSWERS = 20_000
"""Largest number of answers that the likelihood-ratio test uses."""

EM_STEPS = 10
"""Steps from the pooled T towards that of each annotator; data and simulations take the same number."""

COMPARED_PAIRS = 500_000
"""Largest number of pairs of answers to one item that are searched for copies."""

FEWEST_SHARED = 15
"""Pairs of annotators with fewer common items are not examined for copies."""

EXCESS = 0.1
"""Annotators copy each other only if they agree on a larger share of items than expected by more than this."""


@dataclass(frozen=True)
class Comparison:
    """A likelihood-ratio test of whether all annotators have the same T.

    Attributes:
        statistic: Twice the gain in log-likelihood of a T for each annotator over one T for all.
        p_value: Share of simulations with one T for all in which the statistic is at least as large.
        simulations: Number of simulations; the p-value is at least ``1 / (simulations + 1)``.
    """

    statistic: float
    p_value: float
    simulations: int


@dataclass(frozen=True)
class Copying:
    """Two annotators who agree more often than their matrices explain.

    Attributes:
        first: Number of one annotator.
        second: Number of the other one.
        shared: Number of items that both answered.
        agreement: Share of these items with the same answer.
        expected: The share to be expected of independent annotators with these matrices on these items.
    """

    first: int
    second: int
    shared: int
    agreement: float
    expected: float


def contexts(answers: Answers, fit: CrowdFit) -> Array:
    """(A, C) distributions of the clean label given the features and the other answers to the item."""
    own = log(fit.transitions[answers.annotator, answers.label])
    others = answers.per_item(own)[answers.item] - own
    return softmax(log(fit.classifier_probs)[answers.item] + fit.weight * others, axis=1)


def compare_annotators(
    answers: Answers, context: Array, *, simulations: int = 99, random_state: int = 0
) -> Comparison | None:
    """Test whether all annotators have the same T; None if fewer than two have answers.

    The simulations draw every answer anew from the pooled T and its context, so that annotators may have answered items
    of different kinds.
    """
    if len(np.unique(answers.annotator)) < 2:
        return None
    chosen = np.unique(np.linspace(0, len(answers) - 1, min(len(answers), TESTED_ANSWERS)).astype(np.int64))
    context, annotator, label = context[chosen], answers.annotator[chosen], answers.label[chosen]
    _, annotator = np.unique(annotator, return_inverse=True)
    shape = (annotator.max() + 1, answers.num_labels, answers.num_classes)
    items = np.arange(len(chosen))

    def fitted(label: Labels) -> tuple[Array, float]:
        """The pooled T, and the statistic."""
        own = Answers(items, annotator, label, len(items), shape[0], shape[2], shape[1])
        all_one = Answers(items, np.zeros_like(annotator), label, len(items), 1, shape[2], shape[1])
        start = np.full(shape[1:], 0.5 / shape[1])
        start[np.arange(shape[2]), np.arange(shape[2])] += 0.5
        pooled, base = _maximised(all_one, context, start, 0.0)
        _, full = _maximised(own, context, pooled[0], 1.0)
        return pooled[0], 2 * (full - base)

    pooled, statistic = fitted(label)
    generator = np.random.default_rng(random_state)
    cumulative = (context @ pooled.T).cumsum(axis=1)[:, :-1]
    as_large = sum(
        fitted((generator.random((len(items), 1)) > cumulative).sum(axis=1))[1] >= statistic for _ in range(simulations)
    )
    return Comparison(statistic, (1 + as_large) / (simulations + 1), simulations)


def _maximised(answers: Answers, context: Array, start: Array, strength: float) -> tuple[Array, float]:
    """Matrices by EM with fixed contexts, shrunk towards ``start``, and their log-likelihood."""
    T = np.broadcast_to(start, (answers.num_annotators, *start.shape))
    for _ in range(EM_STEPS):
        q = context * T[answers.annotator, answers.label]
        q /= np.maximum(q.sum(axis=1, keepdims=True), 1e-300)
        T = answers.per_answer(q) + strength * start + 1e-9
        T = T / T.sum(axis=1, keepdims=True)
    likelihood = (context * T[answers.annotator, answers.label]).sum(axis=1)
    return T, float(log(likelihood).sum())


def information(fit: CrowdFit) -> Array:
    """(M,) mutual information of clean label and answer, as a share of the entropy of the clean label.

    Zero means that the answers do not depend on the class, as those of somebody who always gives the same answer.
    """
    prior = fit.clean_probs.mean(axis=0)
    answer = np.einsum("mrc,c->mr", fit.transitions, prior)
    given = -np.einsum("mrc,c->m", xlogy(fit.transitions, fit.transitions), prior)
    return (-xlogy(answer, answer).sum(axis=1) - given) / max(1e-12, float(-xlogy(prior, prior).sum()))


def find_copies(answers: Answers, fit: CrowdFit, *, significance: float = 0.01) -> list[Copying]:
    """Pairs of annotators who agree on more items than independent ones would, the largest excess first.

    What is expected follows from the matrices of both and the posterior of the clean label without their answers. All
    pairs agree a little more often on hard items than that; the median excess of all pairs is therefore subtracted.
    """
    first, second = _pairs(answers)
    if len(first) == 0:
        return []
    a, b = answers.annotator[first], answers.annotator[second]
    expected = _expected_agreement(answers, fit, first, second)
    same = (answers.label[first] == answers.label[second]).astype(np.float64)
    pair, which = np.unique(a * answers.num_annotators + b, return_inverse=True)
    shared, agreed, mean = (np.bincount(which, weights) for weights in (None, same, expected))
    variance = np.bincount(which, expected * (1 - expected))
    enough = shared >= FEWEST_SHARED
    if not enough.any():
        return []
    excess = np.divide(agreed - mean, shared, out=np.zeros(len(pair)), where=shared > 0)
    usual = max(0.0, float(np.median(excess[enough])))
    z = shared * (excess - usual) / np.sqrt(np.maximum(variance, 0.25))
    limit = scipy.stats.norm.isf(significance / enough.sum())
    found = np.flatnonzero(enough & (z > limit) & (excess - usual > EXCESS))
    one, other = np.divmod(pair, answers.num_annotators)
    return [
        Copying(int(one[p]), int(other[p]), int(shared[p]), float(agreed[p] / shared[p]), float(mean[p] / shared[p]))
        for p in found[np.argsort(-excess[found], kind="stable")]
    ]


def _pairs(answers: Answers) -> tuple[Labels, Labels]:
    """Positions of two answers to the same item, the annotator with the lower number first."""
    order = np.lexsort((answers.annotator, answers.item))
    numbers = answers.answers_of_items
    total = float((numbers * (numbers - 1) / 2).sum())
    if total > COMPARED_PAIRS:  # a random part of the items
        kept = np.random.default_rng(0).random(answers.num_items) < COMPARED_PAIRS / total
        order = order[kept[answers.item[order]]]
    item = answers.item[order]
    first, second = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for step in range(1, len(order)):
        place = np.flatnonzero(item[step:] == item[:-step])
        if len(place) == 0:
            break
        first.append(order[place])
        second.append(order[place + step])
    return np.concatenate(first), np.concatenate(second)


def _expected_agreement(answers: Answers, fit: CrowdFit, first: Labels, second: Labels) -> Array:
    """Probabilities that the two answers of a pair are equal, given features and the answers of others."""
    own = log(fit.transitions[answers.annotator, answers.label])
    total = answers.per_item(own)
    prior, expected = log(fit.classifier_probs), np.empty(len(first))
    for start in range(0, len(first), 50_000):
        here = slice(start, start + 50_000)
        i, j = first[here], second[here]
        item = answers.item[i]
        context = softmax(prior[item] + fit.weight * (total[item] - own[i] - own[j]), axis=1)
        T, U = fit.transitions[answers.annotator[i]], fit.transitions[answers.annotator[j]]
        expected[here] = ((T * U).sum(axis=1) * context).sum(axis=1)
    return expected
