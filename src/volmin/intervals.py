"""Bootstrap confidence intervals for T, noise rates and class priors.

``bootstrap_intervals`` refits a linear head and T on frozen features under random row weights (Bayesian bootstrap), all
replicas at once. With clean posteriors only, ``conditional_intervals`` refits T alone: this is cheaper, but conditional
on the posteriors, so the intervals do not include their error and are too narrow.

Intervals cover the sampling error, not the ambiguity of a T that the data do not determine. ``noise_bounds`` therefore
returns them only where the posteriors are scattered enough, and the bracket that needs no scatter elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from volmin._typing import Array, Numbers
from volmin.estimation.em import fit_transitions, split_by_label
from volmin.exceptions import InputError
from volmin.identifiability import Scatter
from volmin.lbfgs import minimise_rows
from volmin.transition import dominant, log_volume, start_value, validate_transition
from volmin.validation import validate_labels, validate_posteriors


@dataclass(frozen=True)
class Interval:
    """An estimate and its bounds, arrays of one shape."""

    estimate: Array
    low: Array
    high: Array


@dataclass(frozen=True)
class Intervals:
    """Confidence intervals for T and the quantities derived from it.

    Attributes:
        level: Nominal coverage.
        conditional: Whether the clean posteriors were held fixed, which makes the intervals too narrow.
        transition: (C, C) entries of T.
        class_noise_rates: (C,) P(noisy != j | clean = j).
        class_priors: (C,) P(clean = j).
        noise_rate: () P(noisy != clean).
    """

    level: float
    conditional: bool
    transition: Interval
    class_noise_rates: Interval
    class_priors: Interval
    noise_rate: Interval


def bootstrap_intervals(
    features: Numbers,
    labels: Numbers,
    *,
    num_classes: int | None = None,
    T: Numbers | None = None,
    lam: float | None = None,
    ridge: float = 0.1,
    replicas: int = 50,
    level: float = 0.95,
    random_state: int = 0,
    max_iterations: int = 300,
) -> Intervals:
    """Intervals from refits of a linear head and T on frozen features.

    Args:
        features: (N, D) inputs of a network's last layer; they are standardised here.
        labels: (N,) noisy labels in ``0 .. C-1``.
        num_classes: Number of classes C; one more than the largest label by default.
        T: (C, C) transition matrix with a dominant diagonal to start from; the paper's start by default.
        lam: Weight of the log volume relative to the mean log-likelihood; ``1 / N`` by default.
        ridge: Precision of a Gaussian prior on the head's weights, which keeps them finite for separable classes.
        replicas: Number of refits, at least 10.
        level: Nominal coverage.
        random_state: Seed of the row weights.
        max_iterations: Limit of optimiser iterations, for the fit and again for its replicas.
    """
    _check(replicas, level)
    x = _standardised(features)
    largest = validate_labels(labels, len(x)).max()
    num_classes = int(largest) + 1 if num_classes is None else num_classes
    if num_classes < 2 or len(x) < num_classes:
        raise InputError(f"Intervals need 2 classes and as many rows, but there are {num_classes} and {len(x)}.")
    y = torch.from_numpy(validate_labels(labels, len(x), num_classes))
    weights = torch.from_numpy(_exponential_weights(len(x), replicas, random_state)).T
    model = _HeadAndTransition(x, y, num_classes, 1 / len(x) if lam is None else lam, ridge / len(x))
    start = model.start(None if T is None else validate_transition(T, num_classes))
    fitted = minimise_rows(lambda p: model.loss(p, torch.ones(1, len(x), dtype=x.dtype)), start, max_iterations)
    refitted = minimise_rows(lambda p: model.loss(p, weights), fitted.expand(replicas, -1), max_iterations)
    estimate = model.summary(fitted, torch.ones(1, len(x), dtype=x.dtype))
    return _intervals(estimate, model.summary(refitted, weights), level, conditional=False)


def conditional_intervals(
    clean_probs: Numbers,
    labels: Numbers,
    T: Numbers | None = None,
    *,
    replicas: int = 50,
    level: float = 0.95,
    random_state: int = 0,
) -> Intervals:
    """Intervals from refits of T alone, for clean posteriors taken as exact.

    Args:
        clean_probs: (N, C) clean class posteriors.
        labels: (N,) noisy labels in ``0 .. C-1``.
        T: (C, C) estimate to centre the intervals on; the maximum-likelihood T for these posteriors by default.
        replicas: Number of refits, at least 10.
        level: Nominal coverage.
        random_state: Seed of the row weights.
    """
    _check(replicas, level)
    h = validate_posteriors(clean_probs, "clean_probs")
    y = validate_labels(labels, *h.shape)
    fitted = fit_transitions(split_by_label(h, y))[0]
    centre = fitted if T is None else validate_transition(T, h.shape[1])
    weights = _exponential_weights(len(h), replicas, random_state)
    refitted = fit_transitions(split_by_label(h, y, weights), fitted[None])
    estimate = (centre[None], h.mean(axis=0)[None])
    return _intervals(estimate, (refitted, weights.T @ h / len(h)), level, conditional=True)


def binomial_interval(rate: Numbers, count: Numbers, level: float = 0.95) -> tuple[Array, Array]:
    """Lower and upper bounds of Wilson's interval for a share that was observed in ``count`` rows.

    The interval contains ``rate`` and, unlike a bootstrap, has a positive width for shares of 0 and 1.

    Args:
        rate: Observed shares.
        count: Numbers of rows, of the same shape; a share of no rows has the interval [0, 1].
        level: Nominal coverage.
    """
    z = stats.norm.ppf((1 + level) / 2)
    share, n = np.asarray(rate, dtype=np.float64), np.asarray(count, dtype=np.float64)
    centre, variance = share * n + z**2 / 2, share * (1 - share) * n + z**2 / 4
    reach = z * np.sqrt(np.maximum(variance, 0))
    low, high = (centre - reach) / (n + z**2), (centre + reach) / (n + z**2)
    return np.clip(np.minimum(low, share), 0, 1), np.clip(np.maximum(high, share), 0, 1)


def noise_bounds(scatter: Scatter, intervals: Intervals | None, bracket: Numbers) -> Array:
    """Bounds of the class noise rates, (C, 2): the bracket if T is not identified, otherwise confidence intervals.

    Args:
        scatter: Scatter of the clean posteriors behind T.
        intervals: Confidence intervals for T, if any.
        bracket: (C, 2) bounds from ``volmin.identifiability.bracket``.
    """
    bounds = np.asarray(bracket, dtype=np.float64)
    if intervals is None or scatter.refuted:
        return bounds
    rates = intervals.class_noise_rates
    return np.stack([rates.low, rates.high], axis=1)


class _HeadAndTransition:
    """B linear heads and B transition matrices, with the parameters of each replica in a row of (B, P).

    A row holds the head's weights, (C, D), and the w of ``DominantTransition``, (C, C).
    """

    def __init__(self, x: Tensor, y: Tensor, num_classes: int, lam: float, ridge: float) -> None:
        self.x, self.y, self.C, self.lam, self.ridge = x, y, num_classes, lam, ridge

    def start(self, T: Array | None) -> Tensor:
        head = torch.zeros(self.C * self.x.shape[1], dtype=self.x.dtype)
        if T is None:
            w = torch.full((self.C, self.C), start_value(self.C), dtype=self.x.dtype)
        else:
            # sigmoid(w) is the ratio of an entry to the diagonal of its column, strictly between 0 and 1.
            ratio = torch.from_numpy(T / np.maximum(np.diag(T), 1e-6))
            w = torch.logit(ratio.clamp(1e-3, 1 - 1e-3))
        return torch.cat([head, w.flatten()])[None]

    def split(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        """The heads (B, C, D) and the transition matrices (B, C, C)."""
        size = self.C * self.x.shape[1]
        head = parameters[:, :size].unflatten(1, (self.C, -1))
        w = parameters[:, size:].unflatten(1, (self.C, self.C))
        return head, dominant(w)

    def loss(self, parameters: Tensor, weights: Tensor) -> Tensor:
        """Weighted mean negative log-likelihood plus the volume term and the prior on the heads, (B,)."""
        head, T = self.split(parameters)
        clean = self.clean(head)
        likelihood = (clean * T[:, self.y]).sum(dim=2)
        nll = -(weights * likelihood.clamp_min(1e-300).log()).mean(dim=1)
        return nll + self.lam * log_volume(T) + self.ridge / 2 * head[:, :, :-1].square().sum(dim=(1, 2))

    def clean(self, head: Tensor) -> Tensor:
        return torch.softmax(self.x @ head.mT, dim=2)

    def summary(self, parameters: Tensor, weights: Tensor) -> tuple[Array, Array]:
        """The transition matrices (B, C, C) and the class priors (B, C)."""
        with torch.no_grad():
            head, T = self.split(parameters)
            priors = (weights[:, :, None] * self.clean(head)).mean(dim=1)
        return T.numpy(), priors.numpy()


def _intervals(
    estimate: tuple[Array, Array], refitted: tuple[Array, Array], level: float, conditional: bool
) -> Intervals:
    names = ("transition", "class_noise_rates", "class_priors", "noise_rate")
    parts = zip(names, _quantities(*estimate), _quantities(*refitted), strict=True)
    return Intervals(level, conditional, **{name: _interval(one[0], many, level) for name, one, many in parts})


def _quantities(T: Array, priors: Array) -> tuple[Array, Array, Array, Array]:
    rates = 1 - np.diagonal(T, axis1=1, axis2=2)
    return T, rates, priors, (priors * rates).sum(axis=1)


def _interval(estimate: Array, replicas: Array, level: float) -> Interval:
    """A Student interval with the replicas' standard deviation, clipped to [0, 1].

    Percentiles would require many more replicas than the standard deviation does.
    """
    width = stats.t.ppf((1 + level) / 2, len(replicas) - 1) * replicas.std(axis=0, ddof=1)
    return Interval(np.asarray(estimate), np.clip(estimate - width, 0, 1), np.clip(estimate + width, 0, 1))


def _exponential_weights(num_rows: int, replicas: int, random_state: int) -> Array:
    """Exp(1) weights, (N, B), normalised to mean one in each replica."""
    weights = np.random.default_rng(random_state).exponential(size=(num_rows, replicas))
    return weights / weights.mean(axis=0)


def _standardised(features: Numbers) -> Tensor:
    x = torch.as_tensor(features).detach().cpu().double()
    if x.ndim != 2 or x.numel() == 0:
        raise InputError(f"features must be a non-empty (N, D) array, but have shape {tuple(x.shape)}; flatten them.")
    if not torch.isfinite(x).all():
        raise InputError("features contain NaN or infinite entries; drop or impute those rows.")
    spread = x.std(dim=0, correction=0)
    x = (x - x.mean(dim=0)) / torch.where(spread > 0, spread, 1.0)
    return torch.cat([x, torch.ones(len(x), 1, dtype=x.dtype)], dim=1)


def _check(replicas: int, level: float) -> None:
    if replicas < 10:
        raise InputError(f"replicas must be at least 10 to give a standard deviation, but is {replicas}.")
    if not 0 < level < 1:
        raise InputError(f"level must lie between 0 and 1, e.g. 0.95, but is {level}.")
