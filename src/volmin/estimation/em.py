"""Expectation maximisation in the model ``P(noisy | x) = T h(x)``: T for known h, and h for known T.

Both log-likelihoods are concave, so EM converges to the maximum from any start. An entry that is zero stays zero;
starts are therefore positive wherever the maximum may be.
"""

from __future__ import annotations

import numpy as np

from volmin._typing import Array, Labels, Numbers
from volmin.validation import validate_labels, validate_posteriors

TINY = 1e-300
"""Smallest probability to divide by."""

UNMIX_ROWS = 4096
"""Rows that ``unmix`` works on at a time, few enough for the processor's cache."""


def maximum_likelihood_transition(
    clean_probs: Numbers,
    labels: Numbers,
    *,
    dominant: bool = False,
    tolerance: float = 1e-5,
    max_iterations: int = 2000,
) -> Array:
    """The T under which noisy labels are most likely, given clean posteriors, (C, C).

    A class without posterior mass keeps its column of the start, the mean of the identity and the uniform matrix.

    Args:
        clean_probs: (N, C) clean class posteriors.
        labels: (N,) noisy labels in ``0 .. C-1``.
        dominant: Whether the diagonal entry is constrained to be the largest of its column.
        tolerance: Largest change of an entry of T in the last iteration.
        max_iterations: Limit of EM iterations.
    """
    h = validate_posteriors(clean_probs, "clean_probs")
    rows = split_by_label(h, validate_labels(labels, *h.shape))
    return fit_transitions(rows, dominant=dominant, tolerance=tolerance, max_iterations=max_iterations)[0]


def split_by_label(clean_probs: Array, labels: Labels, weights: Array | None = None) -> list[tuple[Array, Array]]:
    """For each of C labels, the posteriors (n, C) and the weights (n, B) of the rows that carry it.

    Args:
        clean_probs: (N, C) clean class posteriors.
        labels: (N,) noisy labels in ``0 .. C-1``.
        weights: (N, B) weights of the rows in each of B fits; one fit with equal weights by default.
    """
    weights = np.ones((len(labels), 1)) if weights is None else weights
    return [(clean_probs[labels == i], weights[labels == i]) for i in range(clean_probs.shape[1])]


def fit_transitions(
    rows_by_label: list[tuple[Array, Array]],
    start: Array | None = None,
    *,
    dominant: bool = False,
    pseudo_counts: float | Array = 0.0,
    tolerance: float = 1e-5,
    max_iterations: int = 2000,
) -> Array:
    """EM for B transition matrices at once, (B, C, C), one for each column of the rows' weights; no validation.

    Args:
        rows_by_label: Posteriors and weights from ``split_by_label``.
        start: (B, C, C) or (1, C, C) starting matrices; the mean of the identity and the uniform matrix by default.
        dominant: Whether the diagonal entry is constrained to be the largest of its column.
        pseudo_counts: Number of labels added to each entry of T, or a (C, C) matrix of them.
        tolerance: Largest change of an entry of T in the last iteration.
        max_iterations: Limit of EM iterations.
    """
    C, replicas = len(rows_by_label), rows_by_label[0][1].shape[1]
    start = np.full((1, C, C), 0.5 / C) + 0.5 * np.eye(C) if start is None else start
    T = np.broadcast_to(start, (replicas, C, C)).copy()
    for _ in range(max_iterations):
        expected = [
            row * ((weights / np.maximum(h @ row.T, TINY)).T @ h)
            for row, (h, weights) in zip(T.swapaxes(0, 1), rows_by_label, strict=True)
        ]
        counts = np.stack(expected, axis=1) + pseudo_counts
        mass = counts.sum(axis=1, keepdims=True)
        previous, T = T, np.where(mass > 0, counts / np.where(mass > 0, mass, 1), T)
        if dominant:
            T = _pooled_to_dominance(T)
        if np.abs(T - previous).max() <= tolerance:
            break
    return T


