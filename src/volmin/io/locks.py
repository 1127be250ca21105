"""A lock that keeps other processes out of a folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from volmin.exceptions import BusyError


@contextmanager
def only_process(folder: Path, seconds: float = 0) -> Iterator[None]:
    """Keep other processes out of a folder; where one is at work for longer than ``seconds``, a ``BusyError`` says so.

    The operating system lifts the lock of a process that dies, so a folder is never left locked. What such a process
    was writing when it died is cleared away.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / ".lock", timeout=seconds)
    try:
        lock.acquire()
    except Timeout:
        raise BusyError(f"Another process is at work in {folder}: wait for it to end, or stop it.") from None
    try:
        for left_over in folder.glob(".*.tmp"):
            left_over.unlink(missing_ok=True)
        yield
    finally:
        Path(lock.lock_file).unlink(missing_ok=True)
        lock.release()


def is_busy(folder: Path) -> bool:
    """Whether another process is at work in a folder."""
    try:
        with only_process(folder):
            return False
    except BusyError:
        return True
