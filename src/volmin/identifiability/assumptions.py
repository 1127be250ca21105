"""Bounds of noise rates that do not require scatter, and tests of assumptions about T."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from volmin._typing import Array, Labels, Mask, Numbers
from volmin.estimation.em import fit_transitions, split_by_label
from volmin.exceptions import InputError
from volmin.validation import validate_labels, validate_posteriors


def bracket(probs: Numbers, *, trim: float = 0.01) -> Array:
    """Bounds of each class's noise rate P(noisy != j | clean = j) that do not require scatter, (C, 2).

    If no class is labelled j more often than class j itself (``T[j, j] >= T[j, k]``), a noisy posterior of j never
    exceeds ``T[j, j]``. The noise rate then lies between 0 and 1 minus the largest posterior.

    Args:
        probs: (N, C) out-of-sample *noisy* class posteriors.
        trim: Share of a class's N / C rows with the largest posteriors that is left out as estimation error.
    """
    if not 0 <= trim < 1:
        raise InputError(f"trim must be a share of rows, at least 0 and below 1, but is {trim:g}.")
    p = validate_posteriors(probs)
    rank = len(p) - 1 - int(trim * len(p) / p.shape[1])
    highest = np.partition(p, rank, axis=0)[rank]
    return np.stack([np.zeros(p.shape[1]), 1 - highest], axis=1)


@dataclass(frozen=True)
class Comparison:
    """A likelihood-ratio test, calibrated by labels redrawn under the hypothesis.

    Attributes:
        statistic: Twice the difference of the log-likelihoods without and with the hypothesis.
        p_value: Share of redrawn label sets with at least this statistic.
        T: Maximum-likelihood matrices without the hypothesis: (C, C), or (G, C, C) by group.
        classes: Classes whose columns of T contradict the hypothesis; defined by each test.
    """

    statistic: float
    p_value: float
    T: Array
    classes: tuple[int, ...]


def dominance_test(clean_probs: Numbers, labels: Numbers, *, resamples: int = 99, random_state: int = 0) -> Comparison:
    """Test whether the diagonal entry of T is the largest of its column.

    Real noise may violate this: in Clothing1M most sweaters are labelled as knitwear. An estimate that is constrained
    to be dominant is then wrong without any warning. The posteriors must not depend on the same assumption; take them
    from a model of a few clean labels. ``classes`` of the result are those labelled as another class more often than as
    themselves.

    Args:
        clean_probs: (N, C) clean class posteriors.
        labels: (N,) noisy labels in ``0 .. C-1``.
        resamples: Number of label sets redrawn under the hypothesis.
        random_state: Seed of the redrawn labels.
    """
    h = validate_posteriors(clean_probs, "clean_probs")
    y = validate_labels(labels, *h.shape)
    rows = split_by_label(h, y)
    T, restricted = (fit_transitions(rows, dominant=flag)[0] for flag in (False, True))

    def statistic(y: Labels) -> float:
        rows = split_by_label(h, y)
        free, dominant = (fit_transitions(rows, _inner(restricted)[None], dominant=flag)[0] for flag in (False, True))
        return 2 * (_log_likelihood(y, h, free) - _log_likelihood(y, h, dominant))

    contradicting = tuple(int(j) for j in np.flatnonzero(T.argmax(axis=0) != np.arange(len(T))))
    return Comparison(*_calibrate(statistic, y, h, restricted, resamples, random_state), T, contradicting)


def common_transition_test(
    clean_probs: Numbers,
    labels: Numbers,
    groups: ArrayLike,
    *,
    resamples: int = 99,
    random_state: int = 0,
) -> Comparison:
    """Test whether one T holds for all groups of rows, such as sources, annotators or feature clusters.

    ``classes`` of the result are those whose noise rates differ by more than 0.1 between groups.

    Args:
        clean_probs: (N, C) clean class posteriors.
        labels: (N,) noisy labels in ``0 .. C-1``.
        groups: (N,) group of each row, at least two different ones.
        resamples: Number of label sets redrawn under the hypothesis.
        random_state: Seed of the redrawn labels.
    """
    h = validate_posteriors(clean_probs, "clean_probs")
    y = validate_labels(labels, *h.shape)
    members = _group_masks(groups, len(y))
    pooled = fit_transitions(split_by_label(h, y))[0]

    def fit(y: Labels, here: Mask | slice) -> Array:
        return fit_transitions(split_by_label(h[here], y[here]), _inner(pooled)[None])[0]

    def statistic(y: Labels) -> float:
        separate = sum(_log_likelihood(y[here], h[here], fit(y, here)) for here in members)
        return 2 * (separate - _log_likelihood(y, h, fit(y, slice(None))))

    T = np.stack([fit(y, here) for here in members])
    spread = np.ptp(np.diagonal(T, axis1=1, axis2=2), axis=0)
    contradicting = tuple(int(j) for j in np.flatnonzero(spread > 0.1))
    return Comparison(*_calibrate(statistic, y, h, pooled, resamples, random_state), T, contradicting)


def _group_masks(groups: ArrayLike, num_rows: int) -> list[Mask]:
    """The (N,) mask of the rows of each group."""
    try:
        names, group = np.unique(np.asarray(groups), return_inverse=True)
    except TypeError:
        raise InputError("groups must be of one type that can be ordered, such as all numbers or all texts.") from None
    if group.shape != (num_rows,) or len(names) < 2:
        raise InputError(
            f"groups must name one of at least 2 groups for each of {num_rows} rows, "
            f"but have shape {np.shape(groups)} and {len(names)} different values."
        )
    return [group == g for g in range(len(names))]


def _inner(T: Array) -> Array:
    """T moved away from the boundary, which EM cannot leave."""
    return 0.95 * T + 0.05 / len(T)


def _log_likelihood(y: Labels, h: Array, T: Array) -> float:
    return float(np.log(np.maximum((h * T[y]).sum(axis=1), 1e-300)).sum())


def _calibrate(
    statistic: Callable[[Labels], float], y: Labels, h: Array, T: Array, resamples: int, random_state: int
) -> tuple[float, float]:
    """The statistic of the labels, and its p-value among labels redrawn from T."""
    if resamples < 19:
        raise InputError(f"resamples must be at least 19, for a p-value of 0.05 to exist, but is {resamples}.")
    generator = np.random.default_rng(random_state)
    cumulative = (h @ T.T).cumsum(axis=1)[:, :-1]
    observed = statistic(y)
    redrawn = [statistic((generator.random((len(h), 1)) > cumulative).sum(axis=1)) for _ in range(resamples)]
    return observed, (1 + sum(value >= observed for value in redrawn)) / (1 + resamples)
