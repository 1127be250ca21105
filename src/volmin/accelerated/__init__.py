"""Optional faster drop-in networks with the same parameters; a run records whether it used one.

Only ``volmin.experiments`` and the command line use this package. Results agree with those of ``volmin.networks`` up to
rounding. Needs numba (the extra ``speed``).
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from importlib.metadata import version
from importlib.util import find_spec

from torch import nn

__all__ = ["NETWORKS", "build", "is_available", "thread_share", "versions"]

NETWORKS = ("lenet5",)
"""Names of the networks that have an accelerated version."""


def is_available(network: str) -> bool:
    """Whether the named network has an accelerated version and numba is installed."""
    return network in NETWORKS and find_spec("numba") is not None


def build(network: str, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """The accelerated version of ``volmin.networks.build``'s network."""
    from volmin.accelerated.lenet import AcceleratedLeNet5
    from volmin.networks.registry import check_input

    check_input(network, input_shape)
    return AcceleratedLeNet5(num_classes)


def thread_share(module: nn.Module) -> AbstractContextManager[None]:
    """A context that gives torch's threads to the compiled kernels, if ``module`` contains an accelerated network."""
    from volmin.accelerated import lenet

    return lenet.thread_share(module)


def versions() -> dict[str, str]:
    """Versions of the packages that accelerated results depend on."""
    return {"numba": version("numba")} if find_spec("numba") is not None else {}
