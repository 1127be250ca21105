"""How sure the estimates are: bootstrap intervals for T, noise rates and class priors.

``bootstrap_intervals`` refits a linear head and T on frozen features under random weights of the rows (Bayesian
bootstrap), all replicas at once. Where only clean posteriors are given, ``conditional_intervals`` refits T alone:
cheaper, and too narrow by the error of the posteriors, hence the name.

Intervals cover the error of sampling, not a T that the data do not determine. ``noise_bounds`` gives them only
where the posteriors are scattered enough, and the assumption-light bracket elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from volmin._typing import Array, Numbers
from volmin.estimation.em import fit_transitions, split_by_label
from volmin.exceptions import InputError
from volmin.identifiability import Scatter
from volmin.transition import dominant, log_volume, start_value, validate_transition
from volmin.validation import validate_labels, validate_posteriors


@dataclass(frozen=True)
class Interval:
    """An estimate between two bounds of one shape."""

    estimate: Array
    low: Array
    high: Array


@dataclass(frozen=True)
class Intervals:
    """Intervals of confidence ``level`` for what T says of the data.

    Attributes:
        level: nominal coverage.
        conditional: whether the clean posteriors were held fixed, which makes the intervals too narrow.
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
    seed: int = 0,
    max_iterations: int = 300,
) -> Intervals:
    """Intervals from refits of a linear head and T on frozen features.

    Args:
        features: (N, D) what the last layer of a network sees; standardised here.
        labels: (N,) noisy labels in ``0 .. C-1``.
        num_classes: C; one more than the largest label by default.
        T: (C, C) transition matrix with a dominant diagonal to start from; the paper's start by default.
        lam: weight of the log volume next to the mean log likelihood; ``1 / N`` by default.
        ridge: precision of a Gaussian prior on the head's weights, which keeps separable classes finite.
        replicas: refits, at least 10.
        level: nominal coverage.
        seed: of the weights.
        max_iterations: of the optimiser, for the fit and again for its replicas.
    """
    _check(replicas, level)
    x = _standardised(features)
    largest = validate_labels(labels, len(x), np.iinfo(np.int64).max).max()
    num_classes = int(largest) + 1 if num_classes is None else num_classes
    if num_classes < 2 or len(x) < num_classes:
        raise InputError(f"Intervals need 2 classes and as many rows, but there are {num_classes} and {len(x)}.")
    y = torch.from_numpy(validate_labels(labels, len(x), num_classes))
    weights = torch.from_numpy(_exponential_weights(len(x), replicas, seed)).T
    model = _HeadAndTransition(x, y, num_classes, 1 / len(x) if lam is None else lam, ridge / len(x))
    start = model.start(None if T is None else validate_transition(T, num_classes))
    fitted = _minimise(lambda p: model.loss(p, torch.ones(1, len(x), dtype=x.dtype)), start, max_iterations)
    refitted = _minimise(lambda p: model.loss(p, weights), fitted.expand(replicas, -1), max_iterations)
    estimate = model.summary(fitted, torch.ones(1, len(x), dtype=x.dtype))
    return _intervals(estimate, model.summary(refitted, weights), level, conditional=False)


def conditional_intervals(
    labels: Numbers,
    clean_probs: Numbers,
    T: Numbers | None = None,
    *,
    replicas: int = 50,
    level: float = 0.95,
    seed: int = 0,
) -> Intervals:
    """Intervals from refits of T alone, for clean posteriors taken as exact.

    Args:
        labels: (N,) noisy labels in ``0 .. C-1``.
        clean_probs: (N, C) clean class posteriors.
        T: (C, C) estimate to centre the intervals on; the likeliest T for these posteriors by default.
        replicas: refits, at least 10.
        level: nominal coverage.
        seed: of the weights.
    """
    _check(replicas, level)
    h = validate_posteriors(clean_probs, "clean_probs")
    y = validate_labels(labels, *h.shape)
    likeliest = fit_transitions(split_by_label(h, y))[0]
    centre = likeliest if T is None else validate_transition(T, h.shape[1])
    weights = _exponential_weights(len(h), replicas, seed)
    refitted = fit_transitions(split_by_label(h, y, weights), likeliest[None])
    estimate = (centre[None], h.mean(axis=0)[None])
    return _intervals(estimate, (refitted, weights.T @ h / len(h)), level, conditional=True)


def noise_bounds(scatter: Scatter, intervals: Intervals | None, bracket: Numbers) -> Array:
    """What may be told of class noise rates, (C, 2): their intervals where T is identified, else the bracket.

    Args:
        scatter: of the clean posteriors behind T.
        intervals: of T, if any.
        bracket: (C, 2) bounds of ``volmin.identifiability.bracket``.
    """
    bounds = np.asarray(bracket, dtype=np.float64)
    if intervals is None or scatter.refuted:
        return bounds
    rates = intervals.class_noise_rates
    return np.stack([rates.low, rates.high], axis=1)


