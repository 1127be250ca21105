"""Whether annotators differ.

Each answer has a context r, the distribution of the clean label given the features and the *other* answers to the item,
under which the annotator answers y with probability ``sum_k r_k T[m, y, k]``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

from volmin._typing import Array, Labels
from volmin.crowds.aggregation import log
from volmin.crowds.answers import Answers
from volmin.crowds.consensus import CrowdFit

TESTED_ANSWERS = 20_000
"""Largest number of answers that the likelihood-ratio test uses."""

EM_STEPS = 10
"""Steps from the pooled T towards that of each annotator; data and simulations take the same number."""


@dataclass(frozen=True)
class AnnotatorComparison:
    """A likelihood-ratio test of whether all annotators have the same T.

    Attributes:
        statistic: Twice the gain in log-likelihood of a T for each annotator over one T for all.
        p_value: Share of simulations with one T for all in which the statistic is at least as large.
        simulations: Number of simulations; the p-value is at least ``1 / (simulations + 1)``.
    """

    statistic: float
    p_value: float
    simulations: int


def contexts(answers: Answers, fit: CrowdFit) -> Array:
    """(A, C) distributions of the clean label given the features and the other answers to the item."""
    own = log(fit.transitions[answers.annotator, answers.label])
    return softmax(log(fit.classifier_probs)[answers.item] + fit.weight * answers.evidence_of_others(own), axis=1)


def compare_annotators(
    answers: Answers, context: Array, *, simulations: int = 99, random_state: int = 0
) -> AnnotatorComparison | None:
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
    return AnnotatorComparison(statistic, (1 + as_large) / (simulations + 1), simulations)


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
