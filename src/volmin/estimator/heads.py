"""Linear heads that compete by the likelihood of held-out noisy labels: the default of ``NoisyLabelClassifier``.

A head is ridge regression of the labels on scaled rows, on standardised rows, or on random features of either. Every
head is cross-fitted, and the model ``P(noisy | x) = T softmax(t s(x) + b)`` is fitted to its out-of-fold scores s. The
head under which the held-out noisy labels are most likely wins.

It is then fitted again, with a smaller penalty, to the posteriors of the clean labels given the noisy ones (EM for T
and the head), as often as that makes held-out noisy labels more likely. Where labels seem to be wrong about as often as
right, T may be one of several explanations, and EM is also started from a second one. Clean labels never choose
anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from joblib import Parallel, delayed
from numpy.random import Generator
from threadpoolctl import threadpool_limits
from torch import Tensor, nn

from volmin._typing import Array, Labels
from volmin.data.folds import assign_folds, first_copies
from volmin.estimation.minimum_volume import floored
from volmin.estimator.feature_maps import FeatureMap, feature_maps
from volmin.estimator.link import JointLink, Link, climb, fit_link, joint_links
from volmin.ridge import CHUNK, FoldRidge, Rows, Task, fit_in_parts, scores

SCREENED_ROWS = 3000
"""With more rows, all inputs compete on a sample of this size, and only the winner is fitted to more."""
CROSS_FITTED_ROWS = 20_000
"""With more rows, T and the penalty are found on a sample of this size; the last fit takes all rows."""
FOLDS = 4
FEWEST_ROWS = 50
"""With fewer rows nothing is held out: standardised rows with the penalty and the slope below, and no T."""
PENALTY_OF_FEW, SLOPE_OF_FEW = 0.1, 8.0

PENALTY, PENALTY_FACTOR, PENALTY_RANGE = 5e-3, 3.0, (1e-4, 1.0)
"""The first ridge penalty, relative to the mean squared length of a row, and the ratio of those that follow."""
NARROWING = (0.3, 0.1)
"""Factors of the winning penalty that are tried for posteriors of clean labels, which are less noisy than labels."""
MOST_REFITS = 6
FINE_FACTOR, FINE_ROUNDS = 1.2, 4
"""Ratio of slopes and number of updates of the last link."""
HEAVY_NOISE = 1 / 3
"""A wrong label of this frequency, relative to the right one, is reason to start EM from another T, too."""

JUDGED = [Task(k + 1, (k,), k) for k in range(FOLDS)]
"""Scores of each fold from the fit without it, to its own targets."""
EVERY = [Task(0, (k,), k) for k in range(FOLDS)]
OUTSIDE = [[Task(k + 1, (min(j, k), max(j, k)), j) for j in range(FOLDS) if j != k] for k in range(FOLDS)]
"""Out-of-fold scores of all rows, and of those outside of each fold, as if it did not exist."""


@dataclass(frozen=True)
class Candidate:
    """A head that took part.

    Attributes:
        name: Its inputs and what it was fitted to.
        penalty: Ridge penalty, relative to the mean squared length of a row.
        log_likelihood: Mean log probability of the noisy labels of rows that it was not fitted to.
        agreement: Share of these labels that are its most probable ones.
    """

    name: str
    penalty: float
    log_likelihood: float
    agreement: float


@dataclass(frozen=True)
class Chosen:
    """The network of the head that won, its T, and all heads that took part, the likeliest first."""

    network: nn.Sequential
    transition: Array
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True)
class _Fitted:
    """A head with the link of its out-of-fold scores.

    ``targets``, (1 + FOLDS, N, C), holds what the head was fitted to: for the fit to all rows, and for the fit without
    each fold, whose targets must not depend on the labels in this fold. ``held_out``: (N, C) out-of-fold scores.
    """

    candidate: Candidate
    problem: _Problem
    link: Link
    targets: Tensor
    held_out: Array

    @property
    def log_likelihood(self) -> float:
        return self.candidate.log_likelihood


def choose_head(
    x: Rows, labels: Labels, weights: Array, num_classes: int, *, linear: bool, seed: int, n_jobs: int | None = None
) -> Chosen:
    """The head that explains held-out noisy labels best, fitted to all rows.

    Args:
        x: (N, D) rows.
        labels: (N,) noisy labels.
        weights: (N,) weights of the rows.
        num_classes: Number of classes C.
        linear: Whether heads on random features are left out.
        seed: Random seed of folds, samples and random features.
        n_jobs: Number of threads that fit heads, as in joblib.
    """
    if weights.sum() < FEWEST_ROWS:
        return _of_few_rows(x, labels, weights, num_classes)
    with threadpool_limits(1, "blas"):  # for matrices this small, threads cost more than they save
        maps = feature_maps(x, weights, linear=linear, seed=seed)
        return _winner(x, labels, weights, num_classes, maps, seed, Parallel(n_jobs=n_jobs, prefer="threads"))


def _winner(
    x: Rows, labels: Labels, weights: Array, num_classes: int, maps: list[FeatureMap], seed: int, threads: Parallel
) -> Chosen:
    generator = np.random.default_rng(seed)
    order = generator.permutation(len(labels))
    screened, crossed = np.sort(order[:SCREENED_ROWS]), np.sort(order[:CROSS_FITTED_ROWS])
    sample = _sample(x[screened], labels[screened], weights[screened], num_classes, generator)
    competing: Any = threads(delayed(_fits)(inputs, sample, PENALTY) for inputs in maps)
    tried: list[_Fitted] = [fit for fits in competing for fit in fits]
    best = max(tried, key=_likelihood)
    if len(crossed) > len(screened):
        sample = _sample(x[crossed], labels[crossed], weights[crossed], num_classes, generator)
        again = _fits(best.problem.inputs, sample, best.candidate.penalty)
        tried, best = [*tried, *again], max(again, key=_likelihood)
    refits = best.problem.refits(best, best.link)
    if _is_heavy(max([best, *refits], key=_likelihood).link.transition):
        starts = joint_links(best.held_out, sample.labels, best.link)
        chains: Any = threads(delayed(best.problem.refits)(best, start) for start in starts)
        refits += [fit for fits in chains for fit in fits]
    tried, best = [*tried, *refits], max([best, *refits], key=_likelihood)
    link = fit_link(best.held_out, sample.labels, sample.weights, best.link, factor=FINE_FACTOR, rounds=FINE_ROUNDS)
    best = replace(best, link=link)
    every = len(labels) == len(crossed)
    coefficients = _coefficients(best) if every else _coefficients_of_all(best, x, labels, weights)
    candidates = sorted((fit.candidate for fit in tried), key=lambda found: -found.log_likelihood)
    return Chosen(best.problem.inputs.network(coefficients), best.link.transition, tuple(candidates))


@dataclass(frozen=True)
class _Sample:
    """Rows that are cross-fitted: (N, D) x, (N,) labels and weights, (N,) fold, (N, C) labels as distributions."""

    x: Rows
    labels: Labels
    weights: Array
    fold: Tensor
    targets: Tensor


def _sample(x: Rows, labels: Labels, weights: Array, num_classes: int, generator: Generator) -> _Sample:
    copies = first_copies(x.contiguous().numpy()) if isinstance(x, Tensor) else np.arange(len(labels))
    fold = torch.from_numpy(assign_folds(labels, copies, FOLDS, generator))
    return _Sample(x, labels, weights, fold, F.one_hot(torch.from_numpy(labels), num_classes).float())


class _Problem:
    """Cross-fitting of heads on the same inputs, rows and folds."""

    def __init__(self, inputs: FeatureMap, sample: _Sample) -> None:
        self.inputs, self.sample = inputs, sample
        weights = torch.from_numpy(sample.weights).float()
        self.ridge = FoldRidge(inputs.transform(sample.x), weights, sample.fold)

    def fit(self, name: str, targets: Tensor, penalty: float, near: Link | None) -> _Fitted:
        """A head for targets (of all rows, and of those outside of each fold), and the link of its held-out scores."""
        held_out = self._scores(targets, [JUDGED], penalty)[0]
        labels, weights = self.sample.labels, self.sample.weights
        link = fit_link(held_out, labels, weights, near)
        agreement = float(np.average(link.posteriors(held_out).argmax(axis=1) == labels, weights=weights))
        return _Fitted(Candidate(name, penalty, link.log_likelihood, agreement), self, link, targets, held_out)

    def refits(self, best: _Fitted, start: Link | JointLink) -> list[_Fitted]:
        """Rounds of EM from a head and a link, as long as held-out noisy labels become more likely."""
        name = f"{self.inputs.name}, label posteriors"
        targets, near = self._posteriors(best, start), best.link
        penalties = [best.candidate.penalty * factor for factor in NARROWING]
        found = [self.fit(name, targets, penalty, near) for penalty in penalties]
        now = max(found, key=_likelihood)
        while len(found) < MOST_REFITS and now.log_likelihood > best.log_likelihood:
            found.append(self.fit(name, self._posteriors(now, now.link), now.candidate.penalty, now.link))
            if found[-1].log_likelihood <= now.log_likelihood:
                break
            now = found[-1]
        return found

    def _posteriors(self, fit: _Fitted, link: Link | JointLink) -> Tensor:
        """Targets of the next round: posteriors of the clean labels given the noisy ones, from fits without the row.

        Those of the rows outside of a fold must not depend on the labels in it, so they come from fits without either.
        """
        levels = self._scores(fit.targets, [EVERY, *OUTSIDE], fit.candidate.penalty)
        likelihood = link.transition[self.sample.labels]
        return torch.stack([_given(link.posteriors(level), likelihood) for level in levels])

    def _scores(self, targets: Tensor, levels: Sequence[Sequence[Task]], penalty: float) -> list[Array]:
        """(N, C) scores for each list of tasks; zeros for folds that none of its tasks scores."""
        found = iter(self.ridge.cross_fitted(targets, [task for tasks in levels for task in tasks], penalty))
        every = [np.zeros(targets.shape[1:]) for _ in levels]
        for tasks, own in zip(levels, every, strict=True):
            for task in tasks:
                own[self.ridge.folds[task.scored].numpy()] = next(found).numpy()
        return every


def _fits(inputs: FeatureMap, sample: _Sample, penalty: float) -> list[_Fitted]:
    """Fits to the given labels, for penalties around the given one."""
    problem, targets = _Problem(inputs, sample), sample.targets.expand(1 + FOLDS, -1, -1)
    found: list[_Fitted] = []

    def at(value: float, near: _Fitted | None) -> _Fitted:
        found.append(problem.fit(inputs.name, targets, value, near and near.link))
        return found[-1]

    climb(at, penalty, 1 / PENALTY_FACTOR, PENALTY_RANGE)
    return found


def _given(clean: Array, likelihood: Array) -> Tensor:
    """(N, C) posteriors of clean labels given the noisy ones, from the clean posteriors and ``T[noisy]``."""
    joint = clean * likelihood
    return torch.from_numpy(joint / joint.sum(axis=1, keepdims=True)).float()


def _is_heavy(T: Array) -> bool:
    others = T - np.diag(np.diag(T))
    return bool((others > HEAVY_NOISE * np.diag(T)).any())


def _likelihood(fit: _Fitted) -> float:
    return fit.log_likelihood


def _coefficients(best: _Fitted) -> Tensor:
    """(D + 1, C) coefficients of the logits of a head that is fitted to all rows of its sample."""
    return _logits(best.link, best.problem.ridge.fit(best.targets[0], best.candidate.penalty))


def _coefficients_of_all(best: _Fitted, x: Rows, labels: Labels, weights: Array) -> Tensor:
    """The same for more rows than the sample, with targets of the same kind."""
    inputs, first, T = best.problem.inputs, _coefficients(best), best.link.transition
    refitted = best.candidate.name != inputs.name

    def part(rows: Labels) -> tuple[Rows, Tensor, Tensor]:
        z = inputs.transform(x[rows])
        targets = F.one_hot(torch.from_numpy(labels[rows]), len(T)).float()
        if refitted:
            clean = scores(z, first).double().softmax(dim=1).numpy()
            targets = _given(floored(clean), T[labels[rows]])
        return z, targets, torch.from_numpy(weights[rows]).float()

    count = -(-len(labels) // CHUNK) if isinstance(x, Tensor) else 1
    parts = map(part, np.array_split(np.arange(len(labels)), count))
    return _logits(best.link, fit_in_parts(parts, best.candidate.penalty))


def _logits(link: Link, coefficients: Tensor) -> Tensor:
    """The coefficients of the logits, whose softmax is the link's posterior, for those of the scores."""
    logits = link.slope * coefficients
    logits[-1] += torch.from_numpy(link.intercepts).to(logits)
    return logits


def _of_few_rows(x: Rows, labels: Labels, weights: Array, num_classes: int) -> Chosen:
    """Ridge regression in double precision, in which a row of weight 2 equals two rows."""
    x = x.double() if isinstance(x, Tensor) else x.astype(np.float64)
    inputs = feature_maps(x, weights, linear=True, seed=0)[0]
    ridge = FoldRidge(inputs.transform(x), torch.from_numpy(weights), torch.zeros(len(labels), dtype=torch.int64))
    targets = F.one_hot(torch.from_numpy(labels), num_classes).double()
    coefficients = SLOPE_OF_FEW * ridge.fit(targets, PENALTY_OF_FEW)
    return Chosen(inputs.network(coefficients), np.eye(num_classes), ())
