"""VolMinNet on posteriors: a clean classifier and T, fitted together to the noisy labels.

The log posteriors of the given classifier are features x of a small head,

    h(x) = softmax(x @ (kappa T + D) + b),    loss = mean -log (T h)_y + lam log vol(T) + ridge |D|^2

With D = 0 a row belongs to the class whose column of T it resembles most (its cross-entropy to the column), so
the head has no parameters of its own to explain noise away with: T = I loses as soon as the classes separate.
The correction D, held small by the ridge, makes up for what is systematically wrong with the posteriors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy
import torch
from numpy.typing import NDArray
from torch import Tensor

from volmin.transition import dominant, log_volume

VOLUME_WEIGHT = 1e-4
RIDGE = 1e-3
PSEUDO_COUNT = 2.0
"""Labels that are imagined for each column of T, evenly, so that a few missing ones make no entry zero."""

START_SHARPNESS = 4.0
START_MARGIN = 1e-2
"""How far from zero the entries of a column start, taken together: nearer, they would hardly move."""


@dataclass(frozen=True)
class LabelFit:
    """A fitted head and T.

    Attributes:
        parameters: all parameters as one vector.
        transition: (C, C) matrix T.
        objective: what was minimised, at its end.
        converged: whether the optimiser met its tolerance.
    """

    parameters: NDArray[np.float64]
    transition: NDArray[np.float64]
    objective: float
    converged: bool


def fit_labels(log_probs: Tensor, labels: Tensor, start: NDArray[np.float64], max_iterations: int) -> LabelFit:
    """Fit T and the head to noisy labels.

    Args:
        log_probs: (N, C) log posteriors in double precision.
        labels: (N,) noisy labels.
        start: a (C, C) transition matrix, or the parameters of an earlier fit.
        max_iterations: of L-BFGS.
    """
    C = log_probs.shape[1]
    parameters = start_parameters(start) if start.ndim == 2 else start

    def objective(theta: Tensor) -> Tensor:
        T = _transition(theta, C)
        correction = theta[_layout(C)["correction"]]
        prior = PSEUDO_COUNT / C * T.log().sum() / len(labels)
        noisy = noisy_log_likelihood(theta, log_probs, labels).mean()
        return VOLUME_WEIGHT * log_volume(T) + RIDGE * correction.square().sum() - noisy - prior

    fit = scipy.optimize.minimize(
        _with_gradient(objective),
        parameters,
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": max_iterations, "maxcor": 20},
    )
    T = _transition(torch.as_tensor(fit.x), C).numpy()
    return LabelFit(fit.x, T, float(fit.fun), bool(fit.success))


def noisy_log_likelihood(theta: Tensor, log_probs: Tensor, labels: Tensor) -> Tensor:
    """``log (T h)_y`` of each row, (N,)."""
    h = clean_posteriors(theta, log_probs)
    T = _transition(theta, log_probs.shape[1])
    return (h * torch.nn.functional.embedding(labels, T)).sum(dim=1).clamp_min(1e-12).log()


def clean_posteriors(theta: Tensor, log_probs: Tensor) -> Tensor:
    """What the head makes of log posteriors, (N, C) to (N, C)."""
    C = log_probs.shape[1]
    layout = _layout(C)
    weights = theta[layout["sharpness"]].exp() * _transition(theta, C)
    weights = weights + theta[layout["correction"]].reshape(C, C)
    return (log_probs @ weights + theta[layout["bias"]]).softmax(dim=1)


def likeliest_transition(
    T: NDArray[np.float64], clean: NDArray[np.float64], labels: NDArray[np.int64], steps: int = 20
) -> NDArray[np.float64]:
    """T improved by expectation maximisation for fixed (N, C) clean posteriors: cheap enough for all rows."""
    C = len(T)
    by_label = [clean[labels == i] for i in range(C)]
    for _ in range(steps):
        counts = np.stack([T[i] * (h.T @ (1 / (h @ T[i]))) for i, h in enumerate(by_label)]) + PSEUDO_COUNT / C
        T = counts / counts.sum(axis=0)
    return T


def start_parameters(T: NDArray[np.float64]) -> NDArray[np.float64]:
    """The parameters of a head without correction for a (C, C) transition matrix."""
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


def _with_gradient(
    objective: Callable[[Tensor], Tensor],
) -> Callable[[NDArray[np.float64]], tuple[float, NDArray[np.float64]]]:
    @torch.enable_grad()  # a caller may have switched gradients off
    def value_and_gradient(parameters: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        theta = torch.tensor(parameters, requires_grad=True)
        value = objective(theta)
        (gradient,) = torch.autograd.grad(value, theta)
        return value.item(), gradient.numpy()

    return value_and_gradient
