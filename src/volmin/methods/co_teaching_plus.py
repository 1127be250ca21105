"""Co-teaching+: Co-teaching on the examples on which the two networks disagree.

The two networks of Co-teaching become alike, and the method degenerates to self-training. So after some epochs only the
set D of examples on which they predict different classes is used: each network minimises

    mean of -log h(x)[noisy y] over the share R(e) of D with the smallest loss under its *peer*,

with R(e) as in Co-teaching. The first network predicts; the literature reports the mean accuracy of both.

Reference: Yu, Han, Yao, Niu, Tsang, Sugiyama, "How does Disagreement Help Generalization against Label Corruption?",
ICML 2019.

Deviations from the authors' code: cross-entropy of logits (theirs applies a softmax twice) and one mean; the example
with index 0 may be selected; at least one example is kept, where theirs falls back to all of D; Adam keeps its beta1 of
0.9; the noise rate may be estimated.
"""

from __future__ import annotations

from torch import Tensor, nn

from volmin.data.loaders import Batch
from volmin.methods.co_teaching import CoTeaching, cross_update


class CoTeachingPlus(CoTeaching):
    """Trains two networks, each on the examples of small loss under the other among those on which they disagree.

    Args:
        net: Network that gives logits; the second network is a copy with its own random weights.
        num_classes: Number of classes C.
        noise_rate: Share of wrong labels; estimated by plain training by default.
        ramp: Share of the epochs over which the share of kept examples falls.
        warm_up: Length of the plain training that estimates the noise rate, as a share of the epochs.
        start: Share of the epochs of plain Co-teaching: 0.1 on CIFAR-10, 0 on MNIST in the authors' code.
    """

    def __init__(
        self,
        net: nn.Module,
        num_classes: int,
        *,
        noise_rate: float | None = None,
        ramp: float = 0.05,
        warm_up: float = 0.25,
        start: float = 0.1,
    ) -> None:
        super().__init__(net, num_classes, noise_rate=noise_rate, ramp=ramp, warm_up=warm_up)
        self.start = start

    def loss(self, batch: Batch, keep: Tensor | float, done: float) -> Tensor:
        if done < self.start:
            return super().loss(batch, keep, done)
        logits, peer_logits = self.net(batch.x), self.peer(batch.x)
        differ = logits.argmax(1) != peer_logits.argmax(1)
        return cross_update(logits, peer_logits, batch.y, keep, among=differ)
