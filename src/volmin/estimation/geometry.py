"""The smallest simplex around the posteriors: the start of minimum volume, and its whole answer without labels.

Noisy posteriors ``p = T h`` lie in the simplex whose vertices are the columns of T. If the clean posteriors are
sufficiently scattered, T has the least volume among the matrices whose simplex contains them. Estimated posteriors have
errors, so rows outside the simplex are penalised rather than forbidden:

    log det T + mu * mean_n sum_k tau softplus(-(T^-1 p_n)_k / tau),    T in the dominant parametrisation

A small mu gives a tight simplex, a large one a simplex that contains every outlier. mu is increased step by step: with
a large mu, the optimiser does not leave the neighbourhood of T = I.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from volmin._typing import Array
from volmin.transition import start_value

PENALTIES = (10.0, 20.0, 40.0, 80.0, 160.0, 320.0)
"""Values of mu along the path."""

STABLE, COLLAPSED = 0.6, 0.2
"""Ratios of the log volume to that for the previous mu: stable above the first, collapsed to T = I below the second."""

SOFTNESS = 2e-3
"""tau: distance from a facet, in probability, over which the penalty turns from zero to linear."""

INFEASIBLE = 1e10
"""Objective of a singular or reflected T, from which the line search backtracks."""


@dataclass(frozen=True)
class PathPoint:
    """The simplex for one weight of the penalty.

    Attributes:
        penalty: mu, the weight of rows outside the simplex.
        transition: (C, C) matrix T.
        log_volume: log det T.
        converged: Whether the optimiser met its tolerance.
    """

    penalty: float
    transition: Array
    log_volume: float
    converged: bool


def soft_to_hard(probs: Array, weights: Array, max_iterations: int) -> list[PathPoint]:
    """The simplices around (N, C) posteriors with (N,) weights for increasing mu, each started from the one before."""
    C = probs.shape[1]
    w = np.full(C * C, start_value(C))
    share = weights / weights.sum()
    columns = np.ascontiguousarray(probs.T)
    path = []
    for penalty in PENALTIES:
        fit = scipy.optimize.minimize(
            soft_hinge,
            w,
            args=(columns, share, penalty),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": max_iterations, "maxcor": 20},
        )
        w = fit.x
        T = column_normalised(w, C)[0]
        path.append(PathPoint(penalty, T, float(np.linalg.slogdet(T)[1]), bool(fit.success)))
    return path


def before_collapse(path: Sequence[PathPoint]) -> list[PathPoint]:
    """The part of the path before a simplex of stable size suddenly opens to the whole simplex, T = I.

    The simplex of T = I contains any posteriors, so it carries no information about them. With clean labels, the volume
    approaches it steadily: the log volume at least halves with each doubling of mu. With noisy labels, the volume
    settles at the noise, until mu becomes too large for posteriors with large errors and the simplex opens completely.
    """
    volumes = [point.log_volume for point in path]
    for k in range(2, len(path)):
        stable = volumes[k - 1] < STABLE * volumes[k - 2]
        if stable and volumes[k] > COLLAPSED * volumes[k - 1]:
            return list(path[:k])
    return list(path)


def soft_hinge(w: Array, columns: Array, share: Array, penalty: float, tau: float = SOFTNESS) -> tuple[float, Array]:
    """Log volume plus the penalty of rows outside the simplex, and its gradient.

    Args:
        w: (C * C,) parameters of T; those of the diagonal are ignored.
        columns: (C, N) posteriors, one per column.
        share: (N,) weights that sum to one.
        penalty: Weight mu of the penalty.
        tau: Softness of the hinge.
    """
    C = len(columns)
    T, A, sums = column_normalised(w, C)
    sign, log_volume = np.linalg.slogdet(T)
    # A matrix with a dominant diagonal may be singular, and the log volume is unbounded below near a singular one.
    if sign <= 0 or log_volume < -20 * C:
        return INFEASIBLE, np.zeros_like(w)
    inverse = np.linalg.inv(T)
    inside = inverse @ columns
    scaled = -inside / tau
    outside = tau * (np.logaddexp(0, scaled) @ share).sum()
    d_inside = -penalty * scipy.special.expit(scaled) * share
    d_T = inverse.T - inverse.T @ (d_inside @ inside.T)
    d_A = (d_T - (d_T * T).sum(axis=0)) / sums
    d_w = d_A * A * (1 - A)  # zero on the diagonal, where A = 1
    return float(log_volume + penalty * outside), d_w.ravel()


def column_normalised(w: Array, num_classes: int) -> tuple[Array, Array, Array]:
    """T in the dominant parametrisation, the unnormalised A (sigmoids, with ones on the diagonal), and its column sums.

    The factors of ``volmin.transition.dominant`` in NumPy, for the closed-form gradient of ``soft_hinge``.
    """
    A = scipy.special.expit(w.reshape(num_classes, num_classes))
    np.fill_diagonal(A, 1.0)
    sums = A.sum(axis=0)
    return A / sums, A, sums


def coreset(probs: Array, rows: int, generator: np.random.Generator) -> tuple[Array, Array]:
    """A weighted subsample of at most ``rows`` posteriors, (M, C), and its weights, (M,).

    Rows that are extreme in some direction determine the simplex and are all kept with weight one. The others are
    represented by a random sample, weighted so that means are unbiased.
    """
    if len(probs) <= rows:
        return probs, np.ones(len(probs))
    C = probs.shape[1]
    directions = np.concatenate([np.eye(C), -np.eye(C), generator.normal(size=(min(10 * C, rows // 4), C))])
    batches = np.array_split(directions, max(1, len(directions) // 10))  # limits memory to about ten numbers per row
    extreme = np.unique(np.concatenate([(batch @ probs.T).argmax(axis=1) for batch in batches]))
    rest = np.delete(np.arange(len(probs)), extreme)
    sample = generator.choice(rest, rows - len(extreme), replace=False)
    weights = np.concatenate([np.ones(len(extreme)), np.full(len(sample), len(rest) / len(sample))])
    return probs[np.concatenate([extreme, sample])], weights
