"""MentorNet: a curriculum that weights examples by their loss.

By default this is what comparisons of label-noise methods run under this name: a network is trained on the examples of
each batch with the smallest loss, as many as labels are assumed correct (self-paced, with a known noise rate),

    mean over the kept examples of -log h(x)[noisy y].

The other curricula are those that the authors' mentor network is trained to imitate. Their weights are a function of
the loss, its excess over a moving percentile of the batch's losses, and the share of training done.

Reference: Jiang, Zhou, Leung, Li, Fei-Fei, "MentorNet: Learning Data-Driven Curriculum for Very Deep Neural Networks on
Corrupted Labels", ICML 2018.

Deviations from the authors' code: the curricula are computed, not imitated by a network; no random part of the weights
is dropped; the data-driven mentor, which requires clean labels, is left out. Trained as in the comparison of
Co-teaching, except that Adam keeps its beta1 of 0.9.
"""

from __future__ import annotations

from typing import get_args

import torch
from torch import Tensor, nn

from volmin.data.loaders import Batch
from volmin.exceptions import InputError
from volmin.losses import Curriculum, cross_entropies, curriculum_weights, smallest, weighted_mean
from volmin.methods._small_loss import SmallLossMethod


class MentorNet(SmallLossMethod):
    """Trains on the examples of small loss, or by another curriculum of weights.

    Args:
        net: Network that gives logits.
        num_classes: Number of classes C.
        curriculum: Rule of the weights: "small_loss", which keeps as many examples as labels are correct, or
            "self_paced", "linear", "focal", "hard" or "predefined" (all, then self-paced, then linear), which use no
            noise rate.
        noise_rate: Share of wrong labels, for "small_loss"; estimated by plain training by default.
        ramp: Share of the epochs over which the share of kept examples falls.
        warm_up: Length of the plain training that estimates the noise rate, as a share of the epochs.
        percentile: Quantile of a batch's losses that serves as the threshold of the other curricula.
        decay: Weight of the previous value in the moving percentile.
        gamma: Width of "linear", exponent of "focal".
    """

    threshold: Tensor

    def __init__(
        self,
        net: nn.Module,
        num_classes: int,
        *,
        curriculum: Curriculum = "small_loss",
        noise_rate: float | None = None,
        ramp: float = 0.05,
        warm_up: float = 0.25,
        percentile: float = 0.75,
        decay: float = 0.5,
        gamma: float = 1.0,
    ) -> None:
        super().__init__(net, num_classes, noise_rate, ramp, warm_up)
        if curriculum not in (choices := get_args(Curriculum)):
            raise InputError(f"curriculum must be one of {', '.join(choices)}, but is {curriculum!r}.")
        self.estimates_rate = self.estimates_rate and curriculum == "small_loss"
        self.curriculum: Curriculum = curriculum
        self.percentile, self.decay, self.gamma = percentile, decay, gamma
        self.register_buffer("threshold", torch.zeros(()))

    def loss(self, batch: Batch, keep: Tensor | float, done: float) -> Tensor:
        losses = cross_entropies(self(batch.x), batch.y)
        if self.curriculum == "small_loss":
            return weighted_mean(losses, smallest(losses, keep))
        values = losses.detach()
        self.threshold.lerp_(values.quantile(self.percentile), 1 - self.decay)
        weights = curriculum_weights(self.curriculum, values, values - self.threshold, done, self.gamma)
        return (weights * losses).mean()
