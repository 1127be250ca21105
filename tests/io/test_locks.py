import fcntl
import os
import subprocess
import sys
import threading
import time

import pytest

from volmin.exceptions import BusyError
from volmin.io.locks import is_busy, only_process

HAMMER = """
import sys
from pathlib import Path
from volmin.io.locks import only_process

folder = Path(sys.argv[1])
for _ in range(int(sys.argv[2])):
    with only_process(folder, seconds=60):
        counter = folder / "counter"
        counter.write_text(str(int(counter.read_text()) + 1))
"""

HOLDER = """
import sys
from pathlib import Path
from volmin.io.locks import only_process

with only_process(Path(sys.argv[1])):
    print("locked", flush=True)
    sys.stdin.read()
"""


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_second_lock_on_a_folder_is_refused(tmp_path):
    with only_process(tmp_path / "run"), pytest.raises(BusyError, match="Another process is at work"):
        only_process(tmp_path / "run").__enter__()
    with only_process(tmp_path / "run"):
        pass
    assert names(tmp_path / "run") == []


def test_temporary_files_of_a_killed_process_are_removed(tmp_path):
    (tmp_path / ".result.json.4711.tmp").write_text("{")
    with only_process(tmp_path):
        assert names(tmp_path) == [".lock"]


def test_is_busy_while_the_folder_is_locked(tmp_path):
    with only_process(tmp_path):
        assert is_busy(tmp_path)
    assert not is_busy(tmp_path)


def test_is_busy_creates_and_deletes_nothing(tmp_path):
    assert not is_busy(tmp_path / "missing" / "run")
    assert names(tmp_path) == []
    (tmp_path / ".result.json.4711.tmp").write_text("{")
    assert not is_busy(tmp_path)
    assert names(tmp_path) == [".result.json.4711.tmp"]
    (tmp_path / ".lock").touch()  # as a killed process leaves it
    assert not is_busy(tmp_path)
    assert names(tmp_path) == [".lock", ".result.json.4711.tmp"]


def test_is_busy_does_not_make_a_free_folder_look_busy(tmp_path):
    """is_busy holds a shared lock for an instant, which neither another call nor only_process may mistake."""
    (tmp_path / ".lock").touch()
    asked = os.open(tmp_path / ".lock", os.O_RDONLY)
    fcntl.flock(asked, fcntl.LOCK_SH)
    assert not is_busy(tmp_path)
    answered = threading.Timer(0.01, os.close, [asked])
    answered.start()
    with only_process(tmp_path):
        assert is_busy(tmp_path)
    answered.join()


def test_lock_on_a_deleted_file_does_not_count(tmp_path, monkeypatch):
    """A process opens the lock file just before its holder deletes it; a lock on it would exclude no one."""
    first, lock = only_process(tmp_path), fcntl.flock
    first.__enter__()

    def holder_ends_before_this_call(descriptor, operation):
        monkeypatch.setattr(fcntl, "flock", lock)
        first.__exit__(None, None, None)
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", holder_ends_before_this_call)
    with only_process(tmp_path), pytest.raises(BusyError):
        only_process(tmp_path).__enter__()
    assert names(tmp_path) == []


def test_end_of_a_process_keeps_the_lock_of_the_next(tmp_path):
    """Somebody deletes a folder in use, and another process starts in a new one of the same name."""
    first, second = only_process(tmp_path / "run"), only_process(tmp_path / "run")
    first.__enter__()
    (tmp_path / "run").rename(tmp_path / "gone")
    second.__enter__()
    first.__exit__(None, None, None)
    assert is_busy(tmp_path / "run")
    second.__exit__(None, None, None)


def test_many_processes_never_hold_the_lock_together(tmp_path):
    (tmp_path / "counter").write_text("0")
    command = [sys.executable, "-c", HAMMER, str(tmp_path), "200"]
    workers = [subprocess.Popen(command) for _ in range(3)]
    while any(worker.poll() is None for worker in workers):
        is_busy(tmp_path)
        time.sleep(0.001)
    assert [worker.returncode for worker in workers] == [0, 0, 0]
    assert (tmp_path / "counter").read_text() == "600"
    assert names(tmp_path) == ["counter"]


def test_lock_of_a_killed_process_is_released(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        assert is_busy(tmp_path)
        holder.kill()
    assert not is_busy(tmp_path)
    with only_process(tmp_path):
        assert is_busy(tmp_path)
