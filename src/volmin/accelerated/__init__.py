"""Optional faster drop-in networks. A run records whether it used one."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from torch import nn


def is_available(network: str) -> bool:
    """Whether there is an accelerated version of the named network and numba is installed."""
    return False


def build(network: str, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """The accelerated version of the named network, with the parameter names of ``networks.build``."""
    raise NotImplementedError


def thread_share(module: nn.Module) -> AbstractContextManager[object]:
    """A context for the training of ``module``, in which accelerated layers get their share of the threads."""
    return nullcontext()


def versions() -> dict[str, str]:
    """Versions of the packages that the accelerated networks use."""
    return {}
