"""Co-teaching+: Co-teaching on the examples that the two networks disagree on.

Two networks that teach each other grow alike, and Co-teaching becomes self-training; so after some epochs only the
examples on which they predict different classes are considered, and of those the share R(e) with the smallest loss
under the *peer* makes the step.

The first network predicts; the literature reports the mean accuracy of both.

Reference: Yu, Han, Yao, Niu, Tsang, Sugiyama, "How does Disagreement Help Generalization against Label Corruption?",
ICML 2019.

Deviations from the authors' code: cross-entropy of logits (theirs takes a softmax twice) and one mean; the example
with index 0 may be chosen; at least one example is kept where they fall back to all that are disagreed on; Adam keeps
its beta1 of 0.9; the noise rate may be estimated.
"""

from __future__ import annotations

from torch import Tensor, nn

from volmin.data.loaders import Batch
from volmin.methods.co_teaching import CoTeaching, cross_update


class CoTeachingPlus(CoTeaching):
    """Trains two networks, each on the examples of small loss under the other among those that they disagree on.

    Args:
        net: network that gives logits; a copy with its own random start is the second one.
        num_classes: C.
        noise_rate: share of wrong labels; estimated after plain training by default.
        ramp: share of the epochs over which the share of examples that are kept falls.
        warm_up: length of the plain training that estimates the noise rate, as a share of the epochs.
        start: share of the epochs that are plain Co-teaching: 0.1 on CIFAR-10, 0 on MNIST in the authors' code.
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
