"""Linear heads that compete by the likelihood of held-out noisy labels: the default of ``NoisyLabelClassifier``.

A head is softmax regression on scaled rows, on standardised rows, or on random features of either, each with several
penalties. Every head is cross-fitted, and the model ``P(noisy | x) = T h(x)^t`` is fitted to its out-of-fold posteriors
h: a T with a dominant diagonal and one exponent t, which calibrates h. The head under which the held-out noisy labels
are most likely wins. It is then fitted again, once,

- to the rows whose given label its out-of-fold posteriors do not contradict ("confident rows"), and
- to the posteriors of the clean labels given the noisy ones (the EM algorithm for T and h),

and the fit that makes held-out noisy labels most likely is kept. Clean labels never choose anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from joblib import Parallel, delayed
from numpy.random import Generator
from torch import Tensor, nn

from volmin._typing import Array, Labels
from volmin.data.folds import assign_folds, first_copies
from volmin.estimation.em import fit_transitions, split_by_label
from volmin.estimation.minimum_volume import floored, log_likelihood, tempered
from volmin.estimator.feature_maps import FeatureMap, feature_maps
from volmin.softmax_regression import Rows, all_logits, fit_softmax

SCREENED_ROWS = 3000
"""With more rows, all heads compete on a sample of this size, and only the winner is fitted to more."""
CROSS_FITTED_ROWS = 20_000
"""With more rows, T and the penalty are found on a sample of this size; the last fit takes all rows."""
FOLDS = 4
FEW_NUMBERS = 100_000
REPEATS = 2
"""Of fewer rows times features, the cross-fitting is repeated, since its folds are a source of chance."""
FEWEST_ROWS = 50
"""With fewer rows nothing is held out: standardised softmax regression with the penalty below, and no T."""
PENALTY_OF_FEW = 0.1
MAX_ITERATIONS = 30
EXPONENTS = (0.5, 1.0, 2.0, 4.0, 8.0)
WIDENING = (1.0, 5.0, 30.0)
"""Factors of the winning penalty that are tried when the targets change."""


@dataclass(frozen=True)
class Candidate:
    """A head that took part.

    Attributes:
        name: Its inputs and what it was fitted to.
        penalty: C, the inverse of the ridge penalty, as in scikit-learn's logistic regression.
        log_likelihood: Mean log probability of the noisy labels of rows that it was not fitted to.
        agreement: Share of these labels that are its most probable ones.
    """

    name: str
    penalty: float
    log_likelihood: float
    agreement: float


@dataclass(frozen=True)
class _Fitted:
    """A head with its out-of-fold posteriors, and the T and the exponent that were fitted to them."""

    candidate: Candidate
    inputs: FeatureMap
    coefficients: Tensor
    """(D + 1, C) of the fit to all rows."""
    probs: Array
    """(N, C) out-of-fold posteriors."""
    transition: Array
    exponent: float


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
    generator = np.random.default_rng(seed)
    if weights.sum() < FEWEST_ROWS:
        return _of_few_rows(x, labels, weights, num_classes)
    maps = feature_maps(x, weights, linear=linear, seed=seed)
    order = generator.permutation(len(labels))
    screened, crossed = np.sort(order[:SCREENED_ROWS]), np.sort(order[:CROSS_FITTED_ROWS])
    problem = _Problem(x[screened], labels[screened], weights[screened], num_classes, generator)
    threads = Parallel(n_jobs=n_jobs, prefer="threads")
    competing: Any = threads(delayed(problem.fit)(inputs, inputs.penalties) for inputs in maps)
    tried: list[_Fitted] = [fit for fits in competing for fit in fits]
    best = max(tried, key=_likelihood)
    if len(crossed) > len(screened):
        problem = _Problem(x[crossed], labels[crossed], weights[crossed], num_classes, generator)
        again = problem.fit(best.inputs, [best.candidate.penalty * factor for factor in (0.3, 1.0)])
        tried, best = [*tried, *again], max(again, key=_likelihood)
    fits = problem.refits(best, threads)
    tried, best = [*tried, *fits], max([best, *fits], key=_likelihood)
    if len(labels) > len(crossed):
        best = _fitted_to_all(best, x, labels, weights)
    candidates = sorted((fit.candidate for fit in tried), key=lambda found: -found.log_likelihood)
    return Chosen(_network(best), best.transition, tuple(candidates))


class _Problem:
    """Cross-fitting of heads on the same rows and folds."""

    def __init__(self, x: Rows, labels: Labels, weights: Array, num_classes: int, generator: Generator) -> None:
        repeats = REPEATS if len(labels) * x.shape[1] < FEW_NUMBERS else 1
        copies = first_copies(x.contiguous().numpy()) if isinstance(x, Tensor) else np.arange(len(labels))
        self.x, self.labels, self.weights = x, labels, torch.from_numpy(weights).float()
        self.fold = torch.from_numpy(np.stack([assign_folds(labels, copies, FOLDS, generator) for _ in range(repeats)]))
        self.kept = torch.cat([torch.stack([fold != k for k in range(FOLDS)]) for fold in self.fold]).float()
        self.kept = torch.cat([self.kept, torch.ones(1, len(labels))]) * self.weights
        self.targets = F.one_hot(torch.from_numpy(labels), num_classes).float()

    def fit(self, inputs: FeatureMap, penalties: Sequence[float]) -> list[_Fitted]:
        """Fits to the given labels for several penalties at once."""
        return self._fits(inputs, penalties, inputs.name, self.targets, self.kept)

    def refits(self, best: _Fitted, threads: Parallel) -> list[_Fitted]:
        """The winner fitted to the rows that it does not contradict, and to posteriors of the clean labels.

        What the rows outside of a fold are fitted to must not depend on the labels in this fold, so it comes from fits
        without either fold; for the fit to all rows, from the out-of-fold posteriors.
        """
        probs = torch.cat([self._outside_two_folds(best), torch.from_numpy(best.probs)[None]])
        confident = self.kept * (probs.argmax(dim=2) == torch.from_numpy(self.labels))
        clean = (best.exponent * probs.log()).softmax(dim=2)
        joint = clean * torch.from_numpy(best.transition[self.labels])
        posteriors = (joint / joint.sum(dim=2, keepdim=True)).float()
        changes = [("confident rows", self.targets, confident), ("label posteriors", posteriors, self.kept)]
        penalties = [best.candidate.penalty * factor for factor in WIDENING]
        name = best.inputs.name
        found: Any = threads(
            delayed(self._fits)(best.inputs, penalties, f"{name}, {kind}", targets, kept)
            for kind, targets, kept in changes
        )
        return [fit for fits in found for fit in fits]

    def _outside_two_folds(self, best: _Fitted) -> Tensor:
        """(R * FOLDS, N, C) posteriors: for each fold, those of the other rows, from fits without both folds."""
        z, pairs = best.inputs.transform(self.x), list(combinations(range(FOLDS), 2))
        kept = torch.stack([(fold != a) & (fold != b) for fold in self.fold for a, b in pairs]) * self.weights
        penalties = 1 / (best.candidate.penalty * kept.sum(dim=1))
        logits = all_logits(z, fit_softmax(z, self.targets, kept, penalties, max_iterations=MAX_ITERATIONS))
        logits = logits.view(len(self.fold), len(pairs), *logits.shape[1:])
        parts = []
        for fold, own in zip(self.fold, logits, strict=True):
            for k in range(FOLDS):
                part = torch.zeros_like(own[0])
                for pair, pair_logits in zip(pairs, own, strict=True):
                    if k in pair:
                        rows = fold == (pair[0] if pair[1] == k else pair[1])
                        part[rows] = pair_logits[rows]
                parts.append(part)
        return torch.from_numpy(floored(torch.stack(parts).double().softmax(dim=2).numpy()))

    def _fits(
        self, inputs: FeatureMap, penalties: Sequence[float], name: str, targets: Tensor, kept: Tensor
    ) -> list[_Fitted]:
        z, count = inputs.transform(self.x), len(penalties)
        weights = kept.repeat(count, 1)
        every = targets.repeat(count, 1, 1) if targets.ndim == 3 else targets
        inverse = torch.tensor(penalties).repeat_interleave(len(kept)) * weights.sum(dim=1)
        found = fit_softmax(z, every, weights, 1 / inverse, max_iterations=MAX_ITERATIONS)
        groups = found.view(count, len(kept), *found.shape[1:])
        return [self._scored(inputs, z, *pair, name) for pair in zip(groups, penalties, strict=True)]

    def _scored(self, inputs: FeatureMap, z: Rows, coefficients: Tensor, penalty: float, name: str) -> _Fitted:
        logits = all_logits(z, coefficients[:-1]).view(*self.fold.shape[:1], FOLDS, len(self.labels), -1)
        rows = torch.arange(len(self.labels))
        held_out = torch.stack([own[fold, rows] for own, fold in zip(logits, self.fold, strict=True)])
        probs = floored(held_out.double().log_softmax(dim=2).mean(dim=0).softmax(dim=1).numpy())
        weights = self.weights.double().numpy()
        exponent, T, likelihood = fit_transition(probs, self.labels, weights)
        agreement = float(np.average(probs.argmax(axis=1) == self.labels, weights=weights))
        candidate = Candidate(name, penalty, likelihood, agreement)
        return _Fitted(candidate, inputs, coefficients[-1], probs, T, exponent)


def fit_transition(probs: Array, labels: Labels, weights: Array) -> tuple[float, Array, float]:
    """The exponent t and the dominant T under which ``T h^t`` makes labels most likely, and the mean log-likelihood.

    Args:
        probs: (N, C) out-of-fold posteriors h.
        labels: (N,) noisy labels.
        weights: (N,) weights of the rows.
    """
    best: tuple[float, Array, float] | None = None
    for exponent in EXPONENTS:
        clean = floored(tempered(probs, exponent))
        by_label = split_by_label(clean, labels, weights[:, None])
        T = fit_transitions(by_label, dominant=True, tolerance=1e-3, max_iterations=50)[0]
        likelihood = float(np.average(log_likelihood(floored(clean @ T.T), labels), weights=weights))
        if best is None or likelihood > best[2]:
            best = exponent, T, likelihood
    assert best is not None
    return best


def _likelihood(fit: _Fitted) -> float:
    return fit.candidate.log_likelihood


def _fitted_to_all(best: _Fitted, x: Rows, labels: Labels, weights: Array) -> _Fitted:
    """The winner fitted to all rows, with targets of the same kind from its own posteriors."""
    z = best.inputs.transform(x)
    targets, kept = F.one_hot(torch.from_numpy(labels), len(best.transition)).float(), torch.ones(len(labels))
    probs = all_logits(z, best.coefficients[None])[0].double().softmax(dim=1).numpy()
    if best.candidate.name.endswith("confident rows"):
        kept = torch.from_numpy(probs.argmax(axis=1) == labels).float()
    elif best.candidate.name.endswith("label posteriors"):
        posteriors = tempered(floored(probs), best.exponent) * best.transition[labels]
        targets = torch.from_numpy(posteriors / posteriors.sum(axis=1, keepdims=True)).float()
    masks = (kept * torch.from_numpy(weights).float())[None]
    penalty = 1 / (best.candidate.penalty * masks.sum(dim=1))
    found = fit_softmax(z, targets, masks, penalty, max_iterations=2 * MAX_ITERATIONS)
    return replace(best, coefficients=found[0])


def _of_few_rows(x: Rows, labels: Labels, weights: Array, num_classes: int) -> Chosen:
    """Standardised softmax regression in double precision, in which a row of weight 2 equals two rows."""
    x = x.double() if isinstance(x, Tensor) else x.astype(np.float64)
    inputs = feature_maps(x, weights, linear=True, seed=0)[0]
    z = inputs.transform(x)
    targets = F.one_hot(torch.from_numpy(labels), num_classes).double()
    masks = torch.from_numpy(weights)[None]
    penalty = 1 / (PENALTY_OF_FEW * masks.sum(dim=1))
    found = fit_softmax(z, targets, masks, penalty, max_iterations=500, tolerance=1e-10)
    return Chosen(inputs.network(found[0], 1.0), np.eye(num_classes), ())


def _network(best: _Fitted) -> nn.Sequential:
    return best.inputs.network(best.coefficients, best.exponent)
