"""Processes that start with the package imported, so that hundreds of them can be started and killed."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from functools import cache
from multiprocessing.connection import Connection
from typing import Any

PRELOADED = [
    *("torture.formats", "volmin.cli.app", "volmin.experiments.grid", "volmin.auditing", "volmin.report.figures"),
    # Imports that happen inside the commands.
    *("sklearn.datasets", "sklearn.linear_model", "torch._dynamo", "matplotlib.backends.backend_agg"),
]


class ProcessDiedError(Exception):
    """A process ended without a result."""


@cache
def context() -> Any:
    """A fork server that only imports, so that its children start at once and without other state."""
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload(PRELOADED)
    return found


def in_a_process(function: Callable[..., Any], *arguments: Any, seconds: float) -> Any:
    """The result of a function in another process; a ``ProcessDiedError`` if that dies or does not end."""
    ours, theirs = context().Pipe(duplex=False)
    process = context().Process(target=_answer, args=(theirs, function, arguments))
    process.start()
    theirs.close()
    try:
        if not ours.poll(seconds):
            raise ProcessDiedError(f"the process did not end within {seconds:g} s")
        return ours.recv()
    except EOFError:
        process.join()
        raise ProcessDiedError(f"the process ended with exit code {process.exitcode}") from None
    finally:
        process.kill()
        process.join()


def _answer(connection: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    connection.send(function(*arguments))
    connection.close()
