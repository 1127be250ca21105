"""Linear heads that compete by the likelihood of held-out noisy labels: the default of ``NoisyLabelClassifier``.

A head is ridge regression of the labels on scaled rows, on standardised rows, or on random features of either. Every
head is cross-fitted, and the model ``P(noisy | x) = T softmax(t s(x) + b)`` is fitted to its out-of-fold scores s. The
head under which the held-out noisy labels are most likely wins.

It is then fitted again, with a smaller penalty, to the posteriors of the clean labels given the noisy ones (EM for T
and the head), as often as that makes held-out noisy labels more likely. Where labels seem to be wrong about as often as
right, T may be one of several explanations, and EM is also started from a second one. Where most labels are wrong, a
cluster of rows for each class competes, too. T is shrunk to symmetric noise as far as held-out labels favour that.
Clean labels never choose anything.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits
from torch import Tensor, nn

from volmin._typing import Array, Labels
from volmin.estimation.minimum_volume import floored
from volmin.estimator.cross_fitting import NARROWING, Candidate, Fitted, draw, fits, given, likelihood
from volmin.estimator.feature_maps import STANDARDISED, FeatureMap, feature_maps
from volmin.estimator.link import fit_link, joint_links
from volmin.ridge import CHUNK, FoldRidge, Rows, fit_in_parts, scores

SCREENED_ROWS = 3000
"""With more rows, all inputs compete on a sample of this size, and only the winner is fitted to more."""
CROSS_FITTED_ROWS = 20_000
"""With more rows, T and the penalty are found on a sample of this size; the last fit takes all rows."""
FEWEST_ROWS = 50
"""With fewer rows nothing is held out: standardised rows with the penalty and the slope below, and no T."""
PENALTY_OF_FEW, SLOPE_OF_FEW = 0.1, 8.0

PENALTY = 5e-3
"""The first ridge penalty, relative to the mean squared length of a row."""
FINE_FACTOR, FINE_ROUNDS = 1.2, 4
"""Ratio of slopes and number of updates of the last link."""
HEAVY_NOISE = 1 / 3
"""A wrong label of this frequency, relative to the right one, is reason to start EM from another T, too."""
CLUSTERED = 0.5
"""Where labels are right less often, where rows lie says more, and EM is also tried with a cluster for each class."""


@dataclass(frozen=True)
class Chosen:
    """The network of the head that won, its T, and all heads that took part, the likeliest first."""

    network: nn.Sequential
    transition: Array
    candidates: tuple[Candidate, ...]


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
    sample = draw(x[screened], labels[screened], weights[screened], num_classes, generator)
    competing: Any = threads(delayed(fits)(inputs, sample, PENALTY) for inputs in maps)
    tried: list[Fitted] = [fit for found in competing for fit in found]
    best = _of_best_inputs(tried)
    if len(crossed) > len(screened):
        sample = draw(x[crossed], labels[crossed], weights[crossed], num_classes, generator)
        again = fits(best.problem.inputs, sample, best.candidate.penalty)
        tried, best = [*tried, *again], max(again, key=likelihood)
    best = best.shrunk()
    refits = best.problem.refits(best, best.link)
    if _is_heavy(max([best, *refits], key=likelihood).link.transition):
        starts = joint_links(best.held_out, sample.labels, best.link)
        factors = [max(refits, key=likelihood).candidate.penalty / best.candidate.penalty]
        chains: Any = threads(delayed(best.problem.refits)(best, start, factors) for start in starts)
        refits += [fit for chain in chains for fit in chain]
    if np.diag(max([best, *refits], key=likelihood).link.transition).mean() < CLUSTERED:
        for factor in NARROWING:
            refits += best.problem.clusterings(best, factor * best.candidate.penalty)
    tried, best = [*tried, *refits], max([best, *refits], key=likelihood)
    link = fit_link(best.held_out, sample.labels, sample.weights, best.link, factor=FINE_FACTOR, rounds=FINE_ROUNDS)
    best = replace(best, link=link)
    every = len(labels) == len(crossed)
    coefficients = _coefficients(best) if every else _coefficients_of_all(best, x, labels, weights)
    candidates = sorted((fit.candidate for fit in tried), key=lambda found: -found.log_likelihood)
    return Chosen(best.problem.inputs.network(coefficients), best.link.transition, tuple(candidates))


def _of_best_inputs(tried: list[Fitted]) -> Fitted:
    """The likeliest head, which has to be clearly likelier to be preferred to those on standardised features.

    Where few features have most of the variance, this is more often a matter of units than of what they say, and few
    rows with noisy labels hardly tell the difference.
    """
    best = max(tried, key=likelihood)
    standardised = [fit for fit in tried if fit.problem.inputs.name.startswith(STANDARDISED)]
    usual = max(standardised, key=likelihood, default=best)
    return best if best.clearly_likelier(usual) else usual


def _is_heavy(T: Array) -> bool:
    others = T - np.diag(np.diag(T))
    return bool((others > HEAVY_NOISE * np.diag(T)).any())


def _coefficients(best: Fitted) -> Tensor:
    """(D + 1, C) coefficients of the logits of a head that is fitted to all rows of its sample."""
    return _logits(best, best.problem.ridge.fit(best.targets[0], best.candidate.penalty))


def _coefficients_of_all(best: Fitted, x: Rows, labels: Labels, weights: Array) -> Tensor:
    """The same for more rows than the sample, with targets of the same kind."""
    inputs, first, T = best.problem.inputs, _coefficients(best), best.link.transition
    refitted = best.candidate.name != inputs.name

    def part(rows: Labels) -> tuple[Rows, Tensor, Tensor]:
        z = inputs.transform(x[rows])
        targets = F.one_hot(torch.from_numpy(labels[rows]), len(T)).float()
        if refitted:
            clean = scores(z, first).double().softmax(dim=1).numpy()
            targets = given(floored(clean), T[labels[rows]])
        return z, targets, torch.from_numpy(weights[rows]).float()

    count = -(-len(labels) // CHUNK) if isinstance(x, Tensor) else 1
    parts = map(part, np.array_split(np.arange(len(labels)), count))
    return _logits(best, fit_in_parts(parts, best.candidate.penalty))


def _logits(best: Fitted, coefficients: Tensor) -> Tensor:
    """The coefficients of the logits, whose softmax is the link's posterior, for those of the ridge scores."""
    if best.map is not None:
        linear_map = torch.from_numpy(best.map).to(coefficients)
        coefficients = coefficients @ linear_map[:-1]
        coefficients[-1] += linear_map[-1]
    logits = best.link.slope * coefficients
    logits[-1] += torch.from_numpy(best.link.intercepts).to(logits)
    return logits


def _of_few_rows(x: Rows, labels: Labels, weights: Array, num_classes: int) -> Chosen:
    """Ridge regression in double precision, in which a row of weight 2 equals two rows."""
    x = x.double() if isinstance(x, Tensor) else x.astype(np.float64)
    inputs = feature_maps(x, weights, linear=True, seed=0)[0]
    ridge = FoldRidge(inputs.transform(x), torch.from_numpy(weights), torch.zeros(len(labels), dtype=torch.int64))
    targets = F.one_hot(torch.from_numpy(labels), num_classes).double()
    coefficients = SLOPE_OF_FEW * ridge.fit(targets, PENALTY_OF_FEW)
    return Chosen(inputs.network(coefficients), np.eye(num_classes), ())
