"""What T says of each label: clean posteriors, the chance that a label is right, flagged sets, noise rates.

With a clean posterior ``h = P(clean | x)`` and T, Bayes' rule gives the posterior of the clean label once the
noisy label ``y`` was seen, ``q[j] = T[y, j] h[j] / (T h)[y]``. The quality of a label is ``q[y]``, the
probability that it is right; its sums and means are calibrated counts, so that no threshold has to be chosen.
All of it is relative to T: under ``T = I`` every label is right by definition, however unlikely it is.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from volmin.exceptions import InputError
from volmin.transition import as_matrix, validate_transition
from volmin.validation import validate_labels, validate_posteriors

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

CHUNK = 1 << 16
"""Rows worked on at a time: temporary arrays stay small however many rows there are."""


def clean_posteriors(
    probs: ArrayLike | Tensor, T: ArrayLike | Tensor, *, gap: float = 1e-5, max_iterations: int = 500
) -> Array:
    """The clean posteriors that explain noisy ones best: for each row the h that minimises ``KL(p || T h)``.

    Where ``T^-1 p`` is a probability vector it is the answer. Elsewhere it has negative entries and the
    answer lies on the boundary of the simplex; it is found by the EM algorithm with SQUAREM extrapolation.

    Args:
        probs: (N, C) noisy class posteriors.
        T: (C, C) transition matrix.
        gap: a row is finished once its divergence is provably within ``gap`` (in nats) of the minimum.
        max_iterations: of three EM steps each.

    Returns:
        (N, C) clean class posteriors.
    """
    p = validate_posteriors(probs)
    T = validate_transition(T, p.shape[1])
    clean = np.empty_like(p)
    for rows in _chunks(len(p)):
        clean[rows] = _project(p[rows], T, gap, max_iterations)
    return clean


def label_posteriors(labels: ArrayLike | Tensor, clean_probs: ArrayLike | Tensor, T: ArrayLike | Tensor) -> Array:
    """P(clean label | x, noisy label), (N, C).

    A label that ``clean_probs`` and T together call impossible gets the limit for posteriors mixed with a
    little of the uniform distribution: its row of T, normalised.

    Args:
        labels: (N,) noisy labels in ``0 .. C-1``.
        clean_probs: (N, C) clean class posteriors.
        T: (C, C) transition matrix.
    """
    y, h, T = _validate(labels, clean_probs, T)
    posteriors = np.empty_like(h)
    for rows in _chunks(len(h)):
        posteriors[rows] = _bayes(y[rows], h[rows], T)
    return posteriors


def label_quality(labels: ArrayLike | Tensor, clean_probs: ArrayLike | Tensor, T: ArrayLike | Tensor) -> Array:
    """The probability that each label is right, (N,) in [0, 1]; arguments as in ``label_posteriors``."""
    y, h, T = _validate(labels, clean_probs, T)
    quality = np.empty(len(h))
    for rows in _chunks(len(h)):
        quality[rows] = np.take_along_axis(_bayes(y[rows], h[rows], T), y[rows, None], axis=1)[:, 0]
    return quality


def suggest(labels: ArrayLike | Tensor, clean_probs: ArrayLike | Tensor, T: ArrayLike | Tensor) -> Indices:
    """The likeliest clean label given the noisy one, (N,); arguments as in ``label_posteriors``."""
    y, h, T = _validate(labels, clean_probs, T)
    suggested = np.empty_like(y)
    for rows in _chunks(len(h)):
        suggested[rows] = _bayes(y[rows], h[rows], T).argmax(axis=1)
    return suggested


def flag(quality: ArrayLike, fdr: float = 0.1) -> Indices:
    """Rows of suspicious labels, the worst first: the largest set with at most ``fdr`` right labels.

    The expected share of right labels in a set is its mean quality, so the set is the longest run of lowest
    qualities whose mean does not exceed ``fdr``.
    """
    if not 0 <= fdr <= 1:
        raise InputError(f"fdr must be a share between 0 and 1, but is {fdr}.")
    quality = _validate_quality(quality)
    order = quality.argsort(kind="stable")
    means = quality[order].cumsum() / np.arange(1, len(order) + 1)
    return order[: np.searchsorted(means, fdr, side="right")].astype(np.int64)


def expected_errors(quality: ArrayLike) -> float:
    """The expected number of wrong labels."""
    return float((1 - _validate_quality(quality)).sum())


def joint(labels: ArrayLike | Tensor, clean_probs: ArrayLike | Tensor, T: ArrayLike | Tensor) -> Array:
    """P(noisy = i, clean = j) at [i, j] over these rows, (C, C); arguments as in ``label_posteriors``."""
    y, h, T = _validate(labels, clean_probs, T)
    counts = np.zeros_like(T)
    for rows in _chunks(len(h)):
        counts += _sum_by_label(y[rows], _bayes(y[rows], h[rows], T))
    return counts / len(h)


def class_priors(joint: ArrayLike) -> Array:
    """P(clean = j), (C,), from the joint distribution."""
    return _validate_joint(joint).sum(axis=0)


def noise_rate(joint: ArrayLike) -> float:
    """P(noisy != clean), from the joint distribution."""
    return float(max(0.0, 1 - np.trace(_validate_joint(joint))))


def forward_noise_rates(T: ArrayLike | Tensor) -> Array:
    """P(noisy != j | clean = j), (C,): how often each class loses its label."""
    return 1 - np.diag(validate_transition(T))


def backward_noise_rates(joint: ArrayLike) -> Array:
    """P(clean != i | noisy = i), (C,): how often each given label is wrong; NaN for one that never occurs."""
    J = _validate_joint(joint)
    given = J.sum(axis=1)
    right = np.divide(np.diag(J), given, out=np.full(len(J), np.nan), where=given > 0)
    return 1 - right


def misfit(joint: ArrayLike, T: ArrayLike | Tensor) -> float:
    """The share of labels that T puts elsewhere than the joint distribution does, in [0, 1].

    Both should tell one story: the joint's columns, normalised, estimate T once more. A large misfit (more
    than a few percent) means that T, the posteriors or the assumption of one T for all rows is wrong.
    """
    J = _validate_joint(joint)
    return float(np.abs(J - validate_transition(T, len(J)) * J.sum(axis=0)).sum() / 2)


def likeliest_transition(
    labels: ArrayLike | Tensor,
    clean_probs: ArrayLike | Tensor,
    *,
    dominant: bool = False,
    tolerance: float = 1e-5,
    max_iterations: int = 2000,
) -> Array:
    """The T of highest likelihood for these labels when the clean posteriors are known, (C, C).

    The likelihood is concave in T, so EM finds the maximum from anywhere. A class without any posterior mass
    keeps the column of its start.

    Args:
        labels: (N,) noisy labels in ``0 .. C-1``.
        clean_probs: (N, C) clean class posteriors.
        dominant: only among matrices whose diagonal entry is the largest of its column.
        tolerance: stop when no entry of T moves by more in one step.
        max_iterations: of EM.
    """
    h = validate_posteriors(clean_probs, "clean_probs")
    y = validate_labels(labels, *h.shape)
    T = np.full((h.shape[1], h.shape[1]), 0.5 / h.shape[1]) + 0.5 * np.eye(h.shape[1])
    return climb_transition(split_by_label(y, h), T[None], dominant, tolerance, max_iterations)[0]


def split_by_label(labels: Indices, clean_probs: Array, weights: Array | None = None) -> list[tuple[Array, Array]]:
    """For each label the posteriors (n, C) and the weights (n, B) of the rows that carry it."""
    weights = np.ones((len(labels), 1)) if weights is None else weights
    return [(clean_probs[labels == i], weights[labels == i]) for i in range(clean_probs.shape[1])]


def climb_transition(
    rows_by_label: list[tuple[Array, Array]],
    start: Array,
    dominant: bool = False,
    tolerance: float = 1e-5,
    max_iterations: int = 2000,
) -> Array:
    """EM for B transition matrices at once, one for each column of the rows' weights; no validation.

    Args:
        rows_by_label: of ``split_by_label``.
        start: (B, C, C) or (1, C, C) matrices to start from, positive where the answer may be.
        dominant: keep the diagonal entry the largest of its column.
        tolerance: stop when no entry moves by more in one step.
        max_iterations: of EM.
    """
    replicas = rows_by_label[0][1].shape[1]
    T = np.broadcast_to(start, (replicas, *start.shape[1:])).copy()
    for _ in range(max_iterations):
        counts = np.stack(
            [
                T[:, i] * ((weights / np.maximum(h @ T[:, i].T, 1e-300)).T @ h)
                for i, (h, weights) in enumerate(rows_by_label)
            ],
            axis=1,
        )
        mass = counts.sum(axis=1, keepdims=True)
        previous, T = T, np.where(mass > 0, counts / np.where(mass > 0, mass, 1), T)
        if dominant:
            T = _dominant_columns(T)
        if np.abs(T - previous).max() <= tolerance:
            break
    return T


def _dominant_columns(T: Array) -> Array:
    """The likeliest columns for frequencies T, (B, C, C), under the constraint ``T[j, j] >= T[i, j]``.

    As in isotonic regression, the entries that exceed the diagonal are pooled with it, the largest first.
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


