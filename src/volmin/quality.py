"""Label quality given T: clean posteriors, the probability that each label is correct, flagged sets, noise rates.

With a clean posterior ``h = P(clean | x)`` and T, Bayes' rule gives the posterior of the clean label given the noisy
label ``y``, ``q[j] = T[y, j] h[j] / (T h)[y]``. The quality of a label is ``q[y]``, the probability that it is
correct; sums and means of it are calibrated counts and rates, so no threshold has to be chosen. All of this is relative
to T: under ``T = I`` every label is correct by definition, however unlikely it is.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from volmin._typing import Array, Labels, Numbers
from volmin.estimation.em import kl_projection
from volmin.exceptions import InputError
from volmin.transition import validate_transition
from volmin.validation import as_matrix, validate_labels, validate_posteriors

CHUNK = 1 << 16
"""Rows processed at a time, to bound the memory of temporary arrays."""


def clean_posteriors(probs: Numbers, T: Numbers, *, gap: float = 1e-5, max_iterations: int = 500) -> Array:
    """The clean posteriors h that minimise ``KL(p || T h)`` for each row p, (N, C).

    Where ``T^-1 p`` is a probability vector, it is the solution; elsewhere the solution is on the boundary of the
    simplex.

    Args:
        probs: (N, C) noisy class posteriors.
        T: (C, C) transition matrix.
        gap: Largest distance, in nats, of a row's divergence from its minimum.
        max_iterations: Limit of iterations, each of three EM steps.
    """
    p = validate_posteriors(probs)
    T = validate_transition(T, p.shape[1])
    clean = np.empty_like(p)
    for rows in _chunks(len(p)):
        clean[rows] = kl_projection(p[rows], T, gap, max_iterations)
    return clean


def label_posteriors(labels: Numbers, clean_probs: Numbers, T: Numbers) -> Array:
    """P(clean label | x, noisy label), (N, C).

    A label that is impossible under ``clean_probs`` and T gets the limit for posteriors mixed with a vanishing share
    of the uniform distribution: its row of T, normalised.

    Args:
        labels: (N,) noisy labels in ``0 .. C-1``.
        clean_probs: (N, C) clean class posteriors.
        T: (C, C) transition matrix.
    """
    y, h, T = _validate(labels, clean_probs, T)
    posteriors = np.empty_like(h)
    for rows in _chunks(len(h)):
        posteriors[rows] = bayes_rule(y[rows], h[rows], T)
    return posteriors


def label_quality(labels: Numbers, clean_probs: Numbers, T: Numbers) -> Array:
    """The probability that each label is correct, (N,); arguments as in ``label_posteriors``."""
    y, h, T = _validate(labels, clean_probs, T)
    quality = np.empty(len(h))
    for rows in _chunks(len(h)):
        quality[rows] = np.take_along_axis(bayes_rule(y[rows], h[rows], T), y[rows, None], axis=1)[:, 0]
    return quality


def suggest(labels: Numbers, clean_probs: Numbers, T: Numbers) -> Labels:
    """The most probable clean label given the noisy one, (N,); arguments as in ``label_posteriors``."""
    y, h, T = _validate(labels, clean_probs, T)
    suggested = np.empty_like(y)
    for rows in _chunks(len(h)):
        suggested[rows] = bayes_rule(y[rows], h[rows], T).argmax(axis=1)
    return suggested


def flag(quality: Numbers, fdr: float = 0.1) -> Labels:
    """Rows of the labels most likely to be wrong, worst first.

    The expected share of correct labels in a set is its mean quality. The rows of lowest quality are flagged, as many
    as keep this mean at or below ``fdr``.

    Args:
        quality: (N,) probabilities that the labels are correct.
        fdr: Largest expected share of correct labels among the flagged.
    """
    if not 0 <= fdr <= 1:
        raise InputError(f"fdr must be a share between 0 and 1, but is {fdr}.")
    quality = _validate_quality(quality)
    order = quality.argsort(kind="stable")
    means = quality[order].cumsum() / np.arange(1, len(order) + 1)
    return order[: np.searchsorted(means, fdr, side="right")].astype(np.int64)


def expected_errors(quality: Numbers) -> float:
    """The expected number of wrong labels."""
    return float((1 - _validate_quality(quality)).sum())


def joint(labels: Numbers, clean_probs: Numbers, T: Numbers, weights: Array | None = None) -> Array:
    """P(noisy = i, clean = j) at [i, j] over these rows, (C, C).

    Args:
        labels: (N,) noisy labels in ``0 .. C-1``.
        clean_probs: (N, C) clean class posteriors.
        T: (C, C) transition matrix.
        weights: (N,) weights of the rows; all one by default.
    """
    y, h, T = _validate(labels, clean_probs, T)
    counts = np.zeros_like(T)
    for rows in _chunks(len(h)):
        posteriors = bayes_rule(y[rows], h[rows], T)
        counts += _sum_by_label(y[rows], posteriors if weights is None else posteriors * weights[rows, None])
    return counts / (len(h) if weights is None else weights.sum())


def class_priors(joint: Numbers) -> Array:
    """P(clean = j), (C,), from the (C, C) joint distribution."""
    return _validate_joint(joint).sum(axis=0)


def noise_rate(joint: Numbers) -> float:
    """P(noisy != clean), from the (C, C) joint distribution."""
    return float(max(0.0, 1 - np.trace(_validate_joint(joint))))


def forward_noise_rates(T: Numbers) -> Array:
    """P(noisy != j | clean = j), (C,): the share of each class that is labelled otherwise."""
    return 1 - np.diag(validate_transition(T))


def backward_noise_rates(joint: Numbers) -> Array:
    """P(clean != i | noisy = i), (C,): the share of each label that is wrong; NaN for a label that never occurs."""
    J = _validate_joint(joint)
    given = J.sum(axis=1)
    correct = np.divide(np.diag(J), given, out=np.full(len(J), np.nan), where=given > 0)
    return 1 - correct


def misfit(joint: Numbers, T: Numbers) -> float:
    """Total variation distance between the joint distribution and the one that T implies, in [0, 1].

    The normalised columns of the joint distribution are a second estimate of T. A misfit of more than a few percent
    means that T, the posteriors or the assumption of one T for all rows is wrong.

    Args:
        joint: (C, C) joint distribution of noisy and clean labels.
        T: (C, C) transition matrix.
    """
    J = _validate_joint(joint)
    return float(np.abs(J - validate_transition(T, len(J)) * J.sum(axis=0)).sum() / 2)


def bayes_rule(y: Labels, h: Array, T: Array) -> Array:
    """``label_posteriors`` of arguments that are known to be valid, without chunks."""
    weight = T[y] * h
    evidence = weight.sum(axis=1, keepdims=True)
    impossible = evidence[:, 0] <= 0
    if impossible.any():
        weight[impossible] = T[y[impossible]]
        # A label that has probability zero in every column of T carries no information about the class.
        uninformative = weight.sum(axis=1) <= 0
        weight[uninformative] = h[uninformative]
        evidence = weight.sum(axis=1, keepdims=True)
    return weight / evidence


def _sum_by_label(y: Labels, values: Array) -> Array:
    one_hot = np.zeros((len(y), values.shape[1]))
    one_hot[np.arange(len(y)), y] = 1
    return one_hot.T @ values


def _validate(labels: Numbers, clean_probs: Numbers, T: Numbers) -> tuple[Labels, Array, Array]:
    h = validate_posteriors(clean_probs, "clean_probs")
    return validate_labels(labels, *h.shape), h, validate_transition(T, h.shape[1])


def _validate_quality(quality: Numbers) -> Array:
    scores = as_matrix(quality)
    if scores.ndim != 1 or not ((scores >= 0) & (scores <= 1)).all():
        raise InputError("quality must be a vector of probabilities without NaN; label_quality computes it.")
    return scores


def _validate_joint(joint: Numbers) -> Array:
    J = as_matrix(joint)
    if J.ndim != 2 or J.shape[0] != J.shape[1] or not (J >= 0).all() or abs(J.sum() - 1) > 1e-3:
        raise InputError("joint must be a (C, C) matrix of probabilities that sum to one; quality.joint computes it.")
    return J


def _chunks(num_rows: int) -> Iterator[slice]:
    return (slice(start, start + CHUNK) for start in range(0, num_rows, CHUNK))
