"""Estimators of T from the posteriors of an ordinary classifier, or from features.

Use ``estimate_transition(probs, labels)`` for posteriors of *noisy* labels from a model that was not trained on these
rows (cross-validation). In-sample posteriors are memorised labels, from which every estimator returns T = I.
"""

from __future__ import annotations

from typing import Literal, get_args

from volmin._typing import Array, Numbers
from volmin.estimation.anchors import max_anchors, percentile_anchors
from volmin.estimation.confident import confident
from volmin.estimation.dual import dual
from volmin.estimation.em import maximum_likelihood_transition
from volmin.estimation.minimum_volume import MinimumVolume, informative_posteriors, minimum_volume
from volmin.estimation.neighbours import clusterability
from volmin.estimation.recalibration import Recalibration, recalibrate
from volmin.exceptions import InputError
from volmin.validation import validate_labels

EstimatorName = Literal["volume", "max", "percentile", "dual", "confident"]

__all__ = [
    "EstimatorName",
    "MinimumVolume",
    "Recalibration",
    "clusterability",
    "estimate_transition",
    "maximum_likelihood_transition",
    "minimum_volume",
    "recalibrate",
]


def estimate_transition(
    probs: Numbers, labels: Numbers | None = None, method: EstimatorName = "volume", *, random_state: int = 0
) -> Array:
    """Estimate the transition matrix from noisy posteriors and labels.

    Args:
        probs: (N, C) out-of-sample posteriors of the noisy label.
        labels: (N,) noisy labels in ``0 .. C-1``; required by ``"dual"`` and ``"confident"``, recommended for
            ``"volume"``.
        method: Estimator: ``"volume"`` is minimum volume (see ``minimum_volume``), ``"max"`` and ``"percentile"`` use
            the most confident rows as anchor points, ``"dual"`` factors T through the predicted class, ``"confident"``
            is the confident joint. For features instead of posteriors, see ``clusterability``.
        random_state: Seed of the subsamples that ``"volume"`` takes of large data.

    Returns:
        (C, C) float64 matrix ``T[i, j] = P(noisy = i | clean = j)``; columns sum to one.
    """
    if method not in get_args(EstimatorName):
        hint = " HOC works on features: call clusterability(features, labels)." if method == "hoc" else ""
        raise InputError(f"method must be one of {', '.join(get_args(EstimatorName))}, but is {method!r}.{hint}")
    if method == "volume":
        return minimum_volume(probs, labels, random_state=random_state).transition
    P = informative_posteriors(probs)
    y = None if labels is None else validate_labels(labels, *P.shape)
    if method == "max":
        return max_anchors(P)
    if method == "percentile":
        return percentile_anchors(P)
    if y is None:
        raise InputError(f'method "{method}" counts noisy labels; pass labels, shape ({len(P)},).')
    return dual(P, y) if method == "dual" else confident(P, y)
