"""Text and tables on the terminal."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from rich.console import Console
from rich.table import Table

from volmin.formatting import terminal_safe

_silent = ContextVar("silent", default=False)


@contextmanager
def silenced(silent: bool) -> Iterator[None]:
    """Whether ``say`` prints nothing, as with ``--quiet`` and ``--json``; warnings and errors are printed."""
    token = _silent.set(silent)
    try:
        yield
    finally:
        _silent.reset(token)


def console() -> Console:
    """A console on standard output that does not colour numbers by itself."""
    return Console(highlight=False)


def say(text: str, style: str | None = None) -> None:
    """Print lines that may contain file names or labels: neither control characters nor markup have an effect.

    A terminal gets prose wrapped between words. Indented lines are commands to copy, or wrapped already, and other
    programs read whole lines.
    """
    if _silent.get():
        return
    shown = console()
    for line in terminal_safe(text).split("\n"):
        whole = line.startswith("  ") or not shown.is_terminal
        shown.print(line, markup=False, soft_wrap=whole, style=style)


def plain_table(*columns: str, title: str | None = None, wrap: Collection[str] = ()) -> Table:
    """A table without lines whose columns do not wrap, except those in ``wrap``."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, header_style="dim", no_wrap=column not in wrap, overflow="fold")
    return table
