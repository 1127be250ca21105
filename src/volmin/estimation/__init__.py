"""Estimates T from the posteriors of an ordinary classifier, or from features.

``estimate_transition(probs, labels)`` is the door. Give posteriors of *noisy* labels from a model that has
not seen these rows (cross-validation): in sample they are memorised labels, and every estimator then answers
T = I.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from volmin.estimation.anchors import max_anchors, percentile_anchors
from volmin.estimation.confident import confident
from volmin.estimation.dual import dual
from volmin.estimation.inputs import checked_posteriors
from volmin.estimation.minimum_volume import MinimumVolume, minimum_volume
from volmin.estimation.neighbours import clusterability
from volmin.exceptions import InputError
from volmin.validation import validate_labels

Method = Literal["volume", "max", "percentile", "dual", "confident"]

__all__ = ["Method", "MinimumVolume", "clusterability", "estimate_transition", "minimum_volume"]


def estimate_transition(
    probs: ArrayLike, labels: ArrayLike | None = None, method: Method = "volume", *, random_state: int = 0
) -> NDArray[np.float64]:
    """The transition matrix that explains noisy posteriors and labels.

    Args:
        probs: (N, C) posteriors of the noisy label, out of sample; not changed.
        labels: (N,) noisy labels in ``0 .. C-1``; needed by ``"dual"`` and ``"confident"``, and well worth
            giving to ``"volume"``.
        method: ``"volume"`` is minimum volume (see ``minimum_volume``), ``"max"`` and ``"percentile"`` trust
            the most confident rows, ``"dual"`` factors through the predicted class, ``"confident"`` is the
            confident joint. For features instead of posteriors, see ``clusterability``.
        random_state: seed of the samples that ``"volume"`` reduces large data to.

    Returns:
        (C, C) float64 matrix ``T[i, j] = P(noisy = i | clean = j)``; columns sum to one.
    """
    if method not in get_args(Method):
        hint = " HOC works on features: call clusterability(features, labels)." if method == "hoc" else ""
        raise InputError(f"method must be one of {', '.join(get_args(Method))}, but is {method!r}.{hint}")
    if method == "volume":
        return minimum_volume(probs, labels, random_state=random_state).transition
    P = checked_posteriors(probs)
    y = None if labels is None else validate_labels(labels, *P.shape)
    if method == "max":
        return max_anchors(P)
    if method == "percentile":
        return percentile_anchors(P)
    if y is None:
        raise InputError(f'method "{method}" counts noisy labels; pass labels, shape ({len(P)},).')
    return dual(P, y) if method == "dual" else confident(P, y)