class _HeadAndTransition:
    """B linear heads and B transition matrices, each replica a row (B, P) of parameters.

    A row holds the head's weights, (C, D), and the w of ``DominantTransition``, (C, C).
    """

    def __init__(self, x: Tensor, y: Tensor, num_classes: int, lam: float, ridge: float) -> None:
        self.x, self.y, self.C, self.lam, self.ridge = x, y, num_classes, lam, ridge

    def start(self, T: Array | None) -> Tensor:
        head = torch.zeros(self.C * self.x.shape[1], dtype=self.x.dtype)
        if T is None:
            w = torch.full((self.C, self.C), start_value(self.C), dtype=self.x.dtype)
        else:
            # sigmoid(w) is the entry over its column's diagonal; 0, or more than the diagonal, is out of reach.
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
        """(B,) weighted mean negative log likelihood, plus the volume and the prior on the heads."""
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


def _minimise(loss: Callable[[Tensor], Tensor], start: Tensor, max_iterations: int, memory: int = 10) -> Tensor:
    """L-BFGS for B independent problems at once: ``loss`` maps (B, P) to (B,), and each row has its own steps."""

    def evaluate(parameters: Tensor) -> tuple[Tensor, Tensor]:
        parameters = parameters.detach().requires_grad_()
        values = loss(parameters)
        (gradient,) = torch.autograd.grad(values.sum(), parameters)
        return values.detach(), gradient

    position = start.clone()
    value, gradient = evaluate(position)
    pairs: list[tuple[Tensor, Tensor, Tensor]] = []
    for _ in range(max_iterations):
        direction = -_inverse_hessian_times(gradient, pairs)
        slope = (direction * gradient).sum(dim=1)
        step = torch.ones_like(value) if pairs else 1 / (1 + gradient.norm(dim=1))
        proposal, accepted = position, torch.zeros_like(value, dtype=torch.bool)
        new_value, new_gradient = value, gradient
        for _ in range(20):
            proposal = position + step[:, None] * direction
            new_value, new_gradient = evaluate(proposal)
            accepted = new_value <= value + 1e-4 * step * slope
            if accepted.all():
                break
            step = torch.where(accepted, step, step / 2)
        # A row without any decrease has converged to rounding: it stays where it is.
        moved = accepted[:, None]
        difference = torch.where(moved, proposal - position, 0.0)
        change = torch.where(moved, new_gradient - gradient, 0.0)
        curvature = (difference * change).sum(dim=1)
        usable = curvature > 1e-12
        inverse = torch.where(usable, 1 / curvature.where(usable, 1.0), 0.0)
        pairs = [*pairs[-(memory - 1) :], (difference, change, inverse)]
        position, gradient = position + difference, gradient + change
        value = torch.where(accepted, new_value, value)
        if not accepted.any() or gradient.abs().max() < 1e-6:
            break
    return position


def _inverse_hessian_times(gradient: Tensor, pairs: list[tuple[Tensor, Tensor, Tensor]]) -> Tensor:
    """The two-loop recursion, row by row; a pair whose inverse curvature is zero has no effect on its row."""
    result = gradient
    shares = []
    for difference, change, inverse in reversed(pairs):
        share = inverse * (difference * result).sum(dim=1)
        result = result - share[:, None] * change
        shares.append(share)
    if pairs:
        difference, change, inverse = pairs[-1]
        squared = change.square().sum(dim=1)
        scale = torch.where(inverse > 0, (difference * change).sum(dim=1) / squared.clamp_min(1e-300), 1.0)
        result = scale[:, None] * result
    for (difference, change, inverse), share in zip(pairs, reversed(shares), strict=True):
        back = inverse * (change * result).sum(dim=1)
        result = result + (share - back)[:, None] * difference
    return result


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
    """A Student interval with the replicas' standard deviation, cut to [0, 1].

    Percentiles would need many more replicas than the standard deviation does.
    """
    width = stats.t.ppf((1 + level) / 2, len(replicas) - 1) * replicas.std(axis=0, ddof=1)
    return Interval(np.asarray(estimate), np.clip(estimate - width, 0, 1), np.clip(estimate + width, 0, 1))


def _exponential_weights(num_rows: int, replicas: int, seed: int) -> Array:
    """(N, B) Exp(1) weights, of mean one in each replica."""
    weights = np.random.default_rng(seed).exponential(size=(num_rows, replicas))
    return weights / weights.mean(axis=0)


def _standardised(features: Numbers) -> Tensor:
    x = torch.as_tensor(features).detach().cpu().double()
    if x.ndim != 2 or x.numel() == 0:
        raise InputError(f"features must be a filled (N, D) array, but have shape {tuple(x.shape)}; flatten them.")
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
