"""The choice between a network and its accelerated version; nothing else here imports ``volmin.accelerated``."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from torch import nn

from volmin import accelerated, networks
from volmin.exceptions import InputError


def choose(network: str, wanted: bool | None) -> bool:
    """Whether to accelerate a network: as ``wanted``, or where an accelerated version is available if that is None."""
    networks.check_name(network)
    available = accelerated.is_available(network)
    if wanted and not available:
        raise InputError(
            f"An accelerated version of the network {network} is not available: leave out --accelerate, or install "
            '"volmin[speed]" if the network is lenet5.'
        )
    return available if wanted is None else wanted


def build_network(name: str, input_shape: tuple[int, ...], num_classes: int, accelerate: bool) -> nn.Module:
    """The named network or its accelerated version, which has the same parameters."""
    build = accelerated.build if accelerate else networks.build
    return build(name, input_shape, num_classes)


def thread_share(module: nn.Module, accelerate: bool) -> AbstractContextManager[object]:
    """A context for the training of ``module``, in which accelerated layers get their share of the threads."""
    return accelerated.thread_share(module) if accelerate else nullcontext()


def versions(accelerate: bool) -> dict[str, str]:
    """Versions of the packages that an accelerated network uses."""
    return accelerated.versions() if accelerate else {}
