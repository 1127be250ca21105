"""Minimum volume: T from the posteriors of any classifier, without anchor points (VolMinNet, post hoc).

Two estimates follow the same principle and fail in different situations, so both are computed and compared by the
likelihood of the noisy labels:

- *geometry*: the smallest simplex that contains most posteriors. It needs posteriors with unbiased errors, and then
  handles classes that overlap everywhere.
- *labels*: a head on the log posteriors and T, fitted jointly to the labels, started from the geometry and from the
  confident joint. It tolerates biased posteriors, and needs classes that separate somewhere.

The fit to the labels is evaluated on held-out rows and used only if it is clearly better than the geometry. With a free
clean posterior per row, T = I explains any calibrated posteriors perfectly, so the likelihood alone cannot choose among
the simplices: there the default penalty is kept unless the labels reject it.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy
import torch

from volmin._typing import Array, Labels, Numbers
from volmin.estimation.confident import confident
from volmin.estimation.em import fit_transitions, split_by_label, unmix
from volmin.estimation.geometry import PathPoint, before_collapse, coreset, soft_to_hard
from volmin.estimation.label_fit import PSEUDO_COUNT, LabelFit, fit_labels, head_posteriors, noisy_log_likelihood
from volmin.exceptions import DegenerateTransitionWarning, InputError
from volmin.validation import validate_labels, validate_posteriors

FLOOR = 1e-6
"""Smallest posterior; forests and saturated networks give exact zeros."""

GEOMETRY_ROWS = 10_000
START_ROWS = 10_000
SELECTION_ROWS = 20_000
FIT_ROWS = 40_000
FIT_NUMBERS = 2_000_000
"""Limits of the rows, and of rows times classes, that are fitted, so that time and memory hardly grow with the data."""

DEFAULT_PENALTY = 80.0
"""mu of the simplex unless the labels reject it: appropriate for posteriors with unbiased errors."""

BLIND_PENALTY = 20.0
"""mu without labels: with a larger one, the posteriors of real networks under pair noise give T = I."""

STARTS = (10.0, 20.0, 40.0)
"""mu of the simplices from which the fit to the labels is started."""
FOLDS = 3
REFINEMENT_STEPS = 20
"""EM iterations for T on all rows, after the fit to a sample."""

SMALLEST_SINGULAR_VALUE = 1e-2
"""Smallest singular value of T without a warning."""

DOUBT = 2.0
"""Standard errors by which the fit to the labels must beat the geometry on held-out rows, by default."""


@dataclass(frozen=True)
class MinimumVolume:
    """A minimum-volume estimate and how it was obtained.

    Attributes:
        transition: (C, C) matrix ``T[i, j] = P(noisy = i | clean = j)``.
        reading: ``"labels"`` if T was fitted to the noisy labels, ``"geometry"`` if it is the simplex alone.
        path: Simplices for increasing mu, up to a collapse to T = I.
        penalty: mu of the chosen simplex; NaN for the fit to the labels.
        temperature: Factor of the log posteriors that calibrates them; 1 if they need none.
        gain: Mean log-likelihood of held-out noisy labels under the fit to the labels, minus that of the best simplex;
            NaN without labels.
        gain_error: Standard error of ``gain``.
        converged: Whether the optimiser behind ``transition`` met its tolerance.
        head: Parameters of the fit to the labels; None for the geometry.
    """

    transition: Array
    reading: Literal["geometry", "labels"]
    path: tuple[PathPoint, ...]
    penalty: float
    temperature: float
    gain: float
    gain_error: float
    converged: bool
    head: Array | None = None

    def clean_posteriors(self, probs: Numbers) -> Array:
        """Posteriors of the *clean* label, (N, C), for (N, C) posteriors of the noisy one."""
        P = tempered(floored(validate_posteriors(probs)), self.temperature)
        if self.head is None:
            return unmix(P, self.transition)
        return head_posteriors(torch.as_tensor(self.head), torch.from_numpy(np.log(P))).numpy()


def minimum_volume(
    probs: Numbers, labels: Numbers | None = None, *, random_state: int = 0, doubt: float = DOUBT
) -> MinimumVolume:
    """The T of smallest volume that is compatible with the posteriors and the labels.

    The column of a class without labels (if no labels are given: without posterior mass) is ``e_j``. A nearly singular
    T raises a ``DegenerateTransitionWarning``.

    Args:
        probs: (N, C) out-of-sample posteriors of the noisy label.
        labels: (N,) noisy labels in ``0 .. C-1``. Without them, the estimate depends on the shape of the posteriors
            alone, which must then be accurate and calibrated.
        random_state: Seed of the subsamples taken of large data.
        doubt: Standard errors by which the fit to the labels must beat the geometry. A value below the default suits
            posteriors that are biased rather than merely noisy, as those of most classifiers are.
    """
    P = informative_posteriors(probs)
    generator = np.random.default_rng(random_state)
    if labels is None:
        absent = P.max(axis=0) == 0
        result = _without_labels(floored(P), generator)
    else:
        y = validate_labels(labels, *P.shape)
        absent = np.bincount(y, minlength=P.shape[1]) == 0
        result = _with_labels(floored(P), y, generator, doubt)
    result.transition[:, absent] = np.eye(len(absent))[:, absent]
    smallest = np.linalg.svd(result.transition, compute_uv=False)[-1]
    if smallest < SMALLEST_SINGULAR_VALUE:
        warnings.warn(
            f"The estimated T is nearly singular (smallest singular value {smallest:.1e}): the posteriors hardly"
            " distinguish some classes. Use more rows or a better classifier, or merge those classes.",
            DegenerateTransitionWarning,
            stacklevel=2,
        )
    return result


def informative_posteriors(probs: Numbers) -> Array:
    """A float64 copy of (N, C) posteriors, or an ``InputError`` if they are invalid or cannot determine any T."""
    P = validate_posteriors(probs)
    if len(P) < P.shape[1]:
        raise InputError(
            f"probs has {len(P)} rows for {P.shape[1]} classes; give at least one row per class"
            " (is the array transposed?)."
        )
    if np.ptp(P, axis=0).max() < 1e-9:
        raise InputError("All rows of probs are equal and do not determine T; give the output of a trained model.")
    return P


def _without_labels(P: Array, generator: np.random.Generator) -> MinimumVolume:
    path = soft_to_hard(*coreset(P, GEOMETRY_ROWS, generator), iterations(P.shape[1]))
    simplex = next(point for point in path if point.penalty == BLIND_PENALTY)
    return _from_geometry(simplex, path, 1.0, np.nan, np.nan)


def _with_labels(P: Array, y: Labels, generator: np.random.Generator, doubt: float) -> MinimumVolume:
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
    gain, gain_error = _mean_and_error(held_out_log_likelihood(P[rows], y[rows], best.transition) - fits[chosen])
    if gain <= doubt * gain_error:
        return _from_geometry(path[chosen], path, temperature, gain, gain_error)

    many = _sample(len(P), min(FIT_ROWS, FIT_NUMBERS // P.shape[1]), generator)
    fit = fit_labels(*_tensors(P[many], y[many]), best.parameters, steps)
    return MinimumVolume(
        transition=_refined(fit, P, y),
        reading="labels",
        path=tuple(path),
        penalty=np.nan,
        temperature=temperature,
        gain=gain,
        gain_error=gain_error,
        converged=fit.converged,
        head=fit.parameters,
    )


def _refined(fit: LabelFit, P: Array, y: Labels) -> Array:
    """T refitted to all rows with the head fixed: a sample determines the head, but has few labels per entry of T."""
    clean = head_posteriors(torch.as_tensor(fit.parameters), _tensors(P, y)[0]).numpy()
    return fit_transitions(
        split_by_label(clean, y),
        fit.transition[None],
        pseudo_counts=PSEUDO_COUNT / clean.shape[1],
        tolerance=0.0,
        max_iterations=REFINEMENT_STEPS,
    )[0]


def iterations(num_classes: int) -> int:
    """Limit of optimiser iterations; lower for many classes, so that 100 classes take minutes."""
    return 100 if num_classes <= 30 else 60


def calibration(probs: Array, labels: Labels) -> float:
    """The factor of the log posteriors that maximises the likelihood of the labels, or 1 if it is not significant.

    Overconfident posteriors make every smaller simplex seem more likely, while a factor that the labels do not support
    (likelihood-ratio test at 5 %) only adds noise.
    """

    def loss(log_factor: float) -> float:
        return -log_likelihood(tempered(probs, np.exp(log_factor)), labels).mean()

    best = scipy.optimize.minimize_scalar(loss, bounds=(-2.5, 2.5), method="bounded")
    significant = 2 * len(labels) * (loss(0.0) - best.fun) > 3.84
    return float(np.exp(best.x)) if significant else 1.0


def tempered(probs: Array, factor: float) -> Array:
    """Posteriors whose logarithms are multiplied by ``factor``, (N, C)."""
    return probs if factor == 1 else floored(scipy.special.softmax(factor * np.log(probs), axis=1))


def preferred(path: Sequence[PathPoint], fits: Sequence[Array]) -> int:
    """Position of the simplex closest to the default penalty that is within one standard error of the likeliest one.

    Args:
        path: Simplices for increasing mu.
        fits: For each simplex, the (N,) log-likelihoods of the noisy labels.
    """
    likeliest = max(range(len(path)), key=lambda k: fits[k].mean())
    losses = [_mean_and_error(fits[likeliest] - fit) for fit in fits]
    allowed = [k for k, (loss, error) in enumerate(losses) if loss <= error]
    return min(allowed, key=lambda k: abs(np.log(path[k].penalty / DEFAULT_PENALTY)))


def best_start(probs: Array, labels: Labels, starts: Sequence[Array]) -> LabelFit:
    """The fit to the labels with the smallest objective over several (C, C) starts; the objective has many minima."""
    log_probs, y = _tensors(probs, labels)
    steps = iterations(probs.shape[1])
    return min((fit_labels(log_probs, y, start, steps) for start in starts), key=lambda fit: fit.objective)


def held_out_log_likelihood(probs: Array, labels: Labels, start: Array) -> Array:
    """Log probability of each row's label, (N,), under a fit to the other folds."""
    log_probs, y = _tensors(probs, labels)
    fold = torch.arange(len(y)) % FOLDS
    held_out = torch.empty(len(y), dtype=torch.float64)
    for k in range(FOLDS):
        fit = fit_labels(log_probs[fold != k], y[fold != k], start, iterations(probs.shape[1]))
        head = torch.as_tensor(fit.parameters)
        held_out[fold == k] = noisy_log_likelihood(head, log_probs[fold == k], y[fold == k])
    return held_out.numpy()


def log_likelihood(probs: Array, labels: Labels) -> Array:
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


def floored(probs: Array) -> Array:
    """Posteriors of at least ``FLOOR``, (N, C), whose logarithms are finite."""
    raised = np.maximum(probs, FLOOR)
    return raised / raised.sum(axis=1, keepdims=True)


def _sample(size: int, rows: int, generator: np.random.Generator) -> Labels:
    return generator.permutation(size)[:rows]


def _tensors(probs: Array, labels: Labels) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.from_numpy(np.log(probs)), torch.from_numpy(labels)


def _mean_and_error(values: Array) -> tuple[float, float]:
    return float(values.mean()), float(values.std() / np.sqrt(len(values)))
