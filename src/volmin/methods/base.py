"""What a method is: a classifier of the clean label, maybe a transition matrix, and phases of training."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from types import UnionType
from typing import Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from volmin import estimation
from volmin.data.loaders import Batch
from volmin.exceptions import InputError
from volmin.training import Phase, Recipe, Selection
from volmin.transition import apply_transition


class Method(nn.Module):
    """A way to learn a classifier of the clean label from noisy labels.

    A subclass is one file in ``volmin/methods``. Its options are the keyword-only arguments of its constructor.
    """

    estimates_transition: ClassVar[bool] = False
    needs: ClassVar[str] = "noisy labels only"
    recipe_changes: ClassVar[Mapping[str, Any]] = {}
    """What the method's authors do otherwise than the recipe of a data set: fields of ``Recipe``."""

    def __init__(self, net: nn.Module, num_classes: int) -> None:
        super().__init__()
        if num_classes < 2:
            raise InputError(f"num_classes must be at least 2, but is {num_classes}.")
        self.net, self.num_classes = net, num_classes

    def forward(self, x: Tensor) -> Tensor:
        """(B, C) logits of the clean label."""
        return self.net(x)

    def transition(self, x: Tensor | None = None) -> Tensor | None:
        """The estimate of T, (C, C); given x, it may be (B, C, C). None where the method has none."""
        return None

    def phases(self, recipe: Recipe) -> list[Phase]:
        """How the method trains."""
        raise NotImplementedError

    def noisy_log_probs(self, x: Tensor) -> Tensor:
        """(B, C) log posteriors of the noisy label, ``log T h``: what noisy validation data can judge."""
        log_clean = F.log_softmax(self(x), dim=1)
        T = self.transition(x)
        if T is None:
            return log_clean
        return apply_transition(log_clean.exp(), T).clamp_min(torch.finfo(log_clean.dtype).tiny).log()

    def cross_entropy(self, batch: Batch, epoch: int) -> Tensor:
        """Plain training on the noisy labels: the first phase of many methods."""
        return F.cross_entropy(self(batch.x), batch.y)

    def warm_up_phase(self, recipe: Recipe, share: float, selection: Selection | None = None, **changes: Any) -> Phase:
        """Plain training for a share of the recipe's epochs; ``changes`` are other values for fields of the recipe."""
        epochs = epochs_of(share, recipe)
        optimizers = [recipe.network_optimizer(self.net, **changes)]
        schedule = recipe.learning_rate_schedule(epochs)
        return Phase("warm-up", epochs, self.cross_entropy, optimizers, schedule, selection=selection)

    def estimate_from_posteriors(self, batches: Iterable[Batch], estimator: estimation.EstimatorName) -> Tensor:
        """(C, C) T by a simple estimator from what the network makes of the training inputs."""
        probs, labels = collect(batches, lambda x: self(x).softmax(1))
        T = estimation.estimate_transition(probs, labels, estimator)
        return torch.as_tensor(T, dtype=torch.float32)


def epochs_of(share: float, recipe: Recipe) -> int:
    """A share of the recipe's epochs: rounded up, at least one."""
    if share <= 0:
        raise InputError(f"The length of a phase must be a positive share of the epochs, but is {share}.")
    return max(1, math.ceil(share * recipe.epochs - 1e-9))


def collect(batches: Iterable[Batch], function: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    """``function`` of all inputs and their noisy labels, (N, ...) and (N,), on the CPU.

    Both come from one pass, since a user's loader may shuffle anew each time.
    """
    outputs, labels = zip(*((function(batch.x).float().cpu(), batch.y.cpu()) for batch in batches), strict=True)
    return torch.cat(outputs), torch.cat(labels)


def option_defaults(method: type[Method]) -> dict[str, Any]:
    """The options of a method with their default values."""
    parameters = inspect.signature(method.__init__).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}


def check_options(method: type[Method], options: Mapping[str, Any]) -> None:
    """Refuse options that the method does not have, and values of another type than it takes."""
    known, hints = option_defaults(method), get_type_hints(method.__init__)
    for name, value in options.items():
        if name not in known:
            have = f"It has: {', '.join(known)}." if known else "It has none."
            raise InputError(f"{method.__name__} has no option {name!r}. {have}")
        hint = hints.get(name, Any)
        if not _fits(value, hint):
            wanted = getattr(hint, "__name__", str(hint)) if get_origin(hint) is None else str(hint)
            raise InputError(f"The option {name} of {method.__name__} takes {wanted}, but was given {value!r}.")


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is of the annotated type; a whole number is a number, true and false are not."""
    if hint is Any:
        return True
    if hint in (int, float):
        return isinstance(value, int if hint is int else (int, float)) and not isinstance(value, bool)
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if get_origin(hint) in (Union, UnionType):
        return any(_fits(value, choice) for choice in get_args(hint))
    return isinstance(value, get_origin(hint) or hint)
