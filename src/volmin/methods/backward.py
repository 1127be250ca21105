"""Backward correction: invert T in the loss, so that its mean over the noise is the clean loss.

T is estimated as for Forward; then a new network minimises

    -sum_k (T^-1)[k, noisy y] log h_k(x),

which is unbiased for the clean cross-entropy but has no lower bound, so deep networks overfit it.

Reference: Patrini, Rozza, Menon, Nock, Qu, "Making Deep Neural Networks Robust to Label Noise: a Loss Correction
Approach", CVPR 2017.

Deviations from the authors' code: as for Forward; the pseudo-inverse stands in where T is singular; validation data
judges T h by cross-entropy and not by this loss.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from volmin import estimation
from volmin.data.loaders import Batch
from volmin.losses import backward_nll
from volmin.methods.forward import Forward


class Backward(Forward):
    """Estimates T after plain training, and trains anew on the loss that undoes T.

    Args:
        net: network that gives logits.
        num_classes: C.
        estimator: how T is found from posteriors: see ``volmin.estimate_transition``.
        T: a known T, (C, C) with columns that sum to one, or the path of a ``.npy`` file; no plain training then.
        warm_up: length of the plain training, as a share of the epochs.
        clip: smallest probability that counts in the loss, which bounds it; the authors' by default.
    """

    def __init__(
        self,
        net: nn.Module,
        num_classes: int,
        *,
        estimator: estimation.EstimatorName = "percentile",
        T: Sequence[Sequence[float]] | str | None = None,
        warm_up: float = 1.0,
        clip: float | None = 1e-7,
    ) -> None:
        super().__init__(net, num_classes, estimator=estimator, T=T, warm_up=warm_up)
        self.clip = clip

    def loss(self, batch: Batch, epoch: int) -> Tensor:
        return backward_nll(self(batch.x), self.T, batch.y, self.clip)
