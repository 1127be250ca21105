"""Operations on any network: redrawing its weights, copying it, and its features before the last layer."""

from __future__ import annotations

import copy
from typing import TypeVar

import torch
from torch import Tensor, nn

from volmin.exceptions import InputError

Network = TypeVar("Network", bound=nn.Module)


def reset_parameters(net: nn.Module) -> None:
    """Redraw all parameters of ``net``, as its layers do when they are constructed."""
    before = {name: p.detach().clone() for name, p in net.named_parameters()}
    drawn = set()
    for name, module in net.named_modules():
        reset = getattr(module, "reset_parameters", None)
        if callable(reset):
            reset()
            drawn.add(name)
    # Constant parameters may stay the same; any others that did not change belong to no reset_parameters method.
    missed = [
        name
        for name, p in net.named_parameters()
        if name.rpartition(".")[0] not in drawn and torch.equal(p, before[name]) and p.unique().numel() > 1
    ]
    if missed:
        raise InputError(
            f"Cannot redraw the network's weights: {', '.join(missed)} did not change. "
            "Give the modules that own them a reset_parameters method."
        )


def fresh_copy(net: Network) -> Network:
    """A copy of ``net`` with redrawn weights."""
    twin = copy.deepcopy(net)
    reset_parameters(twin)
    return twin


def last_linear(net: nn.Module) -> nn.Linear:
    """The last linear layer, which computes the logits."""
    layers = [module for module in net.modules() if isinstance(module, nn.Linear)]
    if not layers:
        raise InputError("The network has no linear layer, so it has no features before one.")
    return layers[-1]


def features_and_logits(net: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """The input of the last linear layer, (B, D), and the logits, (B, C)."""
    seen: list[Tensor] = []
    handle = last_linear(net).register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    try:
        logits = net(x)
    finally:
        handle.remove()
    # Under autocast, the last layer gets its input in half precision.
    return seen[0].to(logits.dtype), logits
