"""Annotators who copy each other, found by their agreement and by what their answers say about those of others.

Two annotators who always agree look perfect to a model in which annotators err independently: it takes their answers
for the truth, and gives the mistakes that they share to everybody else. What shows this is that the others then agree
with each other where they should not. ``with_sources`` therefore compares, for the pairs that agree conspicuously
often, how well the answers of everybody else are predicted if the equal answers of the pair count once, with how well
they are predicted if all count. It uses the model of Dawid and Skene, which needs no features.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy
from scipy.special import softmax

from volmin._typing import Array, Labels
from volmin.crowds.aggregation import dawid_skene, log
from volmin.crowds.answers import Answers
from volmin.crowds.consensus import CrowdFit

COMPARED_PAIRS = 500_000
"""Largest number of pairs of answers to one item that are searched for copies."""

FEWEST_SHARED = 15
"""Pairs of annotators with fewer common items are not examined for copies."""

EXCESS = 0.1
"""Annotators copy each other only if they agree on a larger share of items than expected by more than this."""

TRIED_PAIRS = 5
"""Largest number of pairs whose answers are tried as those of one source."""

TRIED_ITEMS = 5_000
"""Largest number of items that this uses."""

CLEAR_GAIN = 3.0
"""Two annotators share a source only if the others' answers are better predicted by this number of standard errors."""


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


def with_sources(answers: Answers) -> Answers:
    """The answers with the sources that annotators share, as far as this makes everybody else easier to predict."""
    step = -(-answers.num_items // TRIED_ITEMS)
    sample = answers.take(np.arange(0, answers.num_items, step))
    tried = _conspicuous(sample)
    now = _log_probs(sample) if tried else np.empty(0)
    while tried:
        gains = []
        for first, second in tried:
            joined = _log_probs(sample.joined(first, second))
            gain = (joined - now)[(sample.annotator != first) & (sample.annotator != second)]
            gains.append((gain.sum() / max(1e-9, gain.std() * np.sqrt(len(gain))) if len(gain) else 0.0, joined))
        best = int(np.argmax([gain for gain, _ in gains]))
        if gains[best][0] < CLEAR_GAIN:
            break
        now = gains[best][1]
        first, second = tried.pop(best)
        sample, answers = sample.joined(first, second), answers.joined(first, second)
    return answers


def _conspicuous(answers: Answers) -> list[tuple[int, int]]:
    """Pairs of annotators who agree much more often than either of them agrees with others."""
    first, second = _pairs(answers)
    M = answers.num_annotators
    pair, which = np.unique(answers.annotator[first] * M + answers.annotator[second], return_inverse=True)
    same = (answers.label[first] == answers.label[second]).astype(np.float64)
    shared, agreed = np.bincount(which, minlength=len(pair)), np.bincount(which, same, minlength=len(pair))
    one, other = np.divmod(pair, M)
    all_shared, all_agreed = (
        np.bincount(one, count, minlength=M) + np.bincount(other, count, minlength=M) for count in (shared, agreed)
    )

    def usual(who: Labels) -> Array:
        """Share of agreement with everybody else, (pairs,)."""
        return (all_agreed[who] - agreed + 0.5) / (all_shared[who] - shared + 1)

    excess = agreed / np.maximum(shared, 1) - np.maximum(usual(one), usual(other))
    rank = np.where((shared >= FEWEST_SHARED) & (excess > EXCESS), excess * np.sqrt(shared), 0)
    order = np.argsort(-rank, kind="stable")[:TRIED_PAIRS]
    return [(int(one[p]), int(other[p])) for p in order if rank[p] > 0]


def _log_probs(answers: Answers) -> Array:
    """(A,) log-probability of each answer given those of others to the item, in the model of Dawid and Skene."""
    _, T, prior = dawid_skene(answers, pseudo_count=1.0, tolerance=1e-3)
    own = log(T[answers.annotator, answers.label])
    context = softmax(log(prior) + answers.evidence_of_others(own), axis=1)
    return log((context * T[answers.annotator, answers.label]).sum(axis=1))


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
    own = answers.counted_once(own)
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
