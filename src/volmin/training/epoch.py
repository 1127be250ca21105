"""One epoch of training: seeding, learning rates, steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from volmin.data.loaders import Batch
from volmin.training.devices import OneDevice
from volmin.training.precision import Precision

if TYPE_CHECKING:
    from lightning_fabric import Fabric

    from volmin.methods.base import Method


class Objective(nn.Module):
    """Routes a phase's loss through ``forward``, the one call that data-parallel training synchronises."""

    def __init__(self, method: Method, loss: Callable[[Batch, int], Tensor], precision: Precision) -> None:
        super().__init__()
        self.method, self.loss, self.precision = method, loss, precision

    def forward(self, batch: Batch, epoch: int) -> Tensor:
        with self.precision.applied_to(self.method.networks()):
            return self.loss(batch, epoch)


def train_epoch(
    objective: nn.Module,
    optimizers: Sequence[Optimizer],
    batches: Iterable[Batch],
    epoch: int,
    learning_rates: Callable[[int], None],
    fabric: OneDevice | Fabric,
    precision: Precision,
) -> float:
    """Take a step per batch; returns the mean loss.

    Args:
        objective: Module that maps (batch, epoch) to the loss.
        optimizers: Optimisers to step.
        batches: Batches of the epoch.
        epoch: Number of the epoch within its phase.
        learning_rates: Function that sets the learning rates before a step, given its number.
        fabric: Device or devices.
        precision: Arithmetic of the step.
    """
    objective.train()
    owned = parameters_of(optimizers)
    total, count = torch.zeros((), device=fabric.device), 0
    for step, batch in enumerate(batches):
        learning_rates(step)
        loss = objective(batch, epoch)
        for parameter in owned:  # zero_grad(set_to_none=True), inlined
            parameter.grad = None
        precision.step(loss, optimizers, fabric.backward)
        # Summed on the device: reading the value here would wait for the device in every step.
        total += loss.detach() * len(batch.y)
        count += len(batch.y)
    return total.item() / max(1, count)


def seed_generator(*key: int) -> int:
    """Seed torch's global generator from the key alone, so that no random state has to be stored; returns the seed."""
    seed = 0
    for number in key:
        seed = (seed * 1_000_003 + number + 2) % (2**63 - 25)
    if torch.accelerator.is_available():
        torch.manual_seed(seed)
    else:  # torch.manual_seed would also queue the seeds of devices that do not exist, which takes a millisecond
        torch.default_generator.manual_seed(seed)
    return seed


def set_learning_rates(optimizers: Sequence[Optimizer], factor: float) -> None:
    """Set every learning rate to ``factor`` times its initial value."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group.setdefault("initial_lr", group["lr"]) * factor


def train_only(method: nn.Module, optimizers: Sequence[Optimizer]) -> None:
    """Freeze every parameter that no optimiser owns."""
    owned = {id(parameter) for parameter in parameters_of(optimizers)}
    for parameter in method.parameters():
        parameter.requires_grad_(id(parameter) in owned)


def parameters_of(optimizers: Sequence[Any]) -> list[nn.Parameter]:
    """The parameters that the optimisers own."""
    return [p for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]]


@contextmanager
def requires_grad_restored(method: nn.Module) -> Iterator[None]:
    """Undo on exit what ``train_only`` has frozen."""
    before = [(parameter, parameter.requires_grad) for parameter in method.parameters()]
    try:
        yield
    finally:
        for parameter, flag in before:
            parameter.requires_grad_(flag)
