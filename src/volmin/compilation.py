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
    """The loop as machine code, kept beside its source."""
    from numba import njit

    # Not-a-number and infinity keep their meaning: a training that diverges must be seen.
    return njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract", "reassoc", "nsz"})(loop)  # pyright: ignore[reportReturnType]
