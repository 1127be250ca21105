"""S-adaptation: a softmax layer on top of the classifier that learns the noise.

The noise is one more layer, trained by backpropagation with the rest. The simple model has

    T[:, j] = softmax(b[:, j]),    loss = cross-entropy(T h(x), noisy y);

the complex model adds ``u_ij' features(x)`` to b. T starts at the confusion matrix of the network after plain training;
otherwise it would be determined only up to a permutation.

Reference: Goldberger, Ben-Reuven, "Training Deep Neural-Networks Using a Noise Adaptation Layer", ICLR 2017.

Deviations from the authors' code: the biases of the noise layer have a separate optimiser, without weight decay;
training ends with its best epoch instead of stopping early. For the complex model, the reported T is a running mean
over batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from volmin.data.loaders import Batch
from volmin.exceptions import InputError
from volmin.losses import cross_entropies, forward_nll
from volmin.methods.base import Method, collect
from volmin.networks import features_and_logits, last_linear
from volmin.training import Phase, Recipe
from volmin.transition import SoftmaxTransition

MOMENTUM = 0.01
"""Weight of a batch in the running mean of T."""


class SAdaptation(Method):
    """Adds, after plain training, a softmax layer for T that starts at the network's confusion matrix.

    Args:
        net: Network that gives logits, for the complex model by a last linear layer.
        num_classes: Number of classes C.
        model: "simple" for one T, "complex" for a T that depends on the features of x.
        beta: Weight of plain cross-entropy in the loss, which keeps the classes from being permuted.
        warm_up: Length of the plain training as a share of the epochs.
    """

    estimates_transition = True
    recipe_changes: ClassVar[Mapping[str, Any]] = {
        "epochs": 40,
        "optimizer": "adam",
        "lr": 1e-3,
        "weight_decay": 0.0,
        "milestones": (),
        "selection": "loss",
    }
    average: Tensor

    def __init__(
        self,
        net: nn.Module,
        num_classes: int,
        *,
        model: Literal["simple", "complex"] = "simple",
        beta: float = 0.0,
        warm_up: float = 1.0,
    ) -> None:
        super().__init__(net, num_classes)
        if model not in ("simple", "complex"):
            raise InputError(f'model must be "simple" or "complex", but is {model!r}.')
        self.beta, self.warm_up = beta, warm_up
        self.noise = SoftmaxTransition(num_classes)
        self.noise.start_at(torch.eye(num_classes))
        self.slopes: nn.Linear | None = None
        if model == "complex":
            self.slopes = nn.Linear(last_linear(net).in_features, num_classes**2, bias=False)
            nn.init.zeros_(self.slopes.weight)
        self.register_buffer("average", torch.eye(num_classes))

    def transition(self, x: Tensor | None = None) -> Tensor:
        if self.slopes is None:
            return self.noise()
        return self.average if x is None else self._at(features_and_logits(self.net, x)[0])

    def loss(self, batch: Batch, epoch: int) -> Tensor:
        if self.slopes is None:
            logits, T = self(batch.x), self.noise()
        else:
            features, logits = features_and_logits(self.net, batch.x)
            T = self._at(features)
            self.average.lerp_(T.detach().mean(0), MOMENTUM)
        corrected = forward_nll(logits, T, batch.y)
        if self.beta == 0:
            return corrected
        return torch.lerp(corrected, cross_entropies(logits, batch.y).mean(), self.beta)

    def start_at_confusion(self, batches: Iterable[Batch]) -> None:
        """Start T at the confusion matrix; a class that is never predicted gets an identity column."""
        predicted, labels = collect(batches, lambda x: self(x).argmax(1))
        pairs = labels * self.num_classes + predicted.long()
        counts = torch.bincount(pairs, minlength=self.num_classes**2).reshape(self.num_classes, -1).float()
        never = counts.sum(0) == 0
        counts[never, never] = 1
        self.noise.start_at(counts / counts.sum(0))
        self.average.copy_(self.noise())

    def phases(self, recipe: Recipe) -> list[Phase]:
        networks = [self.net] if self.slopes is None else [self.net, self.slopes]

        def optimizers() -> list[Optimizer]:
            return [recipe.network_optimizer(*networks), recipe.transition_optimizer_for(self.noise)]

        schedule = recipe.learning_rate_schedule()
        return [
            self.warm_up_phase(recipe, self.warm_up),
            Phase("train", recipe.epochs, self.loss, optimizers, schedule, self.start_at_confusion),
        ]

    def _at(self, features: Tensor) -> Tensor:
        """T(x), (B, C, C)."""
        assert self.slopes is not None
        offsets = self.slopes(features).reshape(-1, self.num_classes, self.num_classes)
        return (self.noise.logits + offsets).softmax(dim=1)
