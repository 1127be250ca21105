"""Backward correction: a loss that inverts T, so that its mean over the noise is the clean loss.

T is estimated as in Forward; then a reset network minimises

    -sum_k (T^-1)[k, noisy y] log h_k(x),

which is unbiased for the clean cross-entropy but has no lower bound, so deep networks overfit it.

Reference: Patrini, Rozza, Menon, Nock, Qu, "Making Deep Neural Networks Robust to Label Noise: a Loss Correction
Approach", CVPR 2017.

Deviations from the authors' code: those of Forward; the pseudo-inverse of a singular T; validation data scores the
cross-entropy of T h instead of this loss.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from volmin import estimation
from volmin.data.loaders import Batch
from volmin.losses import backward_nll
from volmin.methods.forward import Forward


class Backward(Forward):
    """Estimates T by plain training, resets the network and trains it on a loss that inverts T.

    Args:
        net: Network that gives logits.
        num_classes: Number of classes C.
        estimator: Estimator of T from posteriors: see ``volmin.estimate_transition``.
        T: Known (C, C) T with columns that sum to one, or the path of its ``.npy`` file; replaces the plain training.
        warm_up: Length of the plain training as a share of the epochs.
        clip: Lower bound of the probabilities in the loss, which bounds it; by default that of the authors.
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
