"""The posterior of the reading of hard examples after decisions about suspicious labels.

Decided rows that were chosen because they are suspicious say nothing about the others without a model. A decision is a
Bernoulli observation with probability ``sigmoid(logit(w) + b)`` that the label is wrong, where

    w = (1 - t) w_class_dependent + t w_one_right_label

mixes the probabilities of the two readings. The weight t of the second one and the shift b, an error of the model
among these rows, have a posterior on a grid. The most suspicious rows are alike and not typical. So all decisions
together count as at most ``MOST_INDEPENDENT`` observations, and the shift of the other rows is only correlated with b.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit, log_expit, logit

from volmin._typing import Array, Labels, Mask

WEIGHTS = np.linspace(0, 1, 9)
"""Values of t, with equal prior probabilities."""

SHIFTS = np.linspace(-4, 4, 33)
"""Values of b, with a standard normal prior."""

MOST_INDEPENDENT = 30
CORRELATION = 0.5
"""Set on 22 audits of simulated and human labels whose true labels are known. There, 95 % intervals after the 50 to 300
most suspicious rows contained the true noise rate in 21 or 22; with all decisions and a common shift, in 15 to 20."""

MOST_ROWS = 4000
"""Number of rows over which a rate is averaged."""


@dataclass(frozen=True)
class ReadingPosterior:
    """Posterior of the weight of the one-right-label reading, and of the shift of rows that were not decided.

    Attributes:
        wrong: (N, 2) probabilities that the labels are wrong under the two readings.
        known: (N,) whether a row was decided.
        decided_wrong: (n,) whether the labels of the decided rows are wrong.
        probabilities: (W, B) posterior probabilities over ``WEIGHTS`` and ``SHIFTS``.
        of_weights: (W,) posterior probabilities over ``WEIGHTS``.
    """

    wrong: Array
    known: Mask
    decided_wrong: Mask
    probabilities: Array
    of_weights: Array

    @classmethod
    def of(cls, wrong: Array, known: Mask, decided_wrong: Mask, *, random: bool = False) -> ReadingPosterior:
        """The posterior after decisions; those about rows drawn at random all count."""
        signs = np.where(decided_wrong, 1.0, -1.0)
        odds = _log_odds(wrong[known])
        evidence = log_expit(signs * (odds[:, None, :] + SHIFTS[:, None])).sum(axis=2)
        if not random:
            evidence *= min(1.0, MOST_INDEPENDENT / len(signs))
        posterior = _normalised(np.exp(evidence - SHIFTS**2 / 2 - (evidence - SHIFTS**2 / 2).max()))
        transferred = _normalised(posterior @ transfer())
        return cls(wrong, known, decided_wrong, transferred, posterior.sum(axis=1))

    def wrong_share(self, rows: Labels, level: float, weights: Array | None = None) -> tuple[float, float, float]:
        """Mean and interval of the share of wrong labels among some rows, the decided ones included.

        Args:
            rows: Rows among which the wrong labels are counted.
            level: Posterior probability of the interval.
            weights: (N,) weights of the rows in the share; by default all weigh the same.
        """
        sizes = np.ones(len(rows)) if weights is None else weights[rows]
        decided = self.known[rows]
        wrong = self.decided_wrong[np.searchsorted(np.flatnonzero(self.known), rows[decided])]
        certain = sizes[decided][wrong].sum() / sizes.sum()
        others, left = rows[~decided], sizes[~decided]
        if not left.sum():
            return float(certain), float(certain), float(certain)
        rates = certain + left.sum() / sizes.sum() * shares_by_shift(self.wrong[others], left)
        low, high = _quantiles(rates, self.probabilities, level)
        return float((rates * self.probabilities).sum()), low, high

    def weight(self, level: float) -> tuple[float, float, float]:
        """Mean and interval of the weight of the one-right-label reading."""
        return float(WEIGHTS @ self.of_weights), *_quantiles(WEIGHTS, self.of_weights, level)


def transfer() -> Array:
    """(B, B) probabilities of the shift of the other rows, for each shift of the decided ones (a row each)."""
    spread = np.sqrt(1 - CORRELATION**2)
    kernel = np.exp(-(((SHIFTS - CORRELATION * SHIFTS[:, None]) / spread) ** 2) / 2)
    return kernel / kernel.sum(axis=1, keepdims=True)


def shares_by_shift(wrong: Array, weights: Array | None = None) -> Array:
    """(W, B) shares of wrong labels for each weight and shift, over at most ``MOST_ROWS`` of the rows.

    Args:
        wrong: (n, 2) probabilities that the labels are wrong under the two readings.
        weights: (n,) weights of the rows; by default all weigh the same.
    """
    step = -(-len(wrong) // MOST_ROWS)
    odds = _log_odds(wrong[::step])
    sizes = None if weights is None else weights[::step]
    return np.stack([np.average(expit(line + SHIFTS[:, None]), axis=1, weights=sizes) for line in odds])


def _log_odds(wrong: Array) -> Array:
    """(W, n) log-odds that labels are wrong, for each weight; a decision against a certain label stays possible."""
    mixed = (1 - WEIGHTS[:, None]) * wrong[:, 0] + WEIGHTS[:, None] * wrong[:, 1]
    return logit(np.clip(mixed, 0.005, 0.995))


def _normalised(values: Array) -> Array:
    return values / values.sum()


def _quantiles(values: Array, probabilities: Array, level: float) -> tuple[float, float]:
    order = values.argsort(axis=None)
    ordered, cumulated = values.ravel()[order], probabilities.ravel()[order].cumsum()
    low, high = (
        ordered[min(int(np.searchsorted(cumulated, q)), len(ordered) - 1)] for q in ((1 - level) / 2, (1 + level) / 2)
    )
    return float(low), float(high)
