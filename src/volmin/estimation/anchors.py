"""T from anchor points: the rows that most surely belong to one class show its column of T.

If ``P(clean = j | x) = 1`` then the noisy posterior at x *is* column j of T, so the row with the largest
``p_j`` stands in for it (Patrini et al., CVPR 2017). Without such rows the estimate lies inside the simplex
of T: too much noise.

Deviations from the public code: each column is searched in the posteriors as given (there, an in-place filter
hides rows from later classes), and for many classes the share of outliers follows the size of a class.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

OUTLIERS = 0.03
OUTLIERS_OF_A_CLASS = 0.3


def max_anchors(probs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Column j is the posterior with the largest ``p_j``, or ``e_j`` for a class without any mass.

    Args:
        probs: (N, C) noisy posteriors.
    """
    return _columns_at(probs, probs.argmax(axis=0))


def percentile_anchors(probs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Column j is the posterior with the largest ``p_j`` once the top 3 % of ``p_j`` are dropped as outliers.

    Beyond 33 classes 3 % of all rows are more than a class has, and dropping them would drop every confident
    row of it. There the outliers are 30 % of an average class, which is what 3 % are for ten classes.
    Saturated posteriors, where more rows than that share the top value, are not outliers and stay.

    Args:
        probs: (N, C) noisy posteriors.
    """
    anchors = [_largest_below(column, outlier_share(probs.shape[1])) for column in probs.T]
    return _columns_at(probs, np.array(anchors))


def outlier_share(num_classes: int) -> float:
    """The share of all rows that the percentile rule drops for each class."""
    return OUTLIERS if OUTLIERS * num_classes <= 1 else OUTLIERS_OF_A_CLASS / num_classes


def _largest_below(values: NDArray[np.float64], share: float) -> int:
    """Where the largest value strictly below the upper ``share`` lies."""
    threshold = np.percentile(values, 100 * (1 - share), method="higher")
    dropped = values >= threshold
    tied = dropped.sum() > share * (len(values) - 1) + 1
    return int(np.where(values == threshold if tied else ~dropped, values, -1.0).argmax())


def _columns_at(probs: NDArray[np.float64], anchors: NDArray[np.intp]) -> NDArray[np.float64]:
    T = probs[anchors].T
    absent = probs.max(axis=0) == 0
    T[:, absent] = np.eye(len(T))[:, absent]
    return T / T.sum(axis=0)
