"""A linear noise layer that is kept a stochastic matrix by projection.

In a first phase, with Q = I, the network learns the noise. Then Q is trained too, with a penalty on its trace, so that
the noise moves from the network into Q:

    cross-entropy(Q h(x), noisy y) + trace * tr(Q) / C,    each column of Q projected onto the simplex after each step.

Reference: Sukhbaatar, Bruna, Paluri, Bourdev, Fergus, "Training Convolutional Networks with Noisy Labels", ICLR 2015
workshop.

Deviations: the authors' code is not public; the lengths of the phases, the weight of the trace and the bound on the
gradient of Q were chosen here.
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
    """Adds, after plain training, a trainable linear noise layer with a penalty on its trace.

    Args:
        net: Network that gives logits.
        num_classes: Number of classes C.
        trace: Weight of the mean diagonal entry of Q, which is minimised.
        warm_up: Length of the phase with Q = I, as a share of the epochs.
    """

    estimates_transition = True

    def __init__(self, net: nn.Module, num_classes: int, *, trace: float = 0.3, warm_up: float = 0.5) -> None:
        super().__init__(net, num_classes)
        if trace < 0:
            raise InputError(f"trace must be at least 0, but is {trace}: a negative weight would keep Q at I.")
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

    def clip_gradient(self) -> None:
        # The gradient grows without bound as a label's probability goes to zero: one such example would destroy Q.
        nn.utils.clip_grad_norm_(self.layer.weight, 1.0)

    @torch.no_grad()
    def project(self) -> None:
        self.layer.weight.copy_(project_columns(self.layer.weight))

    def phases(self, recipe: Recipe) -> list[Phase]:
        def optimizers() -> list[Optimizer]:
            # SGD for Q: Adam's scaling of single entries would outweigh the trace.
            layer_optimizer = recipe.network_optimizer(self.layer, optimizer="sgd", weight_decay=0.0)
            layer_optimizer.register_step_pre_hook(lambda *_: self.clip_gradient())
            layer_optimizer.register_step_post_hook(lambda *_: self.project())
            return [recipe.network_optimizer(self.net), layer_optimizer]

        return [
            self.warm_up_phase(recipe, self.warm_up),
            Phase("train", recipe.epochs, self.loss, optimizers, recipe.learning_rate_schedule()),
        ]


def project_columns(Q: Tensor) -> Tensor:
    """The nearest matrix whose columns are distributions."""
    # The projection subtracts one level from a column and clips at zero; the k largest entries stay positive, for the
    # largest k at which the k-th exceeds its level. Shifting a column does not change the projection, but keeps the 1
    # in the level from being rounded away beside huge entries.
    Q = Q - Q.amax(dim=0)
    ordered = Q.sort(dim=0, descending=True).values
    counts = torch.arange(1, len(Q) + 1, device=Q.device, dtype=Q.dtype)[:, None]
    levels = (ordered.cumsum(dim=0) - 1) / counts
    last = ((ordered > levels).sum(dim=0, keepdim=True) - 1).clamp_min(0)  # negative only where Q is not finite
    return (Q - levels.gather(0, last)).clamp_min(0)
