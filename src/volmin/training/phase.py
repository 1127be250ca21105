"""A phase of training."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from volmin.data.loaders import Batch
from volmin.training.recipe import Recipe, Schedule, Selection


@dataclass(frozen=True)
class Phase:
    """A part of training with one loss. Describing a phase builds nothing; ``fit`` calls its functions."""

    name: str
    epochs: int
    loss: Callable[[Batch, int], Tensor]
    """From (batch, epoch of this phase) to a scalar."""
    optimizers: Callable[[], Sequence[Optimizer]]
    """Called when the phase starts. The phase trains exactly the parameters that these optimisers own."""
    schedule: Schedule | None = None
    prepare: Callable[[Iterable[Batch]], None] | None = None
    """Called once before the phase, in evaluation mode and without gradients, with the whole training set in order."""
    finish: Callable[[Iterable[Batch]], None] | None = None
    """Called once after the phase, with the weights that were selected, in evaluation mode and without gradients, with
    the held-out noisy data; not called if there are none."""
    selection: Selection | None = None
    """The phase's own rule; the recipe's by default."""
    plain: Recipe | None = None
    """The recipe, if the phase is plain training of ``method.net``. Then validation data scores h instead of T h, and
    checkpoints keep the weights that every rule selects, so that methods with other rules can continue from them."""


def selection_rule(phase: Phase, recipe: Recipe, changes: Mapping[str, Any]) -> Selection:
    """The rule that selects an epoch: the phase's, the recipe's, that of the method's authors, or the loss."""
    return phase.selection or recipe.selection or changes.get("selection") or "loss"
