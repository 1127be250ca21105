"""Precision of the networks' arithmetic. Posteriors, losses and everything about T stay in single precision.

Mixed precision applies to the networks alone: they compute in half precision, with weights that are kept in single
precision, and their outputs are converted back before T is applied. T is sensitive to rounding: with eight bits, its
columns would not even sum to one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from volmin.exceptions import InputError

PrecisionName = Literal["32", "bf16-mixed", "16-mixed"]

_TYPES = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}


class Precision:
    """The arithmetic of a training: where networks use half precision, and how a step is taken.

    Args:
        name: "32" for single precision, "bf16-mixed" for bfloat16, or "16-mixed" for float16, whose losses are scaled
            so that small gradients do not vanish.
        device: Device of the training.
    """

    def __init__(self, name: PrecisionName, device: torch.device) -> None:
        self.name, self.device, self.dtype = check_precision(name), device, _TYPES.get(name)
        self.scaler = torch.amp.GradScaler(device.type) if name == "16-mixed" else None

    def applied_to(self, networks: Sequence[nn.Module]) -> AbstractContextManager[object]:
        """A context in which these networks compute in this precision; their outputs are in single precision."""
        return nullcontext() if self.dtype is None else _half_precision(networks, self.device.type, self.dtype)

    def step(self, loss: Tensor, optimizers: Sequence[Optimizer], backward: Callable[[Tensor], None]) -> None:
        """Take a step of every optimiser; with float16, one whose gradients overflowed does not move."""
        if self.scaler is None:
            backward(loss)
            for optimizer in optimizers:
                optimizer.step()
            return
        backward(self.scaler.scale(loss))
        for optimizer in optimizers:
            self.scaler.unscale_(optimizer)  # before the hooks of the optimiser, which may clip gradients
            self.scaler.step(optimizer)
        # Once for all optimisers: they share a loss, and so its scale.
        self.scaler.update()

    def state(self) -> dict[str, Any]:
        """The state that a checkpoint keeps: the scale of the loss."""
        return {} if self.scaler is None else self.scaler.state_dict()

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the result of ``state``."""
        if self.scaler is not None and state:
            self.scaler.load_state_dict(state)


def check_precision(name: str) -> str:
    """Require the name of a precision."""
    if name not in get_args(PrecisionName):
        raise InputError(f"precision must be one of {', '.join(get_args(PrecisionName))}, but is {name!r}.")
    return name


@contextmanager
def _half_precision(networks: Sequence[nn.Module], device: str, dtype: torch.dtype) -> Iterator[None]:
    """Run each network under autocast for as long as the context is open.

    Hooks switch autocast on and off, since a method may call its networks from anywhere in its loss.
    """
    open_contexts: list[ExitStack] = []

    def enter(*_: Any) -> None:
        context = ExitStack()
        context.enter_context(torch.autocast(device, dtype))
        open_contexts.append(context)

    def leave(module: nn.Module, inputs: Any, output: Any) -> Any:
        open_contexts.pop().close()
        return output.float() if isinstance(output, Tensor) and output.dtype == dtype else output

    hooks = []
    for network in networks:
        hooks.append(network.register_forward_pre_hook(enter))
        hooks.append(network.register_forward_hook(leave, always_call=True))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
