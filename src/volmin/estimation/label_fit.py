"""VolMinNet on posteriors: a clean classifier and T, fitted jointly to the noisy labels.

The log posteriors of the given classifier are the features x of a small head,

    h(x) = softmax(x @ (kappa T + D) + b),    loss = mean -log (T h)_y + lam log vol(T) + ridge |D|^2

With D = 0, a row is assigned to the class whose column of T it resembles most (least cross-entropy to the column). The
head then has no weights of its own to explain noise with, so T = I fits worse as soon as the classes separate. The
correction D, kept small by the ridge penalty, compensates for systematic errors of the posteriors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy
import torch
from torch import Tensor

from volmin._typing import Array
from volmin.losses import noisy_likelihood
from volmin.transition import dominant, log_volume

VOLUME_WEIGHT = 1e-4
"""lam: weight of the log volume."""
RIDGE = 1e-3
PSEUDO_COUNT = 2.0
"""Labels added to each column of T, spread evenly, so that an entry without labels does not become zero."""

START_SHARPNESS = 4.0
"""kappa at the start."""
START_MARGIN = 1e-2
"""Distance from 0 and 1, times C, of the entries relative to the diagonal at the start; closer, gradients vanish."""


@dataclass(frozen=True)
class LabelFit:
    """A fitted head and T.

    Attributes:
        parameters: All parameters as one vector.
        transition: (C, C) matrix T.
        objective: Value of the objective at the solution.
        converged: Whether the optimiser met its tolerance.
    """

    parameters: Array
    transition: Array
    objective: float
    converged: bool


def fit_labels(log_probs: Tensor, labels: Tensor, start: Array, max_iterations: int) -> LabelFit:
    """Fit T and the head to noisy labels.

    Args:
        log_probs: (N, C) log posteriors in double precision.
        labels: (N,) noisy labels.
        start: (C, C) transition matrix, or the parameters of an earlier fit.
        max_iterations: Limit of L-BFGS iterations.
    """
    C = log_probs.shape[1]
    parameters = start_parameters(start) if start.ndim == 2 else start

    def objective(theta: Tensor) -> Tensor:
        logits, T = head(theta, log_probs)
        correction = theta[_layout(C)["correction"]]
        prior = PSEUDO_COUNT / C * T.log().sum() / len(labels)
        noisy = noisy_likelihood(logits, T, labels).log().mean()
        return VOLUME_WEIGHT * log_volume(T) + RIDGE * correction.square().sum() - noisy - prior

    fit = scipy.optimize.minimize(
        with_gradient(objective),
        parameters,
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": max_iterations, "maxcor": 20},
    )
    T = _transition(torch.as_tensor(fit.x), C).numpy()
    return LabelFit(fit.x, T, float(fit.fun), bool(fit.success))


def noisy_log_likelihood(theta: Tensor, log_probs: Tensor, labels: Tensor) -> Tensor:
    """``log (T h)_y`` of each row, (N,)."""
    logits, T = head(theta, log_probs)
    return noisy_likelihood(logits, T, labels).log()


def head_posteriors(theta: Tensor, log_probs: Tensor) -> Tensor:
    """The head's clean posteriors, (N, C), for (N, C) log posteriors of the noisy label."""
    logits, _ = head(theta, log_probs)
    return logits.softmax(dim=1)


def head(theta: Tensor, log_probs: Tensor) -> tuple[Tensor, Tensor]:
    """The head's clean logits, (N, C), for (N, C) log posteriors of the noisy label; and T, (C, C)."""
    C = log_probs.shape[1]
    layout = _layout(C)
    T = _transition(theta, C)
    weights = theta[layout["sharpness"]].exp() * T + theta[layout["correction"]].reshape(C, C)
    return log_probs @ weights + theta[layout["bias"]], T


def start_parameters(T: Array) -> Array:
    """The parameters of a head with D = 0 and b = 0, for a (C, C) transition matrix."""
    C = len(T)
    theta = np.zeros(_layout(C)["correction"].stop)
    ratio = np.clip(T / T.diagonal().clip(min=1e-12), START_MARGIN / C, 1 - START_MARGIN / C)
    theta[_layout(C)["w"]] = scipy.special.logit(ratio).ravel()
    theta[_layout(C)["sharpness"]] = np.log(START_SHARPNESS)
    return theta


def _layout(C: int) -> dict[str, slice]:
    return {
        "w": slice(0, C * C),
        "sharpness": slice(C * C, C * C + 1),
        "bias": slice(C * C + 1, C * C + 1 + C),
        "correction": slice(C * C + 1 + C, 2 * C * C + 1 + C),
    }


def _transition(theta: Tensor, C: int) -> Tensor:
    return dominant(theta[_layout(C)["w"]].reshape(C, C))


def with_gradient(objective: Callable[[Tensor], Tensor]) -> Callable[[Array], tuple[float, Array]]:
    """The value and the gradient of an objective as SciPy's optimisers take them."""

    @torch.enable_grad()  # gradients may be disabled by the caller
    def value_and_gradient(parameters: Array) -> tuple[float, Array]:
        theta = torch.tensor(parameters, requires_grad=True)
        value = objective(theta)
        (gradient,) = torch.autograd.grad(value, theta)
        return value.item(), gradient.numpy()

    return value_and_gradient
