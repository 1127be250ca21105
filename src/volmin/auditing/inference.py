"""Estimation of T from posteriors of the given labels, with its identifiability and intervals."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from volmin import identifiability, quality, readings
from volmin._typing import Array, Labels
from volmin.auditing.weights import effective_count
from volmin.estimation import estimate_transition, minimum_volume
from volmin.identifiability import Scatter
from volmin.intervals import Interval, Intervals, binomial_interval, conditional_intervals

MOST_CLASSES = 100
"""With more classes there are too few labels per entry of T to fit it: T is counted (confident joint), and its
identifiability is not examined, which would take longer than everything else."""

MEASURED_NUMBERS = 200_000
"""Largest number of rows times classes that identifiability and intervals are measured on."""

DOUBT = 0.5
"""``doubt`` of ``minimum_volume``; low, since the posteriors are those of a trained classifier."""


@dataclass(frozen=True)
class Inference:
    """Estimates from the posteriors and labels of K classes.

    Attributes:
        transition: (K, K) T.
        joint: (K, K) joint distribution of given and true label.
        clean_probs: (N, K) posteriors of the true label.
        unlabelled: (m, K) the same for rows without a label.
        scatter: Whether ``clean_probs`` determine T; None if that was not examined.
        bracket: (K, 2) bounds of the noise rates that do not require T to be determined.
        sampling: Intervals that are valid if T is determined; None if that was not examined.
        reading: How T was found: by ``"geometry"`` or by ``"labels"`` (see ``minimum_volume``), or ``"counted"``.
    """

    transition: Array
    joint: Array
    clean_probs: Array
    unlabelled: Array
    scatter: Scatter | None
    bracket: Array
    sampling: Intervals | None
    reading: str


def infer(
    probs: Array,
    labels: Labels,
    *,
    level: float,
    random_state: int,
    unlabelled: Array | None = None,
    weights: Array | None = None,
) -> Inference:
    """Estimate T and its uncertainty.

    Args:
        probs: (N, K) posteriors of the given label, out of sample.
        labels: (N,) given labels in ``0 .. K-1``.
        level: Nominal coverage of the intervals.
        random_state: Random seed of the samples and searches.
        unlabelled: (m, K) posteriors of the given label for rows without one, on which no estimate depends.
        weights: (N,) weights of the rows in the joint distribution and the intervals; T itself is that of the rows.
    """
    few = probs.shape[1] <= MOST_CLASSES
    T, clean_of, reading = (_fitted if few else _counted)(probs, labels, random_state)
    clean = clean_of(probs)
    others = clean_of(unlabelled) if unlabelled is not None and len(unlabelled) else np.empty((0, probs.shape[1]))
    T = with_noise_rates_of(quality.joint(labels, clean, T), T)
    joint = quality.joint(labels, clean, T, weights)
    scatter = sampling = None
    if few:
        size = max(1000, MEASURED_NUMBERS // probs.shape[1])
        rows = np.random.default_rng(random_state).permutation(len(labels))[:size]
        # The index at other tolerances is shown nowhere, and would take as long as T itself.
        scatter = identifiability.scatter(clean[rows], profile=(), bootstraps=20, random_state=random_state)
        measured = conditional_intervals(clean[rows], labels[rows], T, level=level, random_state=random_state)
        # With n of N rows, the intervals are too wide by the square root of N / n.
        count = len(labels) if weights is None else effective_count(weights)
        stated = T if weights is None else with_noise_rates_of(joint, T)
        sampling = _centred(measured, stated, joint, count, shrink=np.sqrt(len(rows) / count))
    return Inference(
        transition=T,
        joint=joint,
        clean_probs=clean,
        unlabelled=others,
        scatter=scatter,
        bracket=identifiability.bracket(probs),
        sampling=sampling,
        reading=reading,
    )


def noise_rates(probs: Array, labels: Labels, random_state: int, weights: Array | None = None) -> tuple[float, float]:
    """Noise rates under the two readings of hard examples, without anything else; arguments as in ``infer``."""
    few = probs.shape[1] <= MOST_CLASSES
    T, clean_of, _ = (_fitted if few else _counted)(probs, labels, random_state)
    clean = clean_of(probs)
    T = with_noise_rates_of(quality.joint(labels, clean, T), T)
    first, second = (readings.read(labels, clean, T, sharpness, weights).noise_rate for sharpness in (1.0, math.inf))
    return first, second


Fitted = tuple[Array, Callable[[Array], Array], str]
"""T, the function from posteriors of the given label to those of the true one, and how T was found."""


def _fitted(probs: Array, labels: Labels, random_state: int) -> Fitted:
    estimate = minimum_volume(probs, labels, random_state=random_state, doubt=DOUBT)
    return estimate.transition, estimate.clean_posteriors, estimate.reading


def _counted(probs: Array, labels: Labels, _: int) -> Fitted:
    T = estimate_transition(probs, labels, "confident")
    # A step costs N C^2, and T has too few labels per entry for a small gap to be worth hundreds of steps.
    return T, lambda part: quality.clean_posteriors(part, T, gap=1e-3, max_iterations=50), "counted"


def with_noise_rates_of(joint: Array, T: Array) -> Array:
    """T with the noise rates of a joint distribution, and its own proportions among the wrong labels.

    The minimum-volume T gives accurate proportions but slightly too high noise rates; the joint distribution of the
    labels and their posteriors gives better rates.

    Args:
        joint: (K, K) joint distribution of given and true label.
        T: (K, K) transition matrix.
    """
    mass = joint.sum(axis=0)
    correct = np.divide(np.diag(joint), mass, out=np.diag(T).copy(), where=mass > 0)
    others = T - np.diag(np.diag(T))
    total = others.sum(axis=0)
    shares = np.divide(others, total, out=np.zeros_like(T), where=total > 0)
    correct = np.where(total > 0, correct, 1.0)
    return shares * (1 - correct) + np.diag(correct)


def _centred(measured: Intervals, T: Array, joint: Array, num_rows: float, shrink: float) -> Intervals:
    """The measured intervals, scaled by ``shrink`` and centred on the estimates.

    Those of noise rates are at least as wide as for counted rates: the clean posteriors are fixed in the bootstrap, so
    its intervals have no width where T is the identity.
    """
    priors, rate = quality.class_priors(joint), np.asarray(quality.noise_rate(joint))
    class_rates = _around(1 - np.diag(T), measured.class_noise_rates, shrink)
    return Intervals(
        measured.level,
        conditional=True,
        transition=_around(T, measured.transition, shrink),
        class_noise_rates=_at_least_binomial(class_rates, priors * num_rows, measured.level),
        class_priors=_around(priors, measured.class_priors, shrink),
        noise_rate=_at_least_binomial(_around(rate, measured.noise_rate, shrink), np.asarray(num_rows), measured.level),
    )


def _at_least_binomial(interval: Interval, count: Array, level: float) -> Interval:
    low, high = binomial_interval(interval.estimate, count, level)
    return Interval(interval.estimate, np.minimum(interval.low, low), np.maximum(interval.high, high))


def _around(estimate: Array, measured: Interval, shrink: float) -> Interval:
    below, above = measured.estimate - measured.low, measured.high - measured.estimate
    reach = shrink * np.maximum(below, above)
    return Interval(estimate, np.clip(estimate - reach, 0, 1), np.clip(estimate + reach, 0, 1))