def _project(p: Array, T: Array, gap: float, max_iterations: int) -> Array:
    try:
        h = np.asarray(np.linalg.solve(T, p.T).T, dtype=np.float64)
    except np.linalg.LinAlgError:
        h = np.full_like(p, -1)
    open_rows = np.flatnonzero(~(h.min(axis=1) >= -1e-12))
    # EM cannot leave the boundary of the simplex, so the start stays away from it.
    start = np.clip(np.nan_to_num(h[open_rows]), 1e-2, 1)
    h[open_rows] = start / start.sum(axis=1, keepdims=True)
    for _ in range(max_iterations):
        if len(open_rows) == 0:
            break
        now, target = h[open_rows], p[open_rows]
        once, slope = _em_step(now, target, T)
        # The divergence is convex with gradient -slope: it exceeds its minimum by at most log(max slope).
        unfinished = slope.max(axis=1) > 1 + gap
        open_rows, once, target = open_rows[unfinished], once[unfinished], target[unfinished]
        twice, _ = _em_step(once, target, T)
        h[open_rows], _ = _em_step(_extrapolate(now[unfinished], once, twice), target, T)
    h = np.maximum(h, 0)
    return h / h.sum(axis=1, keepdims=True)


def _em_step(h: Array, p: Array, T: Array) -> tuple[Array, Array]:
    slope = np.divide(p, np.maximum(h @ T.T, 1e-300)) @ T
    return h * slope, slope


