"""A linear noise layer, kept a probability matrix by projection.

A first phase with Q = I lets the network learn the noise; then the layer Q is released, with a push towards a more
diffuse matrix, so that the noise moves from the network into Q:

    cross-entropy(Q h(x), noisy y) + trace * tr(Q) / C,    each column of Q projected onto the simplex after each step.

Reference: Sukhbaatar, Bruna, Paluri, Bourdev, Fergus, "Training Convolutional Networks with Noisy Labels", ICLR 2015
workshop.

Deviations: no code of the authors is public; the lengths of the phases, the weight of the trace and a bound on the
gradient of Q are ours.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from volmin.data.loaders import Batch
from volmin.exceptions import InputError
from volmin.losses import noisy_likelihood
from volmin.methods.base import Method
from volmin.training import Phase, Recipe


class LinearNoiseLayer(Method):
    """Trains plainly, then releases a linear layer that takes over the noise, with its trace made small.

    Args:
        net: network that gives logits.
        num_classes: C.
        trace: weight of the mean diagonal entry of Q, which is minimised.
        warm_up: length of the phase with Q = I, as a share of the epochs.
    """

    estimates_transition = True

    def __init__(self, net: nn.Module, num_classes: int, *, trace: float = 0.3, warm_up: float = 0.5) -> None:
        super().__init__(net, num_classes)
        if trace < 0:
            raise InputError(f"trace must be at least 0, but is {trace}: a negative weight would hold Q at I.")
        self.trace, self.warm_up = trace, warm_up
        self.layer = nn.Linear(num_classes, num_classes, bias=False)
        nn.init.eye_(self.layer.weight)

    def transition(self, x: Tensor | None = None) -> Tensor:
        return self.layer.weight.clone()

    def loss(self, batch: Batch, epoch: int) -> Tensor:
        Q = self.layer.weight
        # Not in the log domain, where an entry at zero would get no gradient and stay there.
        fit = -noisy_likelihood(self(batch.x), Q, batch.y).log().mean()
        return fit + self.trace * Q.diagonal().mean()

    def bound_slope(self) -> None:
        # Where a label was all but impossible its slope has no bound, and one such example would throw Q away.
        nn.utils.clip_grad_norm_(self.layer.weight, 1.0)

    @torch.no_grad()
    def project(self) -> None:
        self.layer.weight.copy_(project_columns(self.layer.weight))

    def phases(self, recipe: Recipe) -> list[Phase]:
        def optimizers() -> list[Optimizer]:
            # Plain gradients for Q: Adam's scaling of single entries would outweigh the trace.
            of_layer = recipe.network_optimizer(self.layer, optimizer="sgd", weight_decay=0.0)
            of_layer.register_step_pre_hook(lambda *_: self.bound_slope())
            of_layer.register_step_post_hook(lambda *_: self.project())
            return [recipe.network_optimizer(self.net), of_layer]

        return [
            self.warm_up_phase(recipe, self.warm_up),
            Phase("train", recipe.epochs, self.loss, optimizers, recipe.learning_rate_schedule()),
        ]


def project_columns(Q: Tensor) -> Tensor:
    """The nearest matrix whose columns are distributions."""
    # The projection subtracts one number from a column and cuts at zero; the k largest entries stay positive for the
    # largest k at which the k-th still exceeds that number. It does not mind a shift of a column, without which the one
    # that is missing to a sum would be lost beside entries that a steep step has made huge.
    Q = Q - Q.amax(dim=0)
    ordered = Q.sort(dim=0, descending=True).values
    counts = torch.arange(1, len(Q) + 1, device=Q.device, dtype=Q.dtype)[:, None]
    levels = (ordered.cumsum(dim=0) - 1) / counts
    last = ((ordered > levels).sum(dim=0, keepdim=True) - 1).clamp_min(0)  # below only where Q is not finite
    return (Q - levels.gather(0, last)).clamp_min(0)
