"""Dual T: the transition factored through the class that a network predicts (Yao et al., NeurIPS 2020).

With ``y' = argmax p(x)`` as an intermediate class, ``T = T_spade @ T_club``: ``T_club[l, j] = P(y' = l | clean = j)``
comes from anchor points of the network's posterior, ``T_spade[i, l] = P(noisy = i | y' = l)`` from counts. The noisy
label is assumed to depend on the clean one only through y'.

``T_club`` is the distribution of a predicted class but is read off posteriors, so it is correct for an overconfident
network, as after long training. For calibrated posteriors both factors are T, and the product is T @ T.
"""

from __future__ import annotations

import numpy as np

from volmin._typing import Array, Labels
from volmin.estimation.anchors import percentile_anchors


def dual(probs: Array, labels: Labels) -> Array:
    """T as the product of counted and anchor-point transitions, (C, C).

    Args:
        probs: (N, C) noisy posteriors.
        labels: (N,) noisy labels of the same rows.
    """
    return predicted_to_noisy(probs, labels) @ percentile_anchors(probs)


def predicted_to_noisy(probs: Array, labels: Labels) -> Array:
    """``P(noisy = i | predicted = l)`` from counts, (C, C); a class that is never predicted gets column ``e_l``."""
    counts = np.zeros((probs.shape[1], probs.shape[1]))
    np.add.at(counts, (labels, probs.argmax(axis=1)), 1)
    never = counts.sum(axis=0) == 0
    counts[never, never] = 1
    return counts / counts.sum(axis=0)
