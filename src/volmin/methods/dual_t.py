"""Dual T: Forward with a T that is factored through the predicted class.

Noisy posteriors are hard to estimate; the two factors of ``T = T_spade T_club`` are easier. The anchor points give
``T_club[l, j] = P(predicted l | clean j)``, and counts give ``T_spade[i, l] = P(noisy i | predicted l)``.

Reference: Yao, Liu, Han, Gong, Deng, Niu, Sugiyama, "Dual T: Reducing Estimation Error for Transition Matrix in
Label-noise Learning", NeurIPS 2020.

Deviations from the authors' code: a class that is never predicted gets an identity column instead of zeros; the columns
at anchor points are normalised; beyond 33 classes fewer of the most confident rows are dropped as outliers; training
uses the momentum of the recipe, which their scripts leave out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import nn

from volmin.methods.forward import Forward


class DualT(Forward):
    """Estimates T as a product of two matrices, resets the network and trains it so that T h explains the noisy labels.

    Args:
        net: Network that gives logits.
        num_classes: Number of classes C.
        warm_up: Length of the plain training as a share of the epochs.
    """

    needs = "noisy labels only"
    recipe_changes: ClassVar[Mapping[str, Any]] = {
        "epochs": 200,
        "milestones": (50, 100, 150),
        "selection": "accuracy",
    }

    def __init__(self, net: nn.Module, num_classes: int, *, warm_up: float = 0.5) -> None:
        super().__init__(net, num_classes, estimator="dual", warm_up=warm_up)
