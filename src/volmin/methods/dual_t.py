"""Dual T: Forward with a T that is factored through the class that the network predicts.

Noisy posteriors are hard to estimate, the two factors are not: ``T = T_spade T_club``, with
``T_club[l, j] = P(predicted l | clean j)`` read off at anchor points and ``T_spade[i, l] = P(noisy i | predicted l)``
counted.

Reference: Yao, Liu, Han, Gong, Deng, Niu, Sugiyama, "Dual T: Reducing Estimation Error for Transition Matrix in
Label-noise Learning", NeurIPS 2020.

Deviations from the authors' code: a class that is never predicted keeps its label instead of a column of zeros; the
columns at anchor points are normalised; beyond 33 classes fewer of the surest rows are dropped as outliers; training
has the momentum of the recipe, which their scripts leave out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import nn

from volmin.methods.forward import Forward


class DualT(Forward):
    """Estimates T as a product of two easier matrices, and trains anew so that T h explains the noisy labels.

    Args:
        net: network that gives logits.
        num_classes: C.
        warm_up: length of the plain training, as a share of the epochs.
    """

    needs = "noisy labels only"
    recipe_changes: ClassVar[Mapping[str, Any]] = {
        "epochs": 200,
        "milestones": (50, 100, 150),
        "selection": "accuracy",
    }

    def __init__(self, net: nn.Module, num_classes: int, *, warm_up: float = 0.5) -> None:
        super().__init__(net, num_classes, estimator="dual", warm_up=warm_up)
