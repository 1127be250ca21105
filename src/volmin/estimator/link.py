"""From scores of a linear head to posteriors of the clean label, and T: fitted to noisy labels.

The model is ``P(noisy | x) = T softmax(t s(x) + b)`` for scores s of rows that the head was not fitted to. One slope t
and the intercepts b calibrate the scores; T has a dominant diagonal. All are found by maximum likelihood.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import numpy as np
import scipy.special
import torch

from volmin._typing import Array, Labels
from volmin.estimation.em import fit_transitions, split_by_label
from volmin.estimation.label_fit import LabelFit, fit_labels, head_posteriors
from volmin.estimation.minimum_volume import floored, log_likelihood
from volmin.noise import symmetric

SLOPE = 12.0
"""Slope from which the search starts: scores are near zero and one where a label is certain."""
SLOPE_RANGE = 0.05, 100.0
ROUNDS, STEPS = 2, 8
"""Updates of the intercepts for each slope, and EM steps of T in each of them."""
PSEUDO_COUNT = 1.0
"""Rows of each class that are added before intercepts are updated, so that an empty class keeps a finite one."""

SHRINKAGES = 0.1, 1.0, 10.0
"""Degrees to which T is shrunk to symmetric noise, where that makes held-out labels more likely."""

JOINT_ROWS = 2000
JOINT_STEPS = 50
"""Limits of the joint fit of T and of a matrix of slopes."""


class Judged(Protocol):
    """What has a mean log-likelihood of noisy labels."""

    @property
    def log_likelihood(self) -> float: ...


Found = TypeVar("Found", bound=Judged)


@dataclass(frozen=True)
class Link:
    """Posteriors of the clean label as a function of scores, and T.

    Attributes:
        slope: Factor t of the scores.
        intercepts: (C,) intercepts b.
        transition: (C, C) matrix T.
        log_likelihood: Mean log-likelihood of the noisy labels that it was fitted to.
        shrinkage: How far T is shrunk to symmetric noise: the weight of the latter, relative to that of the rows.
    """

    slope: float
    intercepts: Array
    transition: Array
    log_likelihood: float
    shrinkage: float = 0.0

    def posteriors(self, scores: Array) -> Array:
        """(N, C) posteriors of the clean label for (N, C) scores."""
        return floored(scipy.special.softmax(self.slope * scores + self.intercepts, axis=1))

    def log_likelihoods(self, scores: Array, labels: Labels) -> Array:
        """(N,) log-likelihood of each noisy label."""
        return log_likelihood(floored(self.posteriors(scores) @ self.transition.T), labels)


@dataclass(frozen=True)
class JointLink:
    """The link with a matrix of slopes, which heavy noise needs: ``label_fit`` on the scores.

    Attributes:
        link: The link with one slope, to whose log posteriors the matrix is applied.
        fit: The matrix, intercepts and T.
    """

    link: Link
    fit: LabelFit

    @property
    def transition(self) -> Array:
        return self.fit.transition

    def posteriors(self, scores: Array) -> Array:
        """(N, C) posteriors of the clean label for (N, C) scores."""
        flat = torch.from_numpy(np.log(self.link.posteriors(scores)))
        return floored(head_posteriors(torch.as_tensor(self.fit.parameters), flat).numpy())


def fit_link(
    scores: Array,
    labels: Labels,
    weights: Array,
    start: Link | None = None,
    *,
    factor: float = 2.0,
    rounds: int = ROUNDS,
) -> Link:
    """The link under which noisy labels are most likely.

    Args:
        scores: (N, C) scores of rows that the head was not fitted to.
        labels: (N,) noisy labels.
        weights: (N,) weights of the rows.
        start: A link of similar scores, from which the search starts.
        factor: Ratio of the slopes that are tried.
        rounds: Updates of the intercepts for each slope.
    """
    C = scores.shape[1]
    first = start or Link(SLOPE, np.zeros(C), np.full((C, C), 0.5 / C) + 0.5 * np.eye(C), -np.inf)

    def at(slope: float, near: Link | None) -> Link:
        return _at_slope(scores, labels, weights, slope, near or first, rounds)

    return climb(at, first.slope, factor, SLOPE_RANGE)


def shrunk(scores: Array, labels: Labels, weights: Array, fold: Labels, link: Link) -> Link:
    """The link with T shrunk to symmetric noise, as far as that makes the labels of rows outside T's fit more likely.

    Few rows of a class, or labels that are seldom right, say little about the single entries of T.

    Args:
        scores: (N, C) scores of rows that the head was not fitted to.
        labels: (N,) noisy labels.
        weights: (N,) weights of the rows.
        fold: (N,) fold of each row.
        link: The link with T as it is.
    """
    clean = link.posteriors(scores)
    outside = weights[:, None] * (fold[:, None] != np.unique(fold))
    by_label = split_by_label(clean, labels, outside)

    def held_out(shrinkage: float) -> float:
        added = 0.75 * _added(shrinkage, link.transition, weights)
        T = fit_transitions(
            by_label, link.transition[None], dominant=True, pseudo_counts=added, tolerance=1e-3, max_iterations=STEPS
        )
        probable = (clean * T[fold, labels]).sum(axis=1)
        return float(np.average(np.log(probable), weights=weights))

    degree = max((0.0, *SHRINKAGES), key=held_out)
    if degree == 0:
        return link
    return fit_link(scores, labels, weights, replace(link, shrinkage=degree))


def joint_links(scores: Array, labels: Labels, link: Link) -> list[JointLink]:
    """Two links with a matrix of slopes: started from the T of a link, and from symmetric noise of 50 %.

    Args:
        scores: (N, C) scores of rows that the head was not fitted to.
        labels: (N,) noisy labels.
        link: The link with one slope.
    """
    C = scores.shape[1]
    rows = np.random.default_rng(0).permutation(len(labels))[:JOINT_ROWS]
    flat = Link(SLOPE, np.zeros(C), np.eye(C), 0.0)
    inputs, noisy = torch.from_numpy(np.log(flat.posteriors(scores[rows]))), torch.from_numpy(labels[rows])
    starts = link.transition, np.full((C, C), 0.5 / C) + 0.5 * np.eye(C)
    return [JointLink(flat, fit_labels(inputs, noisy, start, JOINT_STEPS)) for start in starts]


def climb(
    at: Callable[[float, Found | None], Found], start: float, factor: float, limits: tuple[float, float]
) -> Found:
    """The likeliest of the results at ``start`` times powers of a factor, in the direction in which they improve.

    Args:
        at: Function of a value and of the best result so far.
        start: First value.
        factor: Ratio of neighbouring values.
        limits: Smallest and largest value.
    """
    best, value = at(start, None), start
    for ratio in (factor, 1 / factor):
        moved = False
        while limits[0] <= value * ratio <= limits[1]:
            found = at(value * ratio, best)
            if found.log_likelihood <= best.log_likelihood:
                break
            best, value, moved = found, value * ratio, True
        if moved:
            break
    return best


def _at_slope(scores: Array, labels: Labels, weights: Array, slope: float, start: Link, rounds: int) -> Link:
    T, intercepts = start.transition, start.intercepts
    for _ in range(rounds):
        clean = Link(slope, intercepts, T, 0.0).posteriors(scores)
        by_label = split_by_label(clean, labels, weights[:, None])
        added = _added(start.shrinkage, T, weights)
        T = fit_transitions(
            by_label, T[None], dominant=True, pseudo_counts=added, tolerance=1e-3, max_iterations=STEPS
        )[0]
        share = weights / (clean * T[labels]).sum(axis=1)
        expected = clean * T[labels] * share[:, None]
        ratio = (expected.sum(axis=0) + PSEUDO_COUNT) / (weights @ clean + PSEUDO_COUNT)
        intercepts = intercepts + np.log(ratio)
    found = replace(start, slope=slope, intercepts=intercepts, transition=T)
    return replace(found, log_likelihood=float(np.average(found.log_likelihoods(scores, labels), weights=weights)))


def _added(shrinkage: float, T: Array, weights: Array) -> Array:
    """(C, C) numbers of labels that are added to T: symmetric noise of the rate of T."""
    C = len(T)
    return shrinkage * weights.sum() / C * symmetric(C, float(1 - np.diag(T).mean()))
