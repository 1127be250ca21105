"""Majority vote: plain training on the most frequent answer to each item, the baseline with several annotators.

Classes that tie for the most answers share the target. With one label per item this is plain training.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from volmin.data.loaders import Batch
from volmin.methods.base import Method
from volmin.training import Phase, Recipe


class MajorityVote(Method):
    """Trains on the most frequent answer to each item as if it were correct.

    Args:
        net: Network that gives logits.
        num_classes: Number of classes C.
        annotators: Number of annotators; labels of several are (B, annotators), negative where there is no answer.
    """

    needs = "noisy labels only, of one or several annotators"

    def __init__(self, net: nn.Module, num_classes: int, *, annotators: int = 1) -> None:
        super().__init__(net, num_classes)
        self.annotators = annotators

    def loss(self, batch: Batch, epoch: int) -> Tensor:
        return F.cross_entropy(self(batch.x), votes(batch.y, self.num_classes))

    def phases(self, recipe: Recipe) -> list[Phase]:
        return [self.network_phase("train", recipe, self.loss)]


def votes(y: Tensor, num_classes: int) -> Tensor:
    """(B, C) distribution over the most frequent of (B,) or (B, M) answers; uniform for an item without any."""
    y = y[:, None] if y.ndim == 1 else y
    counts = torch.zeros(len(y), num_classes, device=y.device)
    counts.scatter_add_(1, y.clamp_min(0), (y >= 0).float())
    winners = (counts == counts.amax(1, keepdim=True)).float()
    return winners / winners.sum(1, keepdim=True)
