"""Total-variation regularisation: learn T and clean predictions that are far apart.

Noise makes posteriors more alike, so of all pairs (T, h) that explain the noisy labels, the correct one has the most
different clean predictions. The loss is

    cross-entropy(T h(x), noisy y) - gamma * mean over random pairs of 1/2 |h(x) - h(x')|_1.

T is a trained softmax, or the mean of Dirichlet distributions whose concentrations accumulate counts of noisy labels
and of clean classes drawn from h.

Reference: Zhang, Niu, Sugiyama, "Learning Noise Transition Matrix from Only Noisy Labels via Total Variation
Regularization", ICML 2021.

Deviations from the authors' code: the network's optimiser and the schedule are those of the data set; for two classes T
starts with a diagonal of 0.8, since 0.5 would be singular.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer

from volmin.data.loaders import Batch
from volmin.exceptions import InputError
from volmin.losses import forward_nll, total_variation
from volmin.methods.base import Method
from volmin.training import Phase, Recipe
from volmin.transition import SoftmaxTransition

RETAINED, ADDED = 0.999, 0.01
"""Factors of the previous concentrations and of the counts of a batch."""
SMALLEST_CONCENTRATION = 1e-3
"""Start value off the diagonal. The authors' is zero, which is not a valid concentration."""


class TV(Method):
    """Learns T and the classifier together, with clean predictions of different inputs far apart.

    Args:
        net: Network that gives logits.
        num_classes: Number of classes C.
        gamma: Weight of the total variation.
        dirichlet: Whether T is learned from counts, without gradients, instead of as a softmax.
        concentration: Start value of the diagonal of the Dirichlet concentrations: 10 on MNIST, 100 on CIFAR.
    """

    estimates_transition = True
    recipe_changes: ClassVar[Mapping[str, Any]] = {
        "transition_optimizer": "adam",
        "transition_lr": 5e-3,
        "selection": "last",
    }
    A: Tensor

    def __init__(
        self,
        net: nn.Module,
        num_classes: int,
        *,
        gamma: float = 0.1,
        dirichlet: bool = False,
        concentration: float = 10.0,
    ) -> None:
        super().__init__(net, num_classes)
        if gamma < 0:
            raise InputError(
                f"gamma must be at least 0, but is {gamma}: a negative weight would make predictions alike."
            )
        self.gamma = gamma
        self.T = None if dirichlet else SoftmaxTransition(num_classes)
        A = torch.full((num_classes, num_classes), SMALLEST_CONCENTRATION).fill_diagonal_(concentration)
        self.register_buffer("A", A)

    def transition(self, x: Tensor | None = None) -> Tensor:
        return self.A / self.A.sum(dim=0) if self.T is None else self.T()

    def loss(self, batch: Batch, epoch: int) -> Tensor:
        logits = self(batch.x)
        probs = logits.softmax(dim=1)
        T = self._draw(probs.detach(), batch.y) if self.T is None else self.T()
        a, b = torch.randint(len(batch.y), (2, len(batch.y)), device=batch.y.device)
        return forward_nll(logits, T, batch.y) - self.gamma * total_variation(probs[a], probs[b]).mean()

    def phases(self, recipe: Recipe) -> list[Phase]:
        def optimizers() -> list[Optimizer]:
            networks = [recipe.network_optimizer(self.net)]
            return networks if self.T is None else [*networks, recipe.transition_optimizer_for(self.T)]

        return [Phase("train", recipe.epochs, self.loss, optimizers, recipe.learning_rate_schedule())]

    def _draw(self, probs: Tensor, y: Tensor) -> Tensor:
        """Draw T, and add to A the counts of the noisy labels and of clean classes drawn from ``probs``."""
        T = torch.distributions.Dirichlet(self.A.T).sample().T
        clean = F.one_hot(torch.multinomial(probs, 1).squeeze(1), self.num_classes)
        counts = F.one_hot(y, self.num_classes).to(probs).T @ clean.to(probs)
        self.A.mul_(RETAINED).add_(ADDED * counts)
        return T
