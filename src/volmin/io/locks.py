"""A lock that admits one process at a time to a folder."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from volmin.exceptions import BusyError

try:
    import fcntl
except ImportError:  # Windows: folders are not locked there
    fcntl = None

_SHORTEST_WAIT, _POLL = 0.1, 0.01
"""Seconds. ``is_busy`` holds a shared lock for an instant, which must not be mistaken for a process at work."""


@contextmanager
def only_process(folder: Path, seconds: float = 0) -> Iterator[None]:
    """Exclude other processes from a folder, which is created if missing.

    The operating system releases the lock of a process that dies, so no folder stays locked. Temporary files that such
    a process left are removed.

    Args:
        folder: Folder to lock.
        seconds: Longest time to wait for another process before a ``BusyError`` is raised.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if fcntl is None:
        yield
        return
    path = folder / ".lock"
    deadline = time.monotonic() + max(seconds, _SHORTEST_WAIT)
    while (descriptor := _try_lock(path)) is None:
        if time.monotonic() >= deadline:
            raise BusyError(f"Another process is at work in {folder}: wait for it to end, or stop it.")
        time.sleep(_POLL)
    try:
        for leftover in folder.glob(".*.tmp"):
            leftover.unlink(missing_ok=True)
        yield
    finally:
        # Deleting the file while it is locked is safe, because _try_lock accepts a lock only on the file that is at
        # the path: a process that opened the deleted file finds another one there, or none, and tries again. The check
        # keeps the lock of a process that started after somebody deleted this folder.
        if _is_at(descriptor, path):
            path.unlink(missing_ok=True)
        _unlock(descriptor)


def is_busy(folder: Path) -> bool:
    """Whether a process is working in a folder. Creates and deletes nothing."""
    if fcntl is None:
        return False
    try:
        descriptor = os.open(folder / ".lock", os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        return not _flock(descriptor, exclusive=False)
    finally:
        os.close(descriptor)


def _try_lock(path: Path) -> int | None:
    """The descriptor of the locked file at ``path``, or None if another process holds it."""
    # Network file systems grant an exclusive lock only on a file that is open for writing.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    if _flock(descriptor, exclusive=True) and _is_at(descriptor, path):
        return descriptor
    os.close(descriptor)
    return None


def _flock(descriptor: int, exclusive: bool) -> bool:
    assert fcntl is not None
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # which of them depends on the file system
        return False
    return True


def _unlock(descriptor: int) -> None:
    assert fcntl is not None
    # Explicitly: forked processes that still have the descriptor open would otherwise keep the lock.
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether an open file is the one at ``path``. Its inode number cannot be reused while it is open."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
