"""The base class of all methods: a classifier of the clean label, an optional transition matrix, training phases."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer

from volmin import estimation
from volmin.data.loaders import Batch
from volmin.exceptions import InputError
from volmin.training import Phase, Recipe, Selection
from volmin.transition import apply_transition


class Method(nn.Module):
    """A method that learns a classifier of the clean label from noisy labels.

    A subclass is one file in ``volmin/methods``. Its options are the keyword-only arguments of its constructor.

    Args:
        net: Network that gives logits.
        num_classes: Number of classes C.
    """

    estimates_transition: ClassVar[bool] = False
    """Whether ``transition`` gives an estimate of T."""
    needs: ClassVar[str] = "noisy labels only"
    """What the method requires, as listed by ``volmin list methods``."""
    recipe_changes: ClassVar[Mapping[str, Any]] = {}
    """Fields of ``Recipe`` in which the authors' settings differ from the recipe of a data set."""

    def __init__(self, net: nn.Module, num_classes: int) -> None:
        super().__init__()
        if num_classes < 2:
            raise InputError(f"num_classes must be at least 2, but is {num_classes}.")
        self.net, self.num_classes = net, num_classes

    def forward(self, x: Tensor) -> Tensor:
        """(B, C) logits of the clean label."""
        return self.net(x)

    def networks(self) -> list[nn.Module]:
        """The networks that compute logits, to which mixed precision applies; everything else stays in single."""
        return [self.net]

    def transition(self, x: Tensor | None = None) -> Tensor | None:
        """The estimate of T, (C, C); given x, it may be (B, C, C). None if the method has none."""
        return None

    def transitions(self) -> Tensor | None:
        """The T of each annotator, (M, R, C), for a method that learns from several. None if the method has none."""
        return None

    def phases(self, recipe: Recipe) -> list[Phase]:
        """Descriptions of the phases of training. Calling this builds nothing."""
        raise NotImplementedError

    @classmethod
    def author_settings(cls, *, lengths: bool) -> dict[str, Any]:
        """``recipe_changes``; the epochs and milestones, chosen for the published data, only with ``lengths``."""
        left_out = () if lengths else ("epochs", "milestones")
        return {name: value for name, value in cls.recipe_changes.items() if name not in left_out}

    def default_recipe(self) -> Recipe:
        """The default recipe with the settings of the method's authors."""
        return Recipe(**self.author_settings(lengths=True))

    def clean_log_probs(self, x: Tensor) -> Tensor:
        """(B, C) log posteriors of the clean label, ``log h``."""
        return F.log_softmax(self(x), dim=1)

    def noisy_log_probs(self, x: Tensor) -> Tensor:
        """(B, C) log posteriors of the noisy label, ``log T h``, by which noisy validation data scores an epoch.

        A method with a T for each of M annotators gives (B, M, C).
        """
        log_clean = self.clean_log_probs(x)
        T = self.transition(x)
        if T is None:
            return log_clean
        return apply_transition(log_clean.exp(), T).clamp_min(torch.finfo(log_clean.dtype).tiny).log()

    def cross_entropy(self, batch: Batch, epoch: int) -> Tensor:
        """Cross-entropy of h on the noisy labels: the loss of plain training."""
        return F.cross_entropy(self(batch.x), batch.y)

    def network_phase(
        self,
        name: str,
        recipe: Recipe,
        loss: Callable[[Batch, int], Tensor],
        *networks: nn.Module,
        prepare: Callable[[Iterable[Batch]], None] | None = None,
    ) -> Phase:
        """A phase that trains networks (``self.net`` by default) with the recipe's length, optimiser and schedule."""

        def optimizers() -> list[Optimizer]:
            return [recipe.network_optimizer(*(networks or (self.net,)))]

        return Phase(name, recipe.epochs, loss, optimizers, recipe.learning_rate_schedule(), prepare)

    def plain_phase(self, name: str, recipe: Recipe, selection: Selection | None = None) -> Phase:
        """Plain training of ``self.net`` by cross-entropy on the noisy labels."""
        return replace(self.network_phase(name, recipe, self.cross_entropy), selection=selection, plain=recipe)

    def warm_up_phase(self, recipe: Recipe, share: float, selection: Selection | None = None) -> Phase:
        """Plain training for a share of the recipe's epochs."""
        return self.plain_phase("warm-up", replace(recipe, epochs=epochs_of(share, recipe)), selection)

    def estimate_from_posteriors(self, batches: Iterable[Batch], estimator: estimation.EstimatorName) -> Tensor:
        """(C, C) T, estimated from the network's posteriors of the training inputs and their noisy labels."""
        probs, labels = collect(batches, lambda x: self(x).softmax(1))
        T = estimation.estimate_transition(probs, labels, estimator)
        return torch.as_tensor(T, dtype=torch.float32)


def epochs_of(share: float, recipe: Recipe) -> int:
    """Number of epochs in a share of the recipe's, rounded up and at least one."""
    if share <= 0:
        raise InputError(f"The length of a phase must be a positive share of the epochs, but is {share}.")
    return max(1, math.ceil(share * recipe.epochs - 1e-9))


def collect(batches: Iterable[Batch], function: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    """``function`` of all inputs, (N, ...), and their noisy labels, (N,), on the CPU.

    Both come from one pass, since a user's loader may shuffle differently each time.
    """
    outputs, labels = zip(*((function(batch.x).float().cpu(), batch.y.cpu()) for batch in batches), strict=True)
    return torch.cat(outputs), torch.cat(labels)
