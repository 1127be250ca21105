"""Minimum volume: T from the posteriors of any classifier, without anchor points (VolMinNet, post hoc).

Two readings of the same principle, each right where the other fails, compete on the noisy labels:

- *geometry*: the smallest simplex that holds most posteriors. It needs posteriors that are right up to unbiased
  errors, and then works for classes that overlap everywhere.
- *labels*: a head on the log posteriors and T, fitted together to the labels from starts that the geometry and
  the confident joint give. It forgives biased posteriors, and needs classes that separate somewhere.

The labels' fit is judged on rows it has not seen, and taken only where it beats the geometry beyond doubt.
With a free clean posterior per row T = I would explain any calibrated posteriors perfectly, so the likelihood alone
cannot choose among simplices: there the default stands unless it is rejected.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy
import torch
from numpy.typing import ArrayLike, NDArray

from volmin.estimation.confident import confident
from volmin.estimation.geometry import PathPoint, before_collapse, coreset, soft_to_hard, unmix
from volmin.estimation.inputs import checked_posteriors
from volmin.estimation.label_fit import (
    LabelFit,
    clean_posteriors,
    fit_labels,
    likeliest_transition,
    noisy_log_likelihood,
)
from volmin.transition import DegenerateTransitionWarning
from volmin.validation import validate_labels

Matrix = NDArray[np.float64]
Labels = NDArray[np.int64]

FLOOR = 1e-6
"""The least probability that a posterior is taken for: forests and saturated networks give exact zeros."""

GEOMETRY_ROWS = 10_000
START_ROWS = 10_000
SELECTION_ROWS = 20_000
FIT_ROWS = 40_000
FIT_NUMBERS = 2_000_000
"""At most so many rows, and rows times classes, are fitted: time and memory then hardly grow with the data."""

DEFAULT_PENALTY = 80.0
"""mu of the simplex when the labels do not say otherwise: right for posteriors whose errors are unbiased."""

BLIND_PENALTY = 20.0
"""mu without labels: a harder simplex collapses to T = I on the posteriors of real networks under pair noise."""

STARTS = (10.0, 20.0, 40.0)
FOLDS = 3

WEAKEST = 1e-2
"""Singular values of T below this are warned of."""

DOUBT = 2.0
"""Standard errors by which the labels' fit must beat the geometry on unseen rows, unless told otherwise."""


@dataclass(frozen=True)
class MinimumVolume:
    """A minimum-volume estimate and how it came about.

    Attributes:
        transition: (C, C) matrix ``T[i, j] = P(noisy = i | clean = j)``.
        reading: ``"labels"`` if T was fitted to the noisy labels, ``"geometry"`` if it is the simplex alone.
        path: the simplices from soft to hard, as far as they say anything.
        penalty: mu of the simplex that was chosen; NaN for the labels' fit.
        temperature: by which the log posteriors were multiplied to calibrate them; 1 if not needed.
        gain: mean log-likelihood of unseen noisy labels under the labels' fit, above that of the best
            simplex; NaN without labels.
        gain_error: standard error of ``gain``.
        converged: whether the optimiser behind ``transition`` met its tolerance.
        head: the parameters of the labels' fit; None for the geometry.
    """

    transition: Matrix
    reading: Literal["geometry", "labels"]
    path: tuple[PathPoint, ...]
    penalty: float
    temperature: float
    gain: float
    gain_error: float
    converged: bool
    head: Matrix | None = None

    def clean_posteriors(self, probs: ArrayLike) -> Matrix:
        """Posteriors of the *clean* label, (N, C), for (N, C) posteriors of the noisy one."""
        P = tempered(_floored(checked_posteriors(probs)), self.temperature)
        if self.head is None:
            return unmix(P, self.transition)
        return clean_posteriors(torch.as_tensor(self.head), torch.from_numpy(np.log(P))).numpy()


