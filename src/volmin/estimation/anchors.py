"""T from anchor points: rows that almost certainly belong to one class show its column of T.

If ``P(clean = j | x) = 1``, the noisy posterior at x *is* column j of T. The row with the largest ``p_j`` is taken as
such an anchor point (Patrini et al., CVPR 2017). Without true anchor points the estimated columns lie inside the
simplex of T, and the noise is overestimated.

Deviations from the public code: every class searches all posteriors (there, an in-place filter hides rows from later
classes), and for many classes the share of outliers depends on the size of a class.
"""

from __future__ import annotations

import numpy as np

from volmin._typing import Array, Labels

OUTLIERS = 0.03
"""Share of all rows that count as outliers of a class, for up to 33 classes."""
OUTLIERS_OF_A_CLASS = 0.3
"""Share of an average class's rows that count as its outliers, for more classes."""


def max_anchors(probs: Array) -> Array:
    """T whose column j is the posterior with the largest ``p_j``, or ``e_j`` for a class without any mass, (C, C).

    Args:
        probs: (N, C) noisy posteriors.
    """
    return _columns_at(probs, probs.argmax(axis=0))


def percentile_anchors(probs: Array) -> Array:
    """T whose column j is the posterior with the largest ``p_j`` after removal of the top 3 % as outliers, (C, C).

    Beyond 33 classes, 3 % of all rows exceed the size of an average class, so removing them would remove every
    confident row of it. There the outliers are 30 % of an average class, which equals 3 % of all rows for ten classes.
    Saturated posteriors, where more rows than that share the top value, are not removed.

    Args:
        probs: (N, C) noisy posteriors.
    """
    anchors = [_largest_below(column, outlier_share(probs.shape[1])) for column in probs.T]
    return _columns_at(probs, np.array(anchors))


def outlier_share(num_classes: int) -> float:
    """The share of all rows that the percentile rule removes for each class."""
    return OUTLIERS if OUTLIERS * num_classes <= 1 else OUTLIERS_OF_A_CLASS / num_classes


def _largest_below(values: Array, share: float) -> int:
    """Position of the largest value strictly below the upper ``share`` of the values."""
    threshold = np.percentile(values, 100 * (1 - share), method="higher")
    dropped = values >= threshold
    tied = dropped.sum() > share * (len(values) - 1) + 1
    return int(np.where(values == threshold if tied else ~dropped, values, -1.0).argmax())


def _columns_at(probs: Array, anchors: Labels) -> Array:
    T = probs[anchors].T
    absent = probs.max(axis=0) == 0
    T[:, absent] = np.eye(len(T))[:, absent]
    return T / T.sum(axis=0)