def _extrapolate(start: Array, once: Array, twice: Array) -> Array:
    """SQUAREM: a long step along two EM steps, or just those where it would leave the simplex."""
    step = once - start
    curvature = (twice - once) - step
    length = np.linalg.norm(step, axis=1) / np.maximum(np.linalg.norm(curvature, axis=1), 1e-300)
    length = np.maximum(length, 1)[:, None]
    far = start + 2 * length * step + length**2 * curvature
    inside = far.min(axis=1, keepdims=True) > 0
    return np.where(inside, far, twice)


def _bayes(y: Indices, h: Array, T: Array) -> Array:
    weight = T[y] * h
    evidence = weight.sum(axis=1, keepdims=True)
    impossible = evidence[:, 0] <= 0
    if impossible.any():
        weight[impossible] = T[y[impossible]]
        # A label that T never gives to any class tells nothing.
        silent = weight.sum(axis=1) <= 0
        weight[silent] = h[silent]
        evidence = weight.sum(axis=1, keepdims=True)
    return weight / evidence


def _sum_by_label(y: Indices, values: Array) -> Array:
    one_hot = np.zeros((len(y), values.shape[1]))
    one_hot[np.arange(len(y)), y] = 1
    return one_hot.T @ values


def _validate(
    labels: ArrayLike | Tensor, clean_probs: ArrayLike | Tensor, T: ArrayLike | Tensor
) -> tuple[Indices, Array, Array]:
    h = validate_posteriors(clean_probs, "clean_probs")
    return validate_labels(labels, *h.shape), h, validate_transition(T, h.shape[1])


def _validate_quality(quality: ArrayLike) -> Array:
    scores = as_matrix(quality)
    if scores.ndim != 1 or not ((scores >= 0) & (scores <= 1)).all():
        raise InputError("quality must be a vector of probabilities without NaN; label_quality computes it.")
    return scores


def _validate_joint(joint: ArrayLike) -> Array:
    J = as_matrix(joint)
    if J.ndim != 2 or J.shape[0] != J.shape[1] or not (J >= 0).all() or abs(J.sum() - 1) > 1e-3:
        raise InputError(
            "joint must be a (C, C) matrix of probabilities with sum one; volmin.quality.joint computes it."
        )
    return J


def _chunks(num_rows: int) -> Iterator[slice]:
    return (slice(start, start + CHUNK) for start in range(0, num_rows, CHUNK))