def minimum_volume(
    probs: ArrayLike, labels: ArrayLike | None = None, *, random_state: int = 0, doubt: float = DOUBT
) -> MinimumVolume:
    """T of the smallest volume that the posteriors and the labels allow.

    A class that no label names (without labels: that has no posterior mass) keeps its labels: its column is ``e_j``.
    Warns when T is nearly singular.

    Args:
        probs: (N, C) posteriors of the noisy label, out of sample; not changed.
        labels: (N,) noisy labels in ``0 .. C-1``. Without them the answer rests on the shape of the
            posteriors alone, which calibrated and accurate posteriors bear and others do not.
        random_state: seed of the samples that large data are reduced to.
        doubt: standard errors by which the labels' fit must beat the geometry. Less than the default suits
            posteriors that are biased rather than merely noisy, as those of most classifiers are.
    """
    P = checked_posteriors(probs)
    generator = np.random.default_rng(random_state)
    if labels is None:
        absent = P.max(axis=0) == 0
        result = _by_shape(_floored(P), generator)
    else:
        y = validate_labels(labels, *P.shape)
        absent = np.bincount(y, minlength=P.shape[1]) == 0
        result = _by_labels(_floored(P), y, generator, doubt)
    result.transition[:, absent] = np.eye(len(absent))[:, absent]
    weakest = np.linalg.svd(result.transition, compute_uv=False)[-1]
    if weakest < WEAKEST:
        warnings.warn(
            f"The estimated T is nearly singular (smallest singular value {weakest:.1e}): the posteriors barely tell"
            " some classes apart. Give more rows or a better classifier, or merge those classes.",
            DegenerateTransitionWarning,
            stacklevel=2,
        )
    return result


def _by_shape(P: Matrix, generator: np.random.Generator) -> MinimumVolume:
    path = soft_to_hard(*coreset(P, GEOMETRY_ROWS, generator), iterations(P.shape[1]))
    simplex = next(point for point in path if point.penalty == BLIND_PENALTY)
    return _from_geometry(simplex, path, 1.0, np.nan, np.nan)


