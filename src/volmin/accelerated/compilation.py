"""Loops compiled for the processor they run on, where numba is installed (the extra ``speed``)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any, TypeVar

Loop = TypeVar("Loop", bound=Callable[..., Any])


@cache
def numba_is_here() -> bool:
    """Whether loops can be compiled; importing numba itself waits until one is called for."""
    return find_spec("numba") is not None


def compiled(loop: Loop) -> Loop:
    """The loop as machine code, kept beside its source.

    Its sums keep their order, and products are rounded before they are added. Were the compiler free in that, code that
    was compiled just now and the same code from the cache would differ in the last bit, and so would two equal runs.
    """
    return _machine_code(loop, False)


def compiled_freely(loop: Loop) -> Loop:
    """The same, with sums in the order that is fastest."""
    # Not-a-number and infinity keep their meaning: a training that diverges must be seen.
    return _machine_code(loop, {"contract", "reassoc", "nsz"})


def _machine_code(loop: Loop, fastmath: set[str] | bool) -> Loop:
    from numba import njit

    return njit(nogil=True, cache=True, error_model="numpy", fastmath=fastmath)(loop)  # pyright: ignore[reportReturnType]
