"""Compilation of loops by numba for the processor they run on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit

Loop = TypeVar("Loop", bound=Callable[..., Any])


def compiled(loop: Loop) -> Loop:
    """The loop compiled to machine code, cached beside its source. The compiler may reorder sums.

    NaN and infinity keep their meaning, so that a diverging training is detected.
    """
    return njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract", "reassoc", "nsz"})(loop)  # pyright: ignore[reportReturnType]
