"""Importance reweighting: weight each noisy example by how likely its label is clean.

T is estimated as in Forward; then training continues from the same weights with

    beta(x) * -log h(x)[noisy y],    beta(x) = h(x)[noisy y] / (T h(x))[noisy y],

whose mean over the noise is the clean cross-entropy if h is the clean posterior. beta is a constant in the gradient.

Reference: Liu, Tao, "Classification with Noisy Labels by Importance Reweighting", TPAMI 2016; for many classes as in
Xia et al., "Are Anchor Points Really Indispensable in Label-Noise Learning?", NeurIPS 2019.

Deviations from the code of the latter: columns of T are normalised by their own sums; plain training uses the momentum
of the recipe (theirs has none, which is too slow for small data sets) and ends with its best epoch on validation data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from torch import Tensor, nn

from volmin import estimation
from volmin.data.loaders import Batch
from volmin.losses import reweighted_nll
from volmin.methods.forward import Forward


class Reweight(Forward):
    """Estimates T by plain training, then weights examples by how likely their label is clean.

    Args:
        net: Network that gives logits.
        num_classes: Number of classes C.
        estimator: Estimator of T from posteriors: see ``volmin.estimate_transition``.
        T: Known (C, C) T with columns that sum to one, or the path of its ``.npy`` file; replaces the plain training.
        warm_up: Length of the plain training as a share of the epochs.
    """

    recipe_changes: ClassVar[Mapping[str, Any]] = {"epochs": 100, "milestones": (40, 80), "selection": "accuracy"}

    def __init__(
        self,
        net: nn.Module,
        num_classes: int,
        *,
        estimator: estimation.EstimatorName = "percentile",
        T: Sequence[Sequence[float]] | str | None = None,
        warm_up: float = 0.2,
    ) -> None:
        super().__init__(net, num_classes, estimator=estimator, T=T, warm_up=warm_up)

    def loss(self, batch: Batch, epoch: int) -> Tensor:
        T = self.transition(batch.x)
        return reweighted_nll(self(batch.x), T, batch.y)

    def prepare(self, batches: Iterable[Batch]) -> None:
        # Unlike Forward, this continues from the weights of plain training.
        self.estimate(batches)
