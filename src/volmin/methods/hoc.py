"""HOC: Forward with a T estimated from the agreement of neighbours' labels.

Examples with similar features share their clean label, so the noisy labels of neighbours are independent draws from one
column of T. The frequencies of single labels, pairs and triples determine T without anchor points
(``volmin.estimation.neighbours``). The features are those of the network after plain training.

Reference: Zhu, Song, Liu, "Clusterability as an Alternative to Anchor Points When Learning with Noisy Labels",
ICML 2021.

Deviations from the authors' code: one global T, estimated once; cross-entropy of T h without a second softmax; the
optimiser and its schedule are those of the data set.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import torch
from torch import nn

from volmin.data.loaders import Batch
from volmin.estimation import clusterability
from volmin.methods.base import collect
from volmin.methods.forward import Forward
from volmin.networks import features_and_logits, last_linear


class HOC(Forward):
    """Estimates T from neighbours' labels, resets the network and trains it so that T h explains the noisy labels.

    Args:
        net: Network that gives logits by a last linear layer, whose inputs are the features.
        num_classes: Number of classes C.
        warm_up: Length of the plain training as a share of the epochs.
    """

    needs = "a last linear layer"
    recipe_changes: ClassVar[Mapping[str, Any]] = {"selection": "last"}

    def __init__(self, net: nn.Module, num_classes: int, *, warm_up: float = 0.5) -> None:
        super().__init__(net, num_classes, warm_up=warm_up)
        last_linear(net)  # raises now rather than after the warm-up

    def estimate(self, batches: Iterable[Batch]) -> None:
        features, labels = collect(batches, lambda x: features_and_logits(self.net, x)[0])
        T = clusterability(features.numpy(), labels.numpy(), self.num_classes)
        self.T.copy_(torch.as_tensor(T))
