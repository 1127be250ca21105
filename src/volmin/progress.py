"""Progress of long work, reported through a callback of the caller.

The library calls ``progress(title, done, total)``. The command line passes a bar; ``verbose=True`` passes
``PlainProgress``; None reports nothing.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from volmin.formatting import duration, terminal_safe

Progress = Callable[[str, int, int], None]
"""(title, steps done, steps in total). Called with ``done = 0`` before the first step."""

Item = TypeVar("Item")


class PlainProgress:
    """Prints progress as plain lines on standard error, at most one every ``interval`` seconds."""

    def __init__(self, interval: float = 10) -> None:
        self.interval = interval
        self.started = self.last_line = time.monotonic()

    def __call__(self, title: str, done: int, total: int) -> None:
        now = time.monotonic()
        if done == 0:
            self.started = self.last_line = now
            return
        if now - self.last_line >= self.interval or done == total:
            self.last_line = now
            left = duration((total - done) * (now - self.started) / done)
            print(terminal_safe(f"{title}  {done}/{total}  {left} left"), file=sys.stderr)


def announce(title: str, progress: Progress | None) -> None:
    """Report work that has no steps."""
    if progress is not None:
        progress(title, 0, 1)


def tracked(items: Iterable[Item], title: str, total: int, progress: Progress | None) -> Iterator[Item]:
    """Yield the items and report after each of them."""
    if progress is not None:
        progress(title, 0, total)
    for done, item in enumerate(items, start=1):
        yield item
        if progress is not None:
            progress(title, done, total)
