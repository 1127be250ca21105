"""Crowd layer: a trainable matrix for each annotator on top of the shared classifier, without constraints.

The matrices W[m] start at the identity and are trained by backpropagation with the classifier h:

    loss = mean over answers of cross-entropy(softmax(W[m] h(x)), y).

Reference: Rodrigues, Pereira, "Deep Learning from Crowds", AAAI 2018 (the variant MW, a matrix for each annotator).

Deviations from the authors' code: answers are averaged over all answers of a batch, not summed over annotators. After
the warm-up, h is not a probability of the clean label in any strict sense, since W is not stochastic; ``transitions``
gives what an annotator answers to items that certainly belong to a class, softmax(W[m] e_k).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer

from volmin.data.loaders import Batch
from volmin.methods.base import Method
from volmin.training import Phase, Recipe


class CrowdLayer(Method):
    """Adds a free matrix for each annotator after the classifier, trained with it.

    Args:
        net: Network that gives logits.
        num_classes: Number of classes C.
        annotators: Number of annotators; labels of several are (B, annotators), negative where there is no answer.
        scale: Start value of the diagonal of the matrices; 1 in the paper.
    """

    needs = "noisy labels only, best of several annotators"

    def __init__(self, net: nn.Module, num_classes: int, *, annotators: int = 1, scale: float = 1.0) -> None:
        super().__init__(net, num_classes)
        self.annotators = annotators
        self.matrices = nn.Parameter(scale * torch.eye(num_classes).repeat(annotators, 1, 1))

    def transitions(self) -> Tensor:
        return self.matrices.softmax(dim=1)

    def noisy_log_probs(self, x: Tensor) -> Tensor:
        log_probs = torch.einsum("mrc,bc->bmr", self.matrices, self(x).softmax(1)).log_softmax(2)
        return log_probs.squeeze(1)

    def loss(self, batch: Batch, epoch: int) -> Tensor:
        y = batch.y[:, None] if batch.y.ndim == 1 else batch.y
        row, annotator = torch.nonzero(y >= 0, as_tuple=True)
        if len(row) == 0:
            return self.matrices.sum() * 0
        h = self(batch.x).softmax(1)
        logits = (self.matrices[annotator] * h[row, None]).sum(2)
        return F.cross_entropy(logits, y[row, annotator])

    def phases(self, recipe: Recipe) -> list[Phase]:
        def optimizers() -> list[Optimizer]:
            layer = nn.ParameterList([self.matrices])
            return [recipe.network_optimizer(self.net), recipe.transition_optimizer_for(layer)]

        return [Phase("train", recipe.epochs, self.loss, optimizers, recipe.learning_rate_schedule())]
