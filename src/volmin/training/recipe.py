"""How a network is optimised: optimisers, learning rates, schedules and the selection of an epoch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from torch import nn
from torch.optim import SGD, Adam, Optimizer

from volmin.exceptions import InputError

Selection = Literal["loss", "accuracy", "last"]
Schedule = Callable[[float], float]
"""From the number of epochs done (a fraction within an epoch) to the factor of the learning rate."""

_CHOICES: Mapping[str, tuple[str | None, ...]] = {
    "optimizer": ("sgd", "adam"),
    "transition_optimizer": ("sgd", "adam"),
    "schedule": ("steps", "one_cycle", "late_decay"),
    "selection": ("loss", "accuracy", "last", None),
}


@dataclass(frozen=True)
class Recipe:
    """How a network is optimised, whatever the method."""

    epochs: int = 60
    batch_size: int = 128
    optimizer: Literal["sgd", "adam"] = "sgd"
    lr: float = 0.01
    momentum: float = 0.9
    weight_decay: float = 1e-4
    milestones: tuple[int, ...] = ()
    """Epochs after which the learning rates are divided by ten."""
    schedule: Literal["steps", "one_cycle", "late_decay"] = "steps"
    transition_optimizer: Literal["sgd", "adam"] = "adam"
    transition_lr: float = 0.01
    selection: Selection | None = None
    """Which epoch is kept: the best noisy-validation loss or accuracy, or the last; None for the rule of the method's
    authors, or else the loss."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "milestones", tuple(self.milestones))
        for name in ("epochs", "batch_size"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise InputError(f"{name} must be a whole number of at least 1, but is {value!r}.")
        for name in ("lr", "transition_lr", "momentum", "weight_decay"):
            value = getattr(self, name)
            if not 0 <= value < math.inf:
                raise InputError(f"{name} must be a number of at least 0, but is {value!r}.")
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                wanted = ", ".join(choice for choice in choices if choice)
                raise InputError(f"{name} must be one of {wanted}, but is {getattr(self, name)!r}.")

    @classmethod
    def for_rows(cls, count: int, **changes: Any) -> Recipe:
        """A recipe for ``count`` rows: about 3,000 steps in 5 to 200 epochs; ``changes`` override its fields."""
        defaults = {"lr": 0.05, "weight_decay": 1e-3, "batch_size": min(1024, max(16, count // 100))}
        recipe = cls(**defaults | changes)
        if "epochs" in changes:
            return recipe
        steps = -(-count // recipe.batch_size)
        return replace(recipe, epochs=min(200, max(5, 3000 // steps)))

    def network_optimizer(self, *modules: nn.Module, **changes: Any) -> Optimizer:
        """The optimiser of networks; ``changes`` override fields of this recipe."""
        recipe = replace(self, **changes)
        parameters = [p for module in modules for p in module.parameters()]
        if recipe.optimizer == "adam":
            return Adam(parameters, recipe.lr, weight_decay=recipe.weight_decay, fused=True)
        return SGD(parameters, recipe.lr, recipe.momentum, weight_decay=recipe.weight_decay, fused=True)

    def transition_optimizer_for(self, *modules: nn.Module) -> Optimizer:
        """The optimiser of transition matrices, without weight decay, which would pull T towards more noise."""
        parameters = [p for module in modules for p in module.parameters()]
        if self.transition_optimizer == "adam":
            return Adam(parameters, self.transition_lr, fused=True)
        return SGD(parameters, self.transition_lr, self.momentum, fused=True)

    def learning_rate_schedule(self, epochs: int | None = None) -> Schedule | None:
        """The schedule over ``epochs`` (the recipe's by default)."""
        if self.schedule == "one_cycle":
            return one_cycle(epochs or self.epochs)
        if self.schedule == "late_decay":
            return late_decay(epochs or self.epochs)
        return steps(self.milestones) if self.milestones else None


def steps(milestones: Sequence[float], gamma: float = 0.1) -> Schedule:
    """Multiply the learning rate by ``gamma`` at each milestone."""
    return lambda done: gamma ** sum(done >= milestone for milestone in milestones)


def one_cycle(epochs: float, warm_up: float = 0.2) -> Schedule:
    """Rise linearly to the peak over the first ``warm_up`` of training, then fall linearly to zero."""
    peak = warm_up * epochs
    return lambda done: (done + 1e-3) / peak if done < peak else max(0.0, (epochs - done) / (epochs - peak))


def late_decay(epochs: float, hold: float = 0.4) -> Schedule:
    """Stay at the peak over the first ``hold`` of training, then fall linearly to zero."""
    return lambda done: min(1.0, (epochs - done) / (epochs - hold * epochs))
