"""The base class of methods that train on examples of small loss.

Networks fit correct labels before they memorise wrong ones, so a small loss suggests a correct label.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from volmin.data.loaders import Batch
from volmin.exceptions import InputError
from volmin.methods.base import Method, epochs_of
from volmin.networks import reset_parameters
from volmin.training import Phase, Recipe

CO_TEACHING_RECIPE: Mapping[str, Any] = {
    "epochs": 200,
    "optimizer": "adam",
    "lr": 1e-3,
    "weight_decay": 0.0,
    "milestones": (),
    "schedule": "late_decay",
    "selection": "last",
}
"""Settings of Co-teaching and the methods it is compared with: no validation data, the last epochs are reported."""


class SmallLossMethod(Method):
    """A method that leaves out the examples of largest loss, as many as labels are wrong.

    The share of kept examples falls from 1 to ``1 - noise_rate`` over the first epochs. By default the rate is
    estimated by plain training, as one minus the mean diagonal of T from the confident joint, and the network is reset.

    Args:
        net: Network that gives logits.
        num_classes: Number of classes C.
        noise_rate: Share of wrong labels; estimated by plain training by default.
        ramp: Share of the epochs over which the share of kept examples falls.
        warm_up: Length of the plain training that estimates the noise rate, as a share of the epochs.
    """

    needs = "a noise rate (or estimates it)"
    recipe_changes: ClassVar[Mapping[str, Any]] = CO_TEACHING_RECIPE
    noise_rate: Tensor

    def __init__(self, net: nn.Module, num_classes: int, noise_rate: float | None, ramp: float, warm_up: float) -> None:
        super().__init__(net, num_classes)
        if noise_rate is not None and not 0 <= noise_rate < 1:
            raise InputError(f"noise_rate must be at least 0 and below 1, but is {noise_rate}.")
        self.register_buffer("noise_rate", torch.tensor(float(noise_rate or 0)))
        self.ramp, self.warm_up, self.estimates_rate = ramp, warm_up, noise_rate is None

    def loss(self, batch: Batch, keep: Tensor | float, done: float) -> Tensor:
        """The loss, given the share of examples to keep and the share of training that is done."""
        raise NotImplementedError

    def keep(self, epoch: int, ramp_epochs: int) -> Tensor:
        """The share of examples to keep: all in epoch 0, ``1 - noise_rate`` from epoch ``ramp_epochs - 1`` on."""
        return 1 - self.noise_rate * min(1.0, epoch / max(1, ramp_epochs - 1))

    def estimate_noise_rate(self, batches: Iterable[Batch]) -> None:
        """Estimate the noise rate from the network's posteriors, and reset the network."""
        # Of the estimators from posteriors, this one depends least on the length of training.
        T = self.estimate_from_posteriors(batches, "confident")
        self.noise_rate.copy_(1 - T.diagonal().mean())
        reset_parameters(self.net)

    def phases(self, recipe: Recipe) -> list[Phase]:
        ramp_epochs = epochs_of(self.ramp, recipe)

        def loss(batch: Batch, epoch: int) -> Tensor:
            return self.loss(batch, self.keep(epoch, ramp_epochs), epoch / recipe.epochs)

        if not self.estimates_rate:
            return [self.network_phase("train", recipe, loss, *self.networks())]
        return [
            self.warm_up_phase(recipe, self.warm_up, selection="accuracy"),
            self.network_phase("train", recipe, loss, *self.networks(), prepare=self.estimate_noise_rate),
        ]
