"""VolMinNet with a T for each annotator and a linear classifier, fitted by L-BFGS.

The classifier h and all matrices minimise, with S the stack of the matrices,

    mean over answers of -log (T[m] h(x))[y]  +  lam * log volume of S  +  ridge / 2 |weights|^2  +  prior of T[m].

With a weight, each answer counts together with the other answers to its item, as in ``volmin.crowds.consensus``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy
import torch
from scipy.special import softmax
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from volmin._typing import Array, Labels
from volmin.crowds.answers import Answers
from volmin.crowds.head import Features
from volmin.crowds.transitions import AnnotatorTransitions, stacked, votes_nll
from volmin.transition import log_volume

MOST_ITEMS = 20_000
"""Largest number of items of the joint fit, which is a start for EM on all of them."""

RIDGE_DIVISORS = (1, 3, 10, 30, 100)
"""Candidates for the ridge penalty, relative to that of a regression on the votes, which needs a stronger one."""

CLEARLY_WORSE = 0.01
"""Weaker penalties are no longer tried after the score of an answer has fallen by this much below the best."""

SHRINKAGE = 4.0
"""Precision of the Gaussian prior on the deviations of an annotator's matrix from the pooled one."""


@dataclass(frozen=True)
class JointFit:
    """A linear classifier and a T for each annotator.

    Attributes:
        weights: (D, C) weights of the classifier.
        transitions: (M, R, C) matrices.
        parameters: All parameters in one vector, from which another fit can start.
    """

    weights: Array
    transitions: Array
    parameters: Array

    def posteriors(self, x: Features) -> Array:
        """(N, C) posteriors of the clean label for features with a last column of ones."""
        return softmax(x @ self.weights.astype(x.dtype), axis=1)

    def mean_log_likelihood(self, answers: Answers, x: Features) -> float:
        """Mean log-probability of an answer, given the features alone."""
        h = self.posteriors(x)[answers.item]
        return float(np.log((h * self.transitions[answers.annotator, answers.label]).sum(axis=1) + 1e-12).mean())


def choose_ridge(answers: Answers, x: Features, fold: Labels, strongest: float, lam: float) -> float:
    """The ridge penalty, at most ``strongest``, with the best score of the answers to items of the first fold.

    The score is their mean log-likelihood less ``lam`` times the log volume. A ridge penalty keeps posteriors from
    being certain, so that where any T fits equally well, a strong one would bring T close to the identity.
    """
    fitted, held_out = (_sample(rows) for rows in (np.flatnonzero(fold != 0), np.flatnonzero(fold == 0)))
    best, best_score = strongest, -np.inf
    for divisor in RIDGE_DIVISORS:
        found = fit_jointly(answers.take(fitted), x[fitted], strongest / divisor, lam, max_iterations=100)
        volume = float(log_volume(stacked(torch.as_tensor(found.transitions))))
        score = found.mean_log_likelihood(answers.take(held_out), x[held_out]) - lam * volume
        if score > best_score:
            best, best_score = strongest / divisor, score
        elif score < best_score - CLEARLY_WORSE:
            break  # weaker penalties overfit even more
    return best


def fit_jointly(
    answers: Answers,
    x: Features,
    ridge: float,
    lam: float,
    *,
    weight: float = 0.0,
    start: JointFit | None = None,
    max_iterations: int = 200,
) -> JointFit:
    """Fit the classifier and all matrices together.

    Args:
        answers: Answers of all annotators.
        x: (N, D) standardised features with a last column of ones, which is not penalised.
        ridge: Weight of the penalty on the classifier's weights.
        lam: Weight of the log volume.
        weight: Weight of the other answers to the same item.
        start: A fit to start from.
        max_iterations: Limit of L-BFGS iterations.
    """
    rows = _sample(np.arange(answers.num_items))
    answers, x = answers.take(rows), x[rows]
    features = torch.as_tensor(x)
    item, annotator, label = (torch.as_tensor(part) for part in (answers.item, answers.annotator, answers.label))
    C, A = answers.num_classes, max(1, len(answers))
    matrices = AnnotatorTransitions(C, answers.num_annotators, abstains=answers.num_labels > C).double()
    weights = nn.Parameter(torch.zeros(x.shape[1], C, dtype=torch.float64))
    parameters = nn.ParameterList([weights, *matrices.parameters()])

    def objective(vector: Array) -> tuple[float, Array]:
        vector_to_parameters(torch.as_tensor(vector), parameters)
        T = matrices()
        nll = votes_nll((features @ weights.to(features.dtype)).double(), T, item, annotator, label, weight)
        penalty = ridge / 2 * weights[:-1].square().sum() + SHRINKAGE / A * matrices.penalty()
        value = nll + lam * log_volume(stacked(T)) + penalty
        slopes = torch.autograd.grad(value, list(parameters))
        return value.item(), parameters_to_vector(slopes).numpy()

    first = parameters_to_vector(parameters).detach().numpy() if start is None else start.parameters
    options = {"maxiter": max_iterations, "maxcor": 20}
    with torch.enable_grad():
        found = scipy.optimize.minimize(objective, first, jac=True, method="L-BFGS-B", options=options)
    vector_to_parameters(torch.as_tensor(found.x), parameters)
    with torch.no_grad():
        return JointFit(weights.detach().numpy(), matrices().numpy(), found.x)


def _sample(items: Labels) -> Labels:
    """Evenly spread items, at most ``MOST_ITEMS``."""
    return items if len(items) <= MOST_ITEMS else items[np.linspace(0, len(items) - 1, MOST_ITEMS).astype(np.int64)]
