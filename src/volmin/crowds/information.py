"""How much the answers of each annotator say about the class."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import xlogy

from volmin._typing import Array
from volmin.crowds.aggregation import log
from volmin.crowds.answers import Answers
from volmin.crowds.consensus import CrowdFit


@dataclass(frozen=True)
class Information:
    """What the answers say about the class, judged by how well the class predicts them.

    An answer is predicted from the features and the other answers to the item, with matrices and frequencies counted
    without this answer, so that an annotator with few answers is not mistaken for an informative one.

    Attributes:
        share: (M,) gain in the log-probability of an answer by what is known about the class, as a share of the gain
            for an annotator who makes no mistakes. About zero or below for answers that do not depend on the class.
        doubt: (M,) log-likelihood ratio of answers that do not depend on the class to answers by the pooled T.
    """

    share: Array
    doubt: Array


def information(answers: Answers, context: Array, fit: CrowdFit) -> Information:
    """What the answers of each annotator say about the class.

    Args:
        answers: Answers of all annotators.
        context: (A, C) distributions of the clean label given the features and the other answers (``contexts``).
        fit: The model fitted to them.
    """
    annotator, label = answers.annotator, answers.label
    q = context * fit.transitions[annotator, label]
    q /= q.sum(axis=1, keepdims=True)
    counts = answers.per_answer(q)
    row, column = counts[annotator, label] - q, counts.sum(axis=1)[annotator] - q
    T = (fit.strength * fit.pooled[label] + row) / (fit.strength + column)
    numbers = counts.sum(axis=2)
    given = np.maximum(numbers.sum(axis=1), 1)
    R = answers.num_labels
    frequency = (numbers[annotator, label] - 0.5) / (given[annotator] - 1 + R / 2)
    by_class, alike, by_pooled = (
        log(probs) for probs in ((context * T).sum(axis=1), frequency, (context * fit.pooled[label]).sum(axis=1))
    )

    def mean(values: Array) -> Array:
        """Mean over the answers of each annotator, (M,)."""
        return np.bincount(annotator, values, minlength=answers.num_annotators) / given

    def entropy(probs: Array) -> Array:
        return -xlogy(probs, probs).sum(axis=1)

    classes = np.stack([mean(column) for column in context.T], axis=1)
    known = entropy(classes) - mean(entropy(context))  # never negative: entropy is concave
    return Information(mean(by_class - alike) / np.maximum(known, 0.05), given * mean(alike - by_pooled))
