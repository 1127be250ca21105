"""Co-teaching: two networks, each trained on the examples of smallest loss under the other.

In each batch a network selects the examples of smallest loss, as many as labels are assumed correct, and its *peer*
takes a step on them, so that no network is trained on its own selection errors. The share of kept examples in epoch e
is

    R(e) = 1 - noise_rate * min(1, e / (ramp - 1)).

The first network predicts; the literature reports the mean accuracy of both.

Reference: Han, Yao, Yu, Niu, Xu, Hu, Tsang, Sugiyama, "Co-teaching: Robust Training of Deep Neural Networks with
Extremely Noisy Labels", NeurIPS 2018.

Deviations from the authors' code: the loss is one mean (theirs divides a mean by the number of examples again, to which
Adam is invariant); Adam keeps its beta1 of 0.9 in the later epochs; the noise rate may be estimated.
"""

from __future__ import annotations

from torch import Tensor, nn

from volmin.data.loaders import Batch
from volmin.losses import cross_entropies, smallest, weighted_mean
from volmin.methods._small_loss import SmallLossMethod
from volmin.networks import fresh_copy


class CoTeaching(SmallLossMethod):
    """Trains two networks, each on the examples of small loss under the other.

    Args:
        net: Network that gives logits; the second network is a copy with its own random weights.
        num_classes: Number of classes C.
        noise_rate: Share of wrong labels; estimated by plain training by default.
        ramp: Share of the epochs over which the share of kept examples falls.
        warm_up: Length of the plain training that estimates the noise rate, as a share of the epochs.
    """

    def __init__(
        self,
        net: nn.Module,
        num_classes: int,
        *,
        noise_rate: float | None = None,
        ramp: float = 0.05,
        warm_up: float = 0.25,
    ) -> None:
        super().__init__(net, num_classes, noise_rate, ramp, warm_up)
        self.peer = fresh_copy(net)

    def networks(self) -> list[nn.Module]:
        return [self.net, self.peer]

    def loss(self, batch: Batch, keep: Tensor | float, done: float) -> Tensor:
        return cross_update(self.net(batch.x), self.peer(batch.x), batch.y, keep)


def cross_update(
    logits: Tensor, peer_logits: Tensor, y: Tensor, keep: Tensor | float, among: Tensor | None = None
) -> Tensor:
    """The sum of both networks' losses, each over the examples of smallest loss under the other.

    The selection carries no gradient and the networks share no parameter, so a step on the sum is a step of each.

    Args:
        logits: (B, C) logits of the network.
        peer_logits: (B, C) logits of its peer.
        y: (B,) noisy labels.
        keep: Share of the examples to keep.
        among: (B,) mask of the examples to select from; all by default.
    """
    losses, peer_losses = cross_entropies(logits, y), cross_entropies(peer_logits, y)
    selected, peer_selected = smallest(losses, keep, among), smallest(peer_losses, keep, among)
    return weighted_mean(losses, peer_selected) + weighted_mean(peer_losses, selected)
