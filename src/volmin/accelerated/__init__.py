"""Optional faster versions of networks, with the same parameters; a run records whether it used one.

Only ``volmin.experiments`` and the command line use this package. Results agree with those of ``volmin.networks`` up to
rounding. It requires numba (the extra ``speed``).
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from importlib.metadata import version
from importlib.util import find_spec

from torch import nn

from volmin.exceptions import InputError

__all__ = ["NETWORKS", "build", "is_available", "thread_share", "versions"]

NETWORKS = ("lenet5",)
"""Names of the networks that have an accelerated version."""


def is_available(network: str) -> bool:
    """Whether the named network has an accelerated version and numba is installed."""
    return network in NETWORKS and find_spec("numba") is not None


def build(network: str, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """The accelerated version of a network of ``volmin.networks.build``, with the same arguments."""
    if network not in NETWORKS:
        raise InputError(f"The network {network} has no accelerated version; these have one: {', '.join(NETWORKS)}.")
    if not is_available(network):
        raise InputError("Accelerated networks require numba: install it with pip install 'volmin[speed]'.")
    from volmin.accelerated.lenet import AcceleratedLeNet5
    from volmin.networks.registry import check_input

    check_input(network, input_shape)
    return AcceleratedLeNet5(num_classes)


def thread_share(module: nn.Module) -> AbstractContextManager[None]:
    """A context in which the compiled kernels of ``module``, if it has any, use torch's threads."""
    from volmin.accelerated import lenet

    return lenet.thread_share(module)


def versions() -> dict[str, str]:
    """Versions of the packages that accelerated results depend on."""
    return {"numba": version("numba")} if find_spec("numba") is not None else {}