def kl_projection(probs: Array, T: Array, gap: float, max_iterations: int) -> Array:
    """The clean posteriors h, (N, C), that minimise ``KL(p || T h)`` for each row p; no validation.

    Where ``T^-1 p`` is a probability vector, it is the solution. Elsewhere the solution lies on the boundary of the
    simplex, and EM with SQUAREM extrapolation finds it.

    Args:
        probs: (N, C) noisy class posteriors.
        T: (C, C) transition matrix.
        gap: Largest distance, in nats, of a row's divergence from its minimum.
        max_iterations: Limit of iterations, each of three EM steps.
    """
    try:
        h = np.asarray(np.linalg.solve(T, probs.T).T, dtype=np.float64)
    except np.linalg.LinAlgError:
        h = np.full_like(probs, -1)
    unsolved = np.flatnonzero(~(h.min(axis=1) >= -1e-12))
    # EM cannot leave the boundary of the simplex, so it starts away from it.
    start = np.clip(np.nan_to_num(h[unsolved]), 1e-2, 1)
    h[unsolved] = start / start.sum(axis=1, keepdims=True)
    for _ in range(max_iterations):
        if len(unsolved) == 0:
            break
        now, target = h[unsolved], probs[unsolved]
        once, slope = _posterior_step(now, target, T)
        # The divergence is convex with gradient -slope, so it exceeds its minimum by at most log(max slope).
        open_rows = slope.max(axis=1) > 1 + gap
        unsolved, once, target = unsolved[open_rows], once[open_rows], target[open_rows]
        twice, _ = _posterior_step(once, target, T)
        h[unsolved], _ = _posterior_step(_extrapolated(now[open_rows], once, twice), target, T)
    h = np.maximum(h, 0)
    return h / h.sum(axis=1, keepdims=True)


def unmix(probs: Array, T: Array, steps: int = 40) -> Array:
    """Clean posteriors h, (N, C), for which ``T h`` is close to each row in Kullback-Leibler divergence.

    EM from the uniform distribution, stopped early, so that every entry stays positive. ``kl_projection`` gives the
    exact minimum.
    """
    h = np.full_like(probs, 1 / probs.shape[1])
    for start in range(0, len(probs), UNMIX_ROWS):
        rows = slice(start, start + UNMIX_ROWS)
        for _ in range(steps):
            h[rows], _ = _posterior_step(h[rows], probs[rows], T)
    return h


def _posterior_step(h: Array, p: Array, T: Array) -> tuple[Array, Array]:
    """One EM step of (N, C) clean posteriors, and the negative gradient of the divergence before it."""
    slope = np.divide(p, np.maximum(h @ T.T, TINY)) @ T
    return h * slope, slope


def _extrapolated(start: Array, once: Array, twice: Array) -> Array:
    """The SQUAREM extrapolation of two EM steps, or ``twice`` where it would leave the simplex."""
    step = once - start
    curvature = (twice - once) - step
    length = np.linalg.norm(step, axis=1) / np.maximum(np.linalg.norm(curvature, axis=1), TINY)
    length = np.maximum(length, 1)[:, None]
    far = start + 2 * length * step + length**2 * curvature
    inside = far.min(axis=1, keepdims=True) > 0
    return np.where(inside, far, twice)


def _pooled_to_dominance(T: Array) -> Array:
    """The most likely columns for frequencies T, (B, C, C), under the constraint ``T[j, j] >= T[i, j]``.

    As in isotonic regression, the entries that exceed the diagonal are averaged with it, the largest first.
    """
    C = T.shape[-1]
    diagonal = np.diagonal(T, axis1=1, axis2=2)[:, None]
    others = T.copy()
    others[:, np.arange(C), np.arange(C)] = -np.inf
    largest = -np.sort(-others, axis=1)[:, : C - 1]
    pools = np.concatenate([diagonal, diagonal + largest.cumsum(axis=1)], axis=1) / np.arange(1, C + 1)[:, None]
    level = pools.max(axis=1, keepdims=True)
    dominant = np.minimum(T, level)
    dominant[:, np.arange(C), np.arange(C)] = level[:, 0]
    return dominant