def _by_labels(P: Matrix, y: Labels, generator: np.random.Generator, doubt: float) -> MinimumVolume:
    rows = _sample(len(P), SELECTION_ROWS, generator)
    temperature = calibration(P[rows], y[rows])
    P = tempered(P, temperature)
    steps = iterations(P.shape[1])
    path = before_collapse(soft_to_hard(*coreset(P, GEOMETRY_ROWS, generator), steps))
    fits = [log_likelihood(unmix(P[rows], point.transition) @ point.transition.T, y[rows]) for point in path]
    chosen = preferred(path, fits)

    starts = [point.transition for point in path if point.penalty in STARTS] + [confident(P[rows], y[rows])]
    few = rows[:START_ROWS]
    best = best_start(P[few], y[few], starts)
    gain, gain_error = _mean_and_error(unseen_log_likelihood(P[rows], y[rows], best.transition) - fits[chosen])
    if gain <= doubt * gain_error:
        return _from_geometry(path[chosen], path, temperature, gain, gain_error)

    many = _sample(len(P), min(FIT_ROWS, FIT_NUMBERS // P.shape[1]), generator)
    fit = fit_labels(*_tensors(P[many], y[many]), best.parameters, steps)
    # The head is known from a sample, but each entry of T has only its own labels: give it all of them.
    clean = clean_posteriors(torch.as_tensor(fit.parameters), _tensors(P, y)[0]).numpy()
    return MinimumVolume(
        transition=likeliest_transition(fit.transition, clean, y),
        reading="labels",
        path=tuple(path),
        penalty=np.nan,
        temperature=temperature,
        gain=gain,
        gain_error=gain_error,
        converged=fit.converged,
        head=fit.parameters,
    )


def iterations(num_classes: int) -> int:
    """How many steps an optimiser may take: fewer where each is dear, so that 100 classes take minutes."""
    return 100 if num_classes <= 30 else 60


def calibration(probs: Matrix, labels: Labels) -> float:
    """The factor of the log posteriors under which the labels are likeliest, or 1 if that is no better.

    Overconfident posteriors would make any smaller simplex look likelier. One that the labels do not call for
    (a likelihood ratio test at 5 %) only adds noise.
    """

    def loss(log_factor: float) -> float:
        return -log_likelihood(tempered(probs, np.exp(log_factor)), labels).mean()

    best = scipy.optimize.minimize_scalar(loss, bounds=(-2.5, 2.5), method="bounded")
    needed = 2 * len(labels) * (loss(0.0) - best.fun) > 3.84
    return float(np.exp(best.x)) if needed else 1.0


def tempered(probs: Matrix, factor: float) -> Matrix:
    """Posteriors whose logarithms are multiplied by ``factor``, (N, C)."""
    return probs if factor == 1 else _floored(scipy.special.softmax(factor * np.log(probs), axis=1))


def preferred(path: Sequence[PathPoint], fits: Sequence[Matrix]) -> int:
    """Which simplex to take: the one nearest to the default that the labels do not reject against the
    likeliest.

    Args:
        path: simplices from soft to hard.
        fits: for each, the (N,) log-likelihoods of the noisy labels.
    """
    likeliest = max(range(len(path)), key=lambda k: fits[k].mean())
    losses = [_mean_and_error(fits[likeliest] - fit) for fit in fits]
    allowed = [k for k, (loss, error) in enumerate(losses) if loss <= error]
    return min(allowed, key=lambda k: abs(np.log(path[k].penalty / DEFAULT_PENALTY)))


def best_start(probs: Matrix, labels: Labels, starts: Sequence[Matrix]) -> LabelFit:
    """The fit to the labels with the least objective, over several (C, C) starts: its basins are deep but many."""
    log_probs, y = _tensors(probs, labels)
    steps = iterations(probs.shape[1])
    return min((fit_labels(log_probs, y, start, steps) for start in starts), key=lambda fit: fit.objective)


def unseen_log_likelihood(probs: Matrix, labels: Labels, start: Matrix) -> Matrix:
    """Log probability of each row's label, (N,), under a fit to the other folds of rows."""
    log_probs, y = _tensors(probs, labels)
    fold = torch.arange(len(y)) % FOLDS
    unseen = torch.empty(len(y), dtype=torch.float64)
    for k in range(FOLDS):
        fit = fit_labels(log_probs[fold != k], y[fold != k], start, iterations(probs.shape[1]))
        head = torch.as_tensor(fit.parameters)
        unseen[fold == k] = noisy_log_likelihood(head, log_probs[fold == k], y[fold == k])
    return unseen.numpy()


def log_likelihood(probs: Matrix, labels: Labels) -> Matrix:
    """Log probability of each row's label, (N,)."""
    return np.log(probs[np.arange(len(labels)), labels])


def _from_geometry(
    simplex: PathPoint, path: Sequence[PathPoint], temperature: float, gain: float, gain_error: float
) -> MinimumVolume:
    return MinimumVolume(
        transition=simplex.transition.copy(),
        reading="geometry",
        path=tuple(path),
        penalty=simplex.penalty,
        temperature=temperature,
        gain=gain,
        gain_error=gain_error,
        converged=simplex.converged,
    )


def _floored(probs: Matrix) -> Matrix:
    raised = np.maximum(probs, FLOOR)
    return raised / raised.sum(axis=1, keepdims=True)


def _sample(size: int, rows: int, generator: np.random.Generator) -> NDArray[np.intp]:
    return generator.permutation(size)[:rows]


def _tensors(probs: Matrix, labels: Labels) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.from_numpy(np.log(probs)), torch.from_numpy(labels)


def _mean_and_error(values: Matrix) -> tuple[float, float]:
    return float(values.mean()), float(values.std() / np.sqrt(len(values)))
