"""Co-teaching: two networks, each taught by the examples that the other finds easy.

Of each batch a network picks the examples of smallest loss, as many as labels are thought to be right, and its *peer*
takes the step on them: errors of the choice are not fed back to the network that made it. The share that is kept in
epoch e is

    R(e) = 1 - noise_rate * min(1, e / (ramp - 1)).

The first network predicts; the literature reports the mean accuracy of both.

Reference: Han, Yao, Yu, Niu, Xu, Hu, Tsang, Sugiyama, "Co-teaching: Robust Training of Deep Neural Networks with
Extremely Noisy Labels", NeurIPS 2018.

Deviations from the authors' code: the loss is one mean (theirs divides a mean by the number of examples again, which
Adam hides); Adam keeps its beta1 of 0.9 in the later epochs; the noise rate may be estimated.
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
        net: network that gives logits; a copy with its own random start is the second one.
        num_classes: C.
        noise_rate: share of wrong labels; estimated after plain training by default.
        ramp: share of the epochs over which the share of examples that are kept falls.
        warm_up: length of the plain training that estimates the noise rate, as a share of the epochs.
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

    The choice carries no gradient and the networks share no parameter: a step on the sum is a step of each.
    """
    ours, theirs = cross_entropies(logits, y), cross_entropies(peer_logits, y)
    chosen_by_us, chosen_by_them = smallest(ours, keep, among), smallest(theirs, keep, among)
    return weighted_mean(ours, chosen_by_them) + weighted_mean(theirs, chosen_by_us)
