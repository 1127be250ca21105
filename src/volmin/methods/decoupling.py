"""Decoupling: two networks, each updated only where they disagree.

"When to update" is separated from "how to update": an example is used while the networks predict different classes for
it, so that training slows down where they agree instead of fitting the wrong labels there. On the set D of examples on
which they disagree, each network minimises

    sum_{D} -log h(x)[noisy y] / max(|D|, least * batch size).

The first network predicts; the literature reports the mean accuracy of both.

Reference: Malach, Shalev-Shwartz, "Decoupling 'when to update' from 'how to update'", NeurIPS 2017.

Deviations from the authors' code: trained as in the comparison of Co-teaching (mean over D, Adam, no warm-up), except
that Adam keeps its beta1 of 0.9. Where D is empty the gradient is zero, but Adam's momentum still moves the weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor, nn

from volmin.data.loaders import Batch
from volmin.losses import cross_entropies, weighted_mean
from volmin.methods._small_loss import CO_TEACHING_RECIPE
from volmin.methods.base import Method
from volmin.networks import fresh_copy
from volmin.training import Phase, Recipe


class Decoupling(Method):
    """Trains two networks, each only on the examples on which they disagree.

    Args:
        net: Network that gives logits; the second network is a copy with its own random weights.
        num_classes: Number of classes C.
        least: Smallest divisor of the loss as a share of the batch, so that few disagreements give a small step; 0.1 in
            the authors' code.
    """

    recipe_changes: ClassVar[Mapping[str, Any]] = CO_TEACHING_RECIPE

    def __init__(self, net: nn.Module, num_classes: int, *, least: float = 0.0) -> None:
        super().__init__(net, num_classes)
        self.peer = fresh_copy(net)
        self.least = least

    def networks(self) -> list[nn.Module]:
        return [self.net, self.peer]

    def loss(self, batch: Batch, epoch: int) -> Tensor:
        logits, peer_logits = self.net(batch.x), self.peer(batch.x)
        differ = (logits.argmax(1) != peer_logits.argmax(1)).to(logits.dtype)
        # The networks share no parameter, so a step on the sum is a step of each on its own loss.
        losses = cross_entropies(logits, batch.y) + cross_entropies(peer_logits, batch.y)
        return weighted_mean(losses, differ, max(1.0, self.least * len(batch.y)))

    def phases(self, recipe: Recipe) -> list[Phase]:
        return [self.network_phase("train", recipe, self.loss, *self.networks())]
