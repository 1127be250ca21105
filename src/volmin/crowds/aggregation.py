"""Consensus from answers alone: majority vote, and the model of Dawid and Skene."""

from __future__ import annotations

import numpy as np
from scipy.special import softmax

from volmin._typing import Array
from volmin.crowds.answers import Answers

SMALLEST = 1e-12
"""Smallest probability whose logarithm is taken."""


def vote_shares(answers: Answers) -> Array:
    """(N, C) share of each class in the answers of an item; the shares of all answers for an item without any."""
    C = answers.num_classes
    valid = answers.label < C
    one_hot = np.zeros((len(answers), C))
    one_hot[valid, answers.label[valid]] = 1
    votes = answers.evidence(one_hot)
    total = votes.sum(axis=1, keepdims=True)
    overall = (votes.sum(axis=0) + 1 / C) / (votes.sum() + 1)
    return np.where(total > 0, votes / np.maximum(total, 1), overall)


def dawid_skene(
    answers: Answers, *, pseudo_count: float = 0.1, tolerance: float = 1e-4, max_iterations: int = 200
) -> tuple[Array, Array, Array]:
    """Maximum likelihood of a matrix for each annotator and the clean labels, by EM from the vote shares.

    Reference: Dawid, Skene, "Maximum Likelihood Estimation of Observer Error-Rates Using the EM Algorithm", 1979.

    Args:
        answers: Answers of all annotators.
        pseudo_count: Answers added to each entry of a matrix, so that none is zero.
        tolerance: Largest change of a posterior in the last iteration.
        max_iterations: Limit of EM iterations.

    Returns:
        (N, C) posteriors of the clean label, (M, R, C) matrices, (C,) class priors.
    """
    posteriors, change = vote_shares(answers), np.inf
    iteration = 0
    while True:
        T = answers.per_answer(posteriors[answers.item]) + pseudo_count
        T /= T.sum(axis=1, keepdims=True)
        prior = posteriors.mean(axis=0)
        if change <= tolerance or iteration == max_iterations:
            return posteriors, T, prior
        previous, posteriors = posteriors, posteriors_given_answers(answers, T, prior)
        change, iteration = np.abs(posteriors - previous).max(), iteration + 1


def posteriors_given_answers(answers: Answers, T: Array, prior: Array, weight: float = 1.0) -> Array:
    """(N, C) Bayes' rule: proportional to ``prior * product of T[m, answer] ** weight`` over the answers of an item.

    Args:
        answers: Answers of all annotators.
        T: (M, R, C) matrices.
        prior: (C,) or (N, C) posteriors before the answers are seen.
        weight: Weight of an answer; below 1 where annotators err on the same items.
    """
    votes = answers.evidence(log(T[answers.annotator, answers.label]))
    return softmax(log(prior) + weight * votes, axis=1)


def log(probs: Array) -> Array:
    """Logarithm of probabilities, kept finite at zero."""
    return np.log(np.maximum(probs, SMALLEST))
