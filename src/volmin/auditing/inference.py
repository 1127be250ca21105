"""From posteriors of the given labels to T, and how far it can be trusted."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from volmin import identifiability, quality
from volmin.estimation import estimate_transition, minimum_volume
from volmin.identifiability import Scatter
from volmin.intervals import Interval, Intervals, conditional_intervals

Array = NDArray[np.float64]
Codes = NDArray[np.int64]

MOST_CLASSES = 100
"""Beyond so many, an entry of T has hardly a label to itself: T is counted (confident joint) rather than fitted, and
whether the data determine it is not examined, which would take longer than all the rest."""

MEASURED_NUMBERS = 200_000
"""Rows times classes that scatter and intervals are measured on: enough for both, however much there is."""

DOUBT = 0.5
"""Standard errors by which the labels must speak for a head on the posteriors: little, for those of a classifier."""

SUSPICIOUS_AGREEMENT = 0.995
SUSPICIOUS_MODESTY = 0.1
"""Probabilities are suspected of having seen the labels if they agree with nearly all of them, or with a few less but
by so much more than they themselves promise, as a forest does in sample."""


@dataclass(frozen=True)
class Judgement:
    """What posteriors and labels say of K classes.

    Attributes:
        transition: (K, K) T.
        clean_probs: (N, K) posteriors of the true label.
        scatter: whether these determine T; None if that was not examined.
        bracket: (K, 2) bounds of the noise rates that need no scatter.
        sampling: intervals, for a T that is determined; None if that was not examined.
        reading: how T was found: by ``"geometry"`` or by ``"labels"`` (see ``minimum_volume``), or ``"counted"``.
    """

    transition: Array
    clean_probs: Array
    scatter: Scatter | None
    bracket: Array
    sampling: Intervals | None
    reading: str


def judge(probs: Array, codes: Codes, *, level: float, seed: int) -> Judgement:
    """Estimate T from (N, K) posteriors of the given labels and the (N,) labels, and measure how sure it is."""
    few = probs.shape[1] <= MOST_CLASSES
    T, clean, reading = _fitted(probs, codes, seed) if few else _counted(probs, codes)
    T = with_levels(T, quality.joint(codes, clean, T))
    rows = np.random.default_rng(seed).permutation(len(codes))[: max(1000, MEASURED_NUMBERS // probs.shape[1])]
    return Judgement(
        transition=T,
        clean_probs=clean,
        scatter=identifiability.scatter(clean[rows], bootstraps=20, random_state=seed) if few else None,
        bracket=identifiability.bracket(probs),
        sampling=_intervals(T, clean, codes, rows, level, seed) if few else None,
        reading=reading,
    )


def _fitted(probs: Array, codes: Codes, seed: int) -> tuple[Array, Array, str]:
    estimate = minimum_volume(probs, codes, random_state=seed, doubt=DOUBT)
    return estimate.transition, estimate.clean_posteriors(probs), estimate.reading


def _counted(probs: Array, codes: Codes) -> tuple[Array, Array, str]:
    T = estimate_transition(probs, codes, "confident")
    # A step costs N C^2, and the last digits of a T with few labels for each entry are not worth hundreds of them.
    return T, quality.clean_posteriors(probs, T, gap=1e-3, max_iterations=50), "counted"


def with_levels(T: Array, joint: Array) -> Array:
    """T with each class's noise rate as the labels have it, and its mistakes spread as before.

    The smallest simplex is sharp on where labels go, and a little pessimistic on how many: that much the labels'
    own posteriors, summed up in their (K, K) joint distribution, know better.
    """
    mass = joint.sum(axis=0)
    level = np.divide(np.diag(joint), mass, out=np.diag(T).copy(), where=mass > 0)
    others = T - np.diag(np.diag(T))
    spread = others.sum(axis=0)
    shares = np.divide(others, spread, out=np.zeros_like(T), where=spread > 0)
    level = np.where(spread > 0, level, 1.0)
    return shares * (1 - level) + np.diag(level)


def warn_if_seen(probs: Array, codes: Codes) -> None:
    """Warn of probabilities that look as if the model had been trained on these very labels."""
    agreement = float((probs.argmax(axis=1) == codes).mean())
    promised = float(probs.max(axis=1).mean())
    modest = agreement > 0.98 and agreement - promised > SUSPICIOUS_MODESTY
    if agreement > SUSPICIOUS_AGREEMENT or modest:
        warnings.warn(
            f"The probabilities agree with {agreement:.1%} of the labels. Either hardly any label is wrong, or the"
            " model was trained on these very labels, and then nothing can be found: give probabilities from"
            " cross-validation (scikit-learn's cross_val_predict), or features.",
            stacklevel=3,
        )


def _intervals(T: Array, clean: Array, codes: Codes, rows: Codes, level: float, seed: int) -> Intervals:
    """Intervals for T around its estimate, measured on ``rows``.

    With n of N rows, they come out too wide by the square root of N / n.
    """
    spread = conditional_intervals(clean[rows], codes[rows], T, level=level, random_state=seed)
    shrink = np.sqrt(len(rows) / len(codes))
    joint = quality.joint(codes, clean, T)
    return Intervals(
        level,
        conditional=True,
        transition=_around(T, spread.transition, shrink),
        class_noise_rates=_around(1 - np.diag(T), spread.class_noise_rates, shrink),
        class_priors=_around(quality.class_priors(joint), spread.class_priors, shrink),
        noise_rate=_around(np.asarray(quality.noise_rate(joint)), spread.noise_rate, shrink),
    )


def _around(estimate: Array, measured: Interval, shrink: float) -> Interval:
    below, above = measured.estimate - measured.low, measured.high - measured.estimate
    reach = shrink * np.maximum(below, above)
    return Interval(estimate, np.clip(estimate - reach, 0, 1), np.clip(estimate + reach, 0, 1))
