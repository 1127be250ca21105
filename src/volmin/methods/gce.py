"""Generalised cross-entropy: a loss between cross-entropy, which trains fast, and mean absolute error, which is robust.

    L_q = (1 - h(x)[noisy y]^q) / q

The truncated form leaves out the examples whose label had a probability of at most k under the best network so far;
this selection is renewed every few epochs.

Reference: Zhang, Sabuncu, "Generalized Cross Entropy Loss for Training Deep Neural Networks with Noisy Labels",
NeurIPS 2018.

Deviations from the public code: noisy validation data, not test data, selects the best network, and training continues
from it after each selection of examples.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from volmin.data.loaders import Batch
from volmin.exceptions import InputError
from volmin.losses import cross_entropies, generalized_cross_entropy
from volmin.methods.base import Method, epochs_of
from volmin.training import Phase, Recipe, Schedule


class GCE(Method):
    """Trains by a loss between cross-entropy and mean absolute error, optionally without the examples it does not fit.

    Args:
        net: Network that gives logits.
        num_classes: Number of classes C.
        q: Exponent of the loss: cross-entropy in the limit 0, mean absolute error at 1.
        truncate: Probability k of its label up to which an example is left out; 0.5 in the paper, none by default.
        start: Share of the epochs before examples are left out.
        refresh: Share of the epochs between two selections of examples.
    """

    needs = "noisy labels only"
    recipe_changes: ClassVar[Mapping[str, Any]] = {"epochs": 120, "milestones": (40, 80), "selection": "accuracy"}
    kept: Tensor

    def __init__(
        self,
        net: nn.Module,
        num_classes: int,
        *,
        q: float = 0.7,
        truncate: float | None = None,
        start: float = 0.33,
        refresh: float = 0.08,
    ) -> None:
        super().__init__(net, num_classes)
        if not 0 < q <= 1:
            raise InputError(f"q must be above 0 and at most 1, but is {q}.")
        self.q, self.truncate, self.start, self.refresh = q, truncate, start, refresh
        self.register_buffer("kept", torch.ones(0))
        self.register_load_state_dict_pre_hook(_resize_kept)

    def losses(self, batch: Batch) -> Tensor:
        """``L_q`` of each example, (B,)."""
        return generalized_cross_entropy(-cross_entropies(self(batch.x), batch.y), self.q)

    def loss(self, batch: Batch, epoch: int) -> Tensor:
        return self.losses(batch).mean()

    def truncated_loss(self, batch: Batch, epoch: int) -> Tensor:
        return (self.kept[_index(batch)] * (self.losses(batch) - self.bound)).mean()

    @property
    def bound(self) -> float:
        """The loss at a probability of k, from which on examples are left out."""
        assert self.truncate is not None
        return (1 - self.truncate**self.q) / self.q

    def select(self, batches: Iterable[Batch]) -> None:
        """Keep the examples whose noisy label has a probability above k."""
        index, kept = zip(*((_index(batch), self.losses(batch) < self.bound) for batch in batches), strict=True)
        rows = torch.cat(index)
        self.kept = torch.zeros(int(rows.max()) + 1, device=rows.device).scatter(0, rows, torch.cat(kept).float())

    def phases(self, recipe: Recipe) -> list[Phase]:
        if self.truncate is None:
            return [self.network_phase("train", recipe, self.loss)]

        @cache
        def optimizers() -> list[Optimizer]:
            # One optimiser for all phases, so that its momentum is kept.
            return [recipe.network_optimizer(self.net)]

        schedule = recipe.learning_rate_schedule()
        start, length = epochs_of(self.start, recipe), epochs_of(self.refresh, recipe)
        return [Phase("train", start, self.loss, optimizers, schedule)] + [
            Phase(
                "truncated",
                min(length, recipe.epochs - begin),
                self.truncated_loss,
                optimizers,
                _later(schedule, begin),
                prepare=self.select,
            )
            for begin in range(start, recipe.epochs, length)
        ]


def _later(schedule: Schedule | None, begin: int) -> Schedule | None:
    """The schedule of a phase that begins after ``begin`` epochs."""
    return None if schedule is None else lambda done: schedule(begin + done)


def _index(batch: Batch) -> Tensor:
    if batch.index is None:
        raise InputError(
            "Truncated GCE keeps a list of examples, but the training loader gives no index: return (x, y, index) from "
            "it, or use volmin.data.TensorLoader."
        )
    return batch.index.long()


def _resize_kept(method: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """Give ``kept`` the length that it has in a checkpoint; a new method does not know the number of examples."""
    if isinstance(method, GCE) and f"{prefix}kept" in state:
        method.kept = torch.empty_like(state[f"{prefix}kept"], device=method.kept.device)
