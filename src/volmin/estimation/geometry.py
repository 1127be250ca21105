"""The smallest simplex around the posteriors: where minimum volume starts, and all there is without labels.

Noisy posteriors ``p = T h`` lie in the simplex whose vertices are the columns of T. Among the matrices whose
simplex holds them, T is the one of least volume when the clean posteriors are sufficiently scattered. Real
posteriors carry errors, so that rows outside the simplex are fined instead of forbidden:

    log det T + mu * mean_n sum_k tau softplus(-(T^-1 p_n)_k / tau),    T in the dominant parametrisation

A small mu gives a tight simplex, a large one has to hold every outlier. Going from soft to hard matters: from
the hard end the optimiser does not leave the neighbourhood of T = I.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from volmin.transition import start_value

Matrix = NDArray[np.float64]

PENALTIES = (10.0, 20.0, 40.0, 80.0, 160.0, 320.0)
REST, JUMP = 0.6, 0.2
"""Of the log volume for the price before: at rest if more is left, collapsed if less."""

SOFTNESS = 2e-3
"""tau: how far from the facet, in probability, the fine turns from zero to linear."""

REFUSED = 1e10
"""Value of a singular or reflected T: the line search steps back from it."""


@dataclass(frozen=True)
class PathPoint:
    """The simplex for one price of rows outside it.

    Attributes:
        penalty: mu, the price.
        transition: (C, C) matrix T.
        log_volume: log det T.
        converged: whether the optimiser met its tolerance.
    """

    penalty: float
    transition: Matrix
    log_volume: float
    converged: bool


def soft_to_hard(probs: Matrix, weights: Matrix, max_iterations: int) -> list[PathPoint]:
    """The path of simplices around (N, C) posteriors with (N,) weights, each started from the softer one."""
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
        T = dominant(w, C)[0]
        path.append(PathPoint(penalty, T, float(np.linalg.slogdet(T)[1]), bool(fit.success)))
    return path


def before_collapse(path: Sequence[PathPoint]) -> list[PathPoint]:
    """The path up to where a simplex that had held its size falls open to the whole one, T = I, at once.

    A T that is the identity holds any posteriors, so it says nothing of them. Where labels are clean, the volume
    grows towards it steadily, by half or more with each doubling of the price. Where they are noisy, it comes to rest
    at the noise; if then the price of posteriors with large errors becomes too high, all of the noise is given up.
    """
    volumes = [point.log_volume for point in path]
    for k in range(2, len(path)):
        at_rest = volumes[k - 1] < REST * volumes[k - 2]
        if at_rest and volumes[k] > JUMP * volumes[k - 1]:
            return list(path[:k])
    return list(path)


def soft_hinge(
    w: Matrix, columns: Matrix, share: Matrix, penalty: float, tau: float = SOFTNESS
) -> tuple[float, Matrix]:
    """Log volume plus the price of rows outside the simplex, and its gradient.

    Args:
        w: (C * C,) parameters of T; those of the diagonal are ignored.
        columns: (C, N) posteriors, one per column.
        share: (N,) weights that sum to one.
        penalty: mu.
        tau: softness of the hinge.
    """
    C = len(columns)
    T, A, sums = dominant(w, C)
    sign, log_volume = np.linalg.slogdet(T)
    # A dominant diagonal does not keep T regular, and the log volume has no lower bound at a singular one.
    if sign <= 0 or log_volume < -20 * C:
        return REFUSED, np.zeros_like(w)
    inverse = np.linalg.inv(T)
    inside = inverse @ columns
    scaled = -inside / tau
    fine = tau * (np.logaddexp(0, scaled) @ share).sum()
    d_inside = -penalty * scipy.special.expit(scaled) * share
    d_T = inverse.T - inverse.T @ (d_inside @ inside.T)
    d_A = (d_T - (d_T * T).sum(axis=0)) / sums
    d_w = d_A * A * (1 - A)  # zero on the diagonal, where A = 1
    return float(log_volume + penalty * fine), d_w.ravel()


def dominant(w: Matrix, num_classes: int) -> tuple[Matrix, Matrix, Matrix]:
    """T with its diagonal largest in each column, the unnormalised A, and the column sums of A."""
    A = scipy.special.expit(w.reshape(num_classes, num_classes))
    np.fill_diagonal(A, 1.0)
    sums = A.sum(axis=0)
    return A / sums, A, sums


def unmix(probs: Matrix, T: Matrix, steps: int = 40) -> Matrix:
    """The clean posteriors h, (N, C), for which ``T h`` comes nearest to each row in Kullback-Leibler divergence.

    Each step is one of expectation maximisation, so that h stays a distribution.
    """
    h = np.full_like(probs, 1 / probs.shape[1])
    # A few rows at a time: they stay in the processor's cache for all steps.
    for start in range(0, len(probs), _UNMIX_ROWS):
        rows = slice(start, start + _UNMIX_ROWS)
        for _ in range(steps):
            h[rows] *= (probs[rows] / (h[rows] @ T.T)) @ T
    return h


_UNMIX_ROWS = 4096


def coreset(probs: Matrix, rows: int, generator: np.random.Generator) -> tuple[Matrix, Matrix]:
    """At most ``rows`` posteriors, (M, C), and weights, (M,), that stand for all of them.

    The rows that are extreme in some direction shape the simplex and are kept for themselves; a random sample
    stands for the rest, weighted so that means are unbiased.
    """
    if len(probs) <= rows:
        return probs, np.ones(len(probs))
    C = probs.shape[1]
    directions = np.concatenate([np.eye(C), -np.eye(C), generator.normal(size=(min(10 * C, rows // 4), C))])
    batches = np.array_split(directions, max(1, len(directions) // 10))  # bounds memory to ten numbers a row
    extreme = np.unique(np.concatenate([(batch @ probs.T).argmax(axis=1) for batch in batches]))
    rest = np.delete(np.arange(len(probs)), extreme)
    sample = generator.choice(rest, rows - len(extreme), replace=False)
    weights = np.concatenate([np.ones(len(extreme)), np.full(len(sample), len(rest) / len(sample))])
    return probs[np.concatenate([extreme, sample])], weights
