"""The consensus of several annotators and a classifier: a T for each annotator, and the clean label of each item.

The model: item i has a clean label k with probability ``h_k(x_i)``, by a softmax regression on the features, and
annotator m answers y with probability ``T[m, y, k]``. How much the answers to one item depend on each other is a
parameter. For the answer of annotator m, the answers of the others count with a weight w,

    q_im(k)  proportional to  h_k(x_i) * T[m, y_im, k] * product over other annotators of T[m', y_im', k] ** w.

With w = 1 every item has one clean label that all annotators see (Dawid and Skene, with features: Raykar et al.). With
w = 0 the answers are independent given x, since an item may rightly carry several labels (the model of crowd layers and
of GeoCrowdNet). Annotators who err on the same hard items are in between. The weight, the strength by which the T of an
annotator is shrunk towards the pooled T, and the power (sharpness) to which ``h`` is raised, which calibrates it, are
those under which each answer is best predicted from the others.

EM alternates between q, the regression (fitted to the mean of q over the answers of an item, and evaluated on items it
was not fitted to) and

    T[m, y, k]  proportional to  (count of q_im(k) with answer y) + strength * T_pooled[y, k] - volume slope,

where the last term is T times the derivative of ``lam * log volume`` of the stacked matrices. It starts from the vote
shares and, with features, also from a joint fit of a regression and all T with the volume penalty (VolMinNet with a T
for each annotator), which finds T where most items have a single answer. The result is kept whose score, the mean
log-probability of held-out answers, less ``lam`` times the log volume is larger.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
import torch
from scipy.special import softmax

from volmin._typing import AnyArray, Array, Labels
from volmin.crowds.aggregation import log, posteriors_given_answers, vote_shares
from volmin.crowds.answers import Answers
from volmin.crowds.head import CrossFittedHead, cross_fitted_head, regressors
from volmin.crowds.joint import choose_ridge, fit_jointly
from volmin.crowds.transitions import stacked
from volmin.progress import Progress
from volmin.transition import log_volume

WEIGHTS = (0.0, 0.1, 0.25, 0.35, 0.5, 0.7, 1.0)
STRENGTHS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
SHARPNESSES = (1.0, 1.5, 2.0, 3.0)
"""Candidates for the weight of the other answers, for the strength of the shrinkage in answers per class, and for the
sharpness of the classifier. The last is at least 1, because the ridge penalty makes posteriors less certain, and below
1 annotators who copy each other would prevail over the classifier. It is 1 if no item has several answers, where it
cannot be told from T."""

LAM = 1e-3
"""Weight of the log volume relative to the mean log-likelihood of an answer."""

ROUNDS = 6
"""Fits of the regression; the posteriors hardly change after these."""
STEPS = 10
"""EM steps for T between two fits of the regression."""
STEPS_ALONE = 60
"""EM steps for T without features."""
EVEN_ANSWERS = 4.0
"""Answers per class and annotator by which the pooled T is shrunk, without features, towards the T that treats all
classes alike. Only the answers themselves then say which are right, and where annotators give few, a T of any form lets
EM prefer some classes, so that it is less accurate than the majority vote."""
TOLERANCE = 1e-5
"""Mean change of the posteriors of an answer below which EM ends."""

MANY_ANSWERS = 200_000
"""With more answers, and more than two per item, EM starts from the vote shares only, which takes half the time."""

SCORED_ANSWERS = 50_000
"""Largest number of answers that weight and strength are chosen by."""


@dataclass(frozen=True)
class CrowdFit:
    """The fitted model.

    Attributes:
        transitions: (M, R, C) matrices of the annotators, shrunk towards ``pooled``.
        pooled: (R, C) matrix of all answers.
        classifier_probs: (N, C) posteriors of the clean label from the features alone, out of fold; the class priors
            without features.
        clean_probs: (N, C) posteriors of the clean label from features and answers.
        weight: Weight of an answer beside the others; below 1 where annotators err on the same items.
        strength: Answers per class by which an annotator's matrix is shrunk towards ``pooled``.
        score: Mean log-probability of an answer, predicted from the features and the other answers.
        ridge: Ridge penalty of the classifier; zero without features.
        lam: Weight of the log volume.
    """

    transitions: Array
    pooled: Array
    classifier_probs: Array
    clean_probs: Array
    weight: float
    strength: float
    score: float
    ridge: float
    lam: float


def fit_crowd(
    answers: Answers,
    features: AnyArray | None = None,
    *,
    lam: float = LAM,
    folds: int = 5,
    random_state: int = 0,
    progress: Progress | None = None,
) -> CrowdFit:
    """Fit the model of this module.

    Args:
        answers: Answers of all annotators.
        features: (N, ...) features of the items; without them the classifier is the class priors.
        lam: Weight of the log volume of the stacked matrices.
        folds: Number of folds of the cross-fitted regression.
        random_state: Random seed of the folds.
        progress: Callback ``(title, done, total)``.
    """
    if progress is not None:
        progress("consensus", 0, ROUNDS)
    shares = vote_shares(answers)
    if features is None:
        return _Expectation(answers, None, lam, progress, 1).run(shares[answers.item])
    x = regressors(features)
    head = cross_fitted_head(x, shares, answers, folds, random_state)
    head.ridge = choose_ridge(answers, x, head.fold, head.ridge, lam)
    if len(answers) > max(MANY_ANSWERS, 2 * answers.num_items):
        return _Expectation(answers, head, lam, progress, 1).run(shares[answers.item])
    from_votes = _Expectation(answers, head, lam, progress, 2).run(shares[answers.item])
    joint = fit_jointly(answers, x, head.ridge, lam)
    own = log(joint.transitions[answers.annotator, answers.label])
    head = CrossFittedHead(x, head.fold, head.ridge, [joint.weights] * folds)
    from_joint = _Expectation(answers, head, lam, progress, 2, ROUNDS).run(
        softmax(log(joint.posteriors(x))[answers.item] + own, axis=1)
    )
    # Where the classifier fits any T equally well, the scores are equal, and the volume decides.
    return max(from_votes, from_joint, key=lambda fit: fit.score - lam * _log_volume(fit.transitions))


def refit_transitions(answers: Answers, fit: CrowdFit, items: Labels) -> Array:
    """(M, R, C) matrices fitted to the answers to some items (ascending numbers), with the classifier of ``fit``."""
    part, h, T = answers.take(items), fit.classifier_probs[items], fit.transitions
    expectation = _Expectation(part, None, fit.lam, None, 1)
    expectation.weight, expectation.strength = fit.weight, fit.strength
    expectation.even_answers *= fit.ridge == 0
    for _ in range(2 * STEPS):
        T = expectation.maximised(expectation.expected(h, T), T)
    return T


class _Expectation:
    """EM for the model of this module."""

    def __init__(
        self,
        answers: Answers,
        head: CrossFittedHead | None,
        lam: float,
        progress: Progress | None,
        starts: int,
        done: int = 0,
    ) -> None:
        self.answers, self.head, self.lam, self.progress = answers, head, lam, progress
        self.done, self.total = done, starts * ROUNDS
        self.weight, self.strength, self.sharpness = 1.0, 8.0, 1.0
        self.even_answers = EVEN_ANSWERS * len(np.unique(answers.annotator)) if head is None else 0.0
        step = max(1, len(answers) // SCORED_ANSWERS)
        self.scored: slice = slice(None, None, step)

    def run(self, q: Array) -> CrowdFit:
        """EM from (A, C) posteriors of the clean label behind each answer."""
        answers, score = self.answers, -np.inf
        T = self.maximised(q, None)
        h = np.empty(0)
        for number in range(ROUNDS if self.head is not None else 1):
            targets = answers.per_item(q) / np.maximum(answers.answers_of_items, 1)[:, None]
            h = self.classifier(targets)
            for _ in range(STEPS if self.head is not None else STEPS_ALONE):
                T = self.maximised(q, T)
                before, q = q, self.expected(h, T)
                if np.abs(q - before).mean() < TOLERANCE:
                    break
                if self.head is None:
                    targets = answers.per_item(q) / np.maximum(answers.answers_of_items, 1)[:, None]
                    h = self.classifier(targets)
            score = self.choose(h, T, q)
            h = _sharpened(h, self.sharpness)
            q = self.expected(h, T)
            if self.progress is not None:
                self.progress("consensus", self.done + number + 1, self.total)
        T = self.maximised(q, T)
        posteriors = posteriors_given_answers(answers, T, h, self.weight)
        ridge = 0.0 if self.head is None else self.head.ridge
        pooled = self.pooled(answers.per_answer(q))
        return CrowdFit(T, pooled, h, posteriors, self.weight, self.strength, score, ridge, self.lam)

    def classifier(self, targets: Array) -> Array:
        """(N, C) posteriors from the features; the class priors without features."""
        answered = self.answers.answers_of_items
        if self.head is not None:
            return self.head.predict(targets, answered)
        prior = (targets.sum(axis=0) + 1) / (targets.sum() + targets.shape[1])
        return np.broadcast_to(prior, targets.shape)

    def expected(self, h: Array, T: Array) -> Array:
        """(A, C) posteriors of the clean label behind each answer."""
        answers = self.answers
        own = log(T[answers.annotator, answers.label])
        return softmax(log(h)[answers.item] + own + self.weight * answers.evidence_of_others(own), axis=1)

    def maximised(self, q: Array, T: Array | None) -> Array:
        """(M, R, C) matrices for the posteriors of each answer."""
        counts = self.answers.per_answer(q)
        pooled = self.pooled(counts)
        if T is not None and self.lam > 0:
            counts = counts - self.lam * len(self.answers) * T * _volume_slope(T)
        counts = np.maximum(counts + self.strength * pooled, 1e-9)
        return counts / counts.sum(axis=1, keepdims=True)

    def pooled(self, counts: Array) -> Array:
        """(R, C) matrix of all annotators, with one answer added to each class."""
        _, R, C = counts.shape
        total = counts.sum(axis=0) + 0.5 / R + 0.5 * np.eye(R, C)
        total = total + self.even_answers * _even(total / total.sum())
        return total / total.sum(axis=0)

    def choose(self, h: Array, T: Array, q: Array) -> float:
        """Set weight, strength and sharpness to those under which held-out answers are most probable.

        The mean log-probability of these answers is returned. An answer is left out of the counts of its annotator's
        matrix, and of the posterior of its item.
        """
        answers, counts = self.answers, self.answers.per_answer(q)
        pooled, mass = self.pooled(counts), counts.sum(axis=1)
        own = log(T[answers.annotator, answers.label])
        others = answers.evidence_of_others(own)[self.scored]
        item, annotator, label = (part[self.scored] for part in (answers.item, answers.annotator, answers.label))
        mean, q = log(h)[item], q[self.scored]
        row, column = counts[annotator, label] - q, mass[annotator] - q
        likelihood = {
            strength: np.maximum(strength * pooled[label] + row, 1e-9) / np.maximum(strength + column, 1e-9)
            for strength in STRENGTHS
        }
        several = self.head is not None and answers.answers_of_items.max() > 1
        best = (-np.inf, self.weight, self.strength, self.sharpness)
        for weight, sharpness in product(WEIGHTS, SHARPNESSES if several else (1.0,)):
            predicted = softmax(sharpness * mean + weight * others, axis=1)
            for strength, rows in likelihood.items():
                found = float(log((predicted * rows).sum(axis=1)).mean())
                best = max(best, (found, weight, strength, sharpness))
        score, self.weight, self.strength, self.sharpness = best
        return score


def _even(joint: Array) -> Array:
    """The (R, C) matrix with the same share of right answers in every class, and equal shares of the wrong ones.

    Args:
        joint: (R, C) shares of answer and class; rows from C on are abstentions.
    """
    R, C = joint.shape
    right, abstained = np.trace(joint[:C]), joint[C:].sum(axis=1)
    even = np.full((R, C), (1 - right - abstained.sum()) / (C - 1))
    np.fill_diagonal(even, right)
    even[C:] = abstained[:, None]
    return even


def _sharpened(h: Array, sharpness: float) -> Array:
    """Posteriors h, (N, C), proportional to their power."""
    return h if sharpness == 1 else softmax(sharpness * log(h), axis=1)


def _log_volume(T: Array) -> float:
    """Log volume of the stacked matrices, (M, R, C)."""
    return float(log_volume(stacked(torch.as_tensor(T))))


def _volume_slope(T: Array) -> Array:
    """Gradient of the log volume of the stacked matrices, (M, R, C)."""
    point = torch.tensor(T, requires_grad=True)
    (slope,) = torch.autograd.grad(log_volume(stacked(point)), point)
    return slope.numpy()
