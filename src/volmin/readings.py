"""Two readings of hard examples, and a parameter between them.

A posterior of the given label cannot tell whether hard examples are ambiguous, so that they may rightly carry either
label, or have one right label each and are mislabelled more often. Let ``T`` and the clean posterior ``h`` explain the
given labels. The reading of sharpness ``g >= 1`` draws the true label from ``h_g``, proportional to ``h ** g``, changes
it by the least noise that turns ``h_g`` into ``h``, and then applies T. ``g = 1`` is the class-dependent reading, plain
Bayes' rule; in the limit ``g = inf`` every example has one right label, the most probable one. All readings give the
same distribution of the given labels, so these cannot choose between them.

Where the least noise results in class k, the true class is k with probability ``s[k] = min(1, h_g[k] / h[k])`` and
otherwise one with ``h_g > h``, in proportion to the excess. With ``b[k] = T[y, k] h[k] / (T h)[y]``, therefore,

    P(true = j | x, y) = b[j] s[j] + sum_k b[k] (1 - s[k]) * excess[j] / sum(excess)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from volmin import quality
from volmin._typing import Array, Labels, Numbers
from volmin.exceptions import InputError
from volmin.transition import validate_transition
from volmin.validation import validate_labels, validate_posteriors


@dataclass(frozen=True)
class Reading:
    """What is known of the true labels under one reading.

    Attributes:
        sharpness: g of the reading.
        joint: (C, C) joint distribution of given and true label over the rows.
        quality: (N,) probabilities that the labels are correct.
        suggested: (N,) most probable true labels.
        alternatives: (N,) most probable true labels other than the given ones.
    """

    sharpness: float
    joint: Array
    quality: Array
    suggested: Labels
    alternatives: Labels

    @property
    def noise_rate(self) -> float:
        """Share of wrong labels."""
        return quality.noise_rate(self.joint)

    def transition(self, fallback: Array) -> Array:
        """(C, C) P(given | true), the normalised columns of ``joint``.

        Args:
            fallback: (C, C) transition matrix whose columns are used for classes that no row has.
        """
        mass = self.joint.sum(axis=0)
        return np.divide(self.joint, mass, out=fallback.copy(), where=mass > 0)


def sharpen(probs: Numbers, sharpness: float) -> Array:
    """Posteriors proportional to ``probs ** sharpness``, (N, C); the limit for ``inf`` is uniform over the largest.

    Args:
        probs: (N, C) class posteriors.
        sharpness: Exponent, at least 1.
    """
    return _sharpened(validate_posteriors(probs), _validate_sharpness(sharpness))


def true_label_posteriors(labels: Numbers, clean_probs: Numbers, T: Numbers, sharpness: float = 1.0) -> Array:
    """P(true label | x, given label) under the reading of this sharpness, (N, C).

    A label that is impossible under ``clean_probs`` and T gets the limit described in ``quality.label_posteriors``.

    Args:
        labels: (N,) given labels in ``0 .. C-1``.
        clean_probs: (N, C) clean class posteriors.
        T: (C, C) transition matrix.
        sharpness: g of the reading, from 1 to ``inf``.
    """
    g = _validate_sharpness(sharpness)
    h = validate_posteriors(clean_probs, "clean_probs")
    y, T = validate_labels(labels, *h.shape), validate_transition(T, h.shape[1])
    posteriors = np.empty_like(h)
    for start in range(0, len(h), quality.CHUNK):
        rows = slice(start, start + quality.CHUNK)
        posteriors[rows] = _posteriors(y[rows], h[rows], T, g)
    return posteriors


def read(
    labels: Numbers, clean_probs: Numbers, T: Numbers, sharpness: float = 1.0, weights: Array | None = None
) -> Reading:
    """Qualities, suggestions and joint distribution under one reading.

    Args:
        labels: (N,) given labels in ``0 .. C-1``.
        clean_probs: (N, C) clean class posteriors.
        T: (C, C) transition matrix.
        sharpness: g of the reading, from 1 to ``inf``.
        weights: (N,) weights of the rows in the joint distribution; all one by default.
    """
    g = _validate_sharpness(sharpness)
    h = validate_posteriors(clean_probs, "clean_probs")
    y, T = validate_labels(labels, *h.shape), validate_transition(T, h.shape[1])
    joint, correct = np.zeros_like(T), np.empty(len(h))
    suggested, alternatives = np.empty_like(y), np.empty_like(y)
    for start in range(0, len(h), quality.CHUNK):
        rows = slice(start, start + quality.CHUNK)
        posteriors = _posteriors(y[rows], h[rows], T, g)
        every = np.arange(len(posteriors))
        for true, column in enumerate(posteriors.T):
            joint[:, true] += np.bincount(y[rows], column if weights is None else column * weights[rows], len(T))
        correct[rows] = posteriors[every, y[rows]]
        suggested[rows] = posteriors.argmax(axis=1)
        posteriors[every, y[rows]] = -1
        alternatives[rows] = posteriors.argmax(axis=1)
    return Reading(
        g, joint / (len(h) if weights is None else weights.sum()), np.clip(correct, 0, 1), suggested, alternatives
    )


def _posteriors(y: Labels, h: Array, T: Array, sharpness: float) -> Array:
    before = quality.bayes_rule(y, h, T)
    if sharpness == 1:
        return before
    sharp = _sharpened(h, sharpness)
    kept = np.divide(sharp, h, out=np.zeros_like(h), where=h > 0)
    before_kept = before * np.minimum(kept, 1, out=kept)
    moved = 1 - before_kept.sum(axis=1, keepdims=True)
    excess = np.maximum(sharp - h, 0)
    total = excess.sum(axis=1, keepdims=True)
    # Without excess, only a label that is impossible has anything to move.
    shares = np.divide(excess, total, out=sharp, where=total > 0)
    return before_kept + np.maximum(moved, 0) * shares


def _sharpened(h: Array, sharpness: float) -> Array:
    largest = h.max(axis=1, keepdims=True)
    if math.isinf(sharpness):
        powers = (h == largest).astype(np.float64)
    else:
        with np.errstate(divide="ignore"):
            powers = np.exp(sharpness * np.log(h / largest))
    return powers / powers.sum(axis=1, keepdims=True)


def _validate_sharpness(sharpness: float) -> float:
    if not sharpness >= 1:
        raise InputError(f"sharpness must be at least 1 (inf for one right label per example), but is {sharpness}.")
    return float(sharpness)
