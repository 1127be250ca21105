"""Cross-fitting of linear heads on the same inputs, rows and folds, judged by held-out noisy labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from numpy.random import Generator
from torch import Tensor

from volmin._typing import Array, Labels
from volmin.data.folds import assign_folds, first_copies
from volmin.estimator.discriminant import applied, discriminant
from volmin.estimator.feature_maps import FeatureMap
from volmin.estimator.link import JointLink, Link, climb, fit_link, shrunk
from volmin.ridge import FoldRidge, Rows, Task

FOLDS = 4
PENALTY_FACTOR, PENALTY_RANGE = 3.0, (1e-4, 1.0)
"""Ratio of the ridge penalties, which are relative to the mean squared length of a row, and their limits."""
NARROWING = (0.3, 0.1)
"""Factors of the winning penalty that are tried for posteriors of clean labels, which are less noisy than labels."""
MOST_REFITS = 6
SMALLEST_GAIN = 1e-3
"""Limit of the fits of EM, and the gain of log-likelihood for which another one is made."""
MOST_CLUSTERINGS = 8
PATIENCE = 2
"""Limit of the rounds of EM with clusters, and the rounds without improvement after which it ends."""

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
class Fitted:
    """A head with the link of its out-of-fold scores.

    ``targets``, (1 + FOLDS, N, C), holds what the head was fitted to: for the fit to all rows, and for the fit without
    each fold, whose targets must not depend on the labels in this fold. ``held_out``: (N, C) out-of-fold scores.
    ``map``: (C + 1, C) linear map from ridge scores to the head's, or None if they are the same.
    """

    candidate: Candidate
    problem: Problem
    link: Link
    targets: Tensor
    held_out: Array
    map: Array | None = None

    @property
    def log_likelihood(self) -> float:
        return self.candidate.log_likelihood

    def clearly_likelier(self, other: Fitted) -> bool:
        """Whether held-out labels are likelier than under another head of the same rows, by a standard error."""
        mine, others = (fit.link.log_likelihoods(fit.held_out, fit.problem.sample.labels) for fit in (self, other))
        shares = self.problem.sample.weights / self.problem.sample.weights.sum()
        gain = float(shares @ (mine - others))
        return gain > np.sqrt(shares**2 @ (mine - others - gain) ** 2)

    def shrunk(self) -> Fitted:
        """The same head with T shrunk to symmetric noise, as far as that makes held-out labels more likely."""
        sample = self.problem.sample
        link = shrunk(self.held_out, sample.labels, sample.weights, sample.fold.numpy(), self.link)
        return replace(self, link=link, candidate=replace(self.candidate, log_likelihood=link.log_likelihood))


@dataclass(frozen=True)
class Sample:
    """Rows that are cross-fitted: (N, D) x, (N,) labels and weights, (N,) fold, (N, C) labels as distributions."""

    x: Rows
    labels: Labels
    weights: Array
    fold: Tensor
    targets: Tensor


def draw(x: Rows, labels: Labels, weights: Array, num_classes: int, generator: Generator) -> Sample:
    """The rows with their folds."""
    copies = first_copies(x.contiguous().numpy()) if isinstance(x, Tensor) else np.arange(len(labels))
    fold = torch.from_numpy(assign_folds(labels, copies, FOLDS, generator))
    return Sample(x, labels, weights, fold, F.one_hot(torch.from_numpy(labels), num_classes).float())


class Problem:
    """Cross-fitting of heads on the same inputs, rows and folds."""

    def __init__(self, inputs: FeatureMap, sample: Sample) -> None:
        self.inputs, self.sample = inputs, sample
        weights = torch.from_numpy(sample.weights).float()
        self.ridge = FoldRidge(inputs.transform(sample.x), weights, sample.fold)

    def fit(self, name: str, targets: Tensor, penalty: float, near: Link | None) -> Fitted:
        """A head for targets (of all rows, and of those outside of each fold), and the link of its held-out scores."""
        held_out = self._scores(targets, [JUDGED], penalty)[0]
        return self._judged(name, targets, penalty, near, held_out)

    def refits(self, best: Fitted, start: Link | JointLink, factors: Sequence[float] = NARROWING) -> list[Fitted]:
        """Rounds of EM from a head and a link, as long as held-out noisy labels become more likely.

        ``factors`` of the head's penalty are tried in the first one.
        """
        name = f"{self.inputs.name}, label posteriors"
        targets, near = self._posteriors(best, start), best.link
        penalties = [best.candidate.penalty * factor for factor in factors]
        found = [self.fit(name, targets, penalty, near) for penalty in penalties]
        now = max(found, key=likelihood)
        before = best
        while len(found) < MOST_REFITS and now.log_likelihood > before.log_likelihood + SMALLEST_GAIN:
            before = now
            now = self.fit(name, self._posteriors(now, now.link), now.candidate.penalty, now.link)
            found.append(now)
        return found

    def clusterings(self, best: Fitted, penalty: float) -> list[Fitted]:
        """Rounds of EM in which every class is a Gaussian cluster of rows, from what a head was fitted to.

        Where labels say little, where rows lie says more. In the fit that is judged by a fold, its rows take part
        without their labels.
        """
        sample, own = self.sample, [rows.numpy() for rows in self.ridge.folds]
        name, weights = f"{self.inputs.name}, clusters", sample.weights
        targets, link = best.targets.double().numpy().copy(), replace(best.link, slope=1.0)
        link = replace(link, intercepts=np.zeros_like(link.intercepts))
        for hidden, level in zip(own, targets[1:], strict=True):
            level[hidden] = level[~hidden].mean(axis=0)
        found: list[Fitted] = []
        for _ in range(MOST_CLUSTERINGS):
            scores = self.ridge.fitted(torch.from_numpy(targets).float(), penalty).double().numpy()
            maps = [discriminant(*pair, weights) for pair in zip(scores, targets, strict=True)]
            scores = np.stack([applied(*pair) for pair in zip(maps, scores, strict=True)])
            held_out = np.empty_like(scores[0])
            for hidden, level in zip(own, scores[1:], strict=True):
                held_out[hidden] = level[hidden]
            kept = torch.from_numpy(targets).float()
            found.append(replace(self._judged(name, kept, penalty, link, held_out), map=maps[0]))
            best_round = max(range(len(found)), key=lambda place: found[place].log_likelihood)
            if len(found) - best_round > PATIENCE:
                break
            link = found[-1].link
            clean = np.stack([link.posteriors(level) for level in scores])
            targets = clean * link.transition[sample.labels]
            targets /= targets.sum(axis=2, keepdims=True)
            for hidden, level, unlabelled in zip(own, targets[1:], clean[1:], strict=True):
                level[hidden] = unlabelled[hidden]
        return found

    def _judged(self, name: str, targets: Tensor, penalty: float, near: Link | None, held_out: Array) -> Fitted:
        labels, weights = self.sample.labels, self.sample.weights
        link = fit_link(held_out, labels, weights, near)
        agreement = float(np.average(link.posteriors(held_out).argmax(axis=1) == labels, weights=weights))
        return Fitted(Candidate(name, penalty, link.log_likelihood, agreement), self, link, targets, held_out)

    def _posteriors(self, fit: Fitted, link: Link | JointLink) -> Tensor:
        """Targets of the next round: posteriors of the clean labels given the noisy ones, from fits without the row.

        Those of the rows outside of a fold must not depend on the labels in it, so they come from fits without either.
        """
        levels = self._scores(fit.targets, [EVERY, *OUTSIDE], fit.candidate.penalty)
        of_label = link.transition[self.sample.labels]
        return torch.stack([given(link.posteriors(level), of_label) for level in levels])

    def _scores(self, targets: Tensor, levels: Sequence[Sequence[Task]], penalty: float) -> list[Array]:
        """(N, C) scores for each list of tasks; zeros for folds that none of its tasks scores."""
        found = iter(self.ridge.cross_fitted(targets, [task for tasks in levels for task in tasks], penalty))
        every = [np.zeros(targets.shape[1:]) for _ in levels]
        for tasks, own in zip(levels, every, strict=True):
            for task in tasks:
                own[self.ridge.folds[task.scored].numpy()] = next(found).numpy()
        return every


def fits(inputs: FeatureMap, sample: Sample, penalty: float) -> list[Fitted]:
    """Fits to the given labels, for penalties around the given one."""
    problem, targets = Problem(inputs, sample), sample.targets.expand(1 + FOLDS, -1, -1)
    found: list[Fitted] = []

    def at(value: float, near: Fitted | None) -> Fitted:
        found.append(problem.fit(inputs.name, targets, value, near and near.link))
        return found[-1]

    climb(at, penalty, 1 / PENALTY_FACTOR, PENALTY_RANGE)
    return found


def given(clean: Array, of_label: Array) -> Tensor:
    """(N, C) posteriors of clean labels given the noisy ones, from the clean posteriors and ``T[noisy]``."""
    joint = clean * of_label
    return torch.from_numpy(joint / joint.sum(axis=1, keepdims=True)).float()


def likelihood(fit: Fitted) -> float:
    """What heads are compared by."""
    return fit.log_likelihood
