"""Dual T: factor the transition through the class that a network predicts (Yao et al., NeurIPS 2020).

With ``y' = argmax p(x)`` as an intermediate class, ``T = T_spade @ T_club``:
``T_club[l, j] = P(y' = l | clean = j)`` comes from anchor points of the network's own posterior,
``T_spade[i, l] = P(noisy = i | y' = l)`` from counting. Assumes that the noisy label depends on the clean one
only through y'.

``T_club`` is to say which class is predicted, but is read off posteriors, so it is right for a network that is sure of
itself, as after long training. Where posteriors are calibrated, both factors are T and the product is T @ T.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from volmin.estimation.anchors import percentile_anchors


def dual(probs: NDArray[np.float64], labels: NDArray[np.int64]) -> NDArray[np.float64]:
    """T as the product of counted and anchor-point transitions.

    Args:
        probs: (N, C) noisy posteriors.
        labels: (N,) noisy labels of the same rows.
    """
    return predicted_to_noisy(probs, labels) @ percentile_anchors(probs)


def predicted_to_noisy(probs: NDArray[np.float64], labels: NDArray[np.int64]) -> NDArray[np.float64]:
    """Counts as ``P(noisy = i | predicted = l)``, (C, C); a class that is never predicted keeps its label."""
    counts = np.zeros((probs.shape[1], probs.shape[1]))
    np.add.at(counts, (labels, probs.argmax(axis=1)), 1)
    never = counts.sum(axis=0) == 0
    counts[never, never] = 1
    return counts / counts.sum(axis=0)
