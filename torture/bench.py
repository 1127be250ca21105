"""Commands on tiny data that can be killed at chosen moments, and the comparison of their results."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from torture.processes import context

Moment = Literal["half written", "before the renaming", "after the renaming"]
MOMENTS: tuple[Moment, ...] = ("half written", "before the renaming", "after the renaming")
SECONDS = 300
"""Time after which a command counts as hanging."""
_TIMES = ("seconds", "seconds_per_epoch", "seal", "versions")


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    output: str

    @property
    def refused(self) -> bool:
        """Whether it ended in a clear line without a traceback."""
        said = [line for line in self.output.splitlines() if line.startswith("volmin: ") or "did not finish" in line]
        return self.code in (1, 2) and bool(said) and "Traceback" not in self.output

    def __str__(self) -> str:
        return f"exit code {self.code}: {' '.join(self.output.split())[-200:]}"


@dataclass(frozen=True)
class Command:
    """A command of volmin with its arguments."""

    name: str
    arguments: tuple[str, ...]

    def start(self, out: Path, log: Path, kill_at: tuple[Moment, int] | None = None) -> Any:
        """Start the command as a process, to be killed at a moment of its n-th file if one is given."""
        process = context().Process(target=_work, args=((*self.arguments, "--out", str(out)), str(log), kill_at))
        process.start()
        return process

    def run(self, out: Path, kill_at: tuple[Moment, int] | None = None) -> Ended:
        """Run the command to its end."""
        with log_file() as log:
            return finish(self.start(out, log, kill_at), log)


def finish(process: Any, log: Path, seconds: float = SECONDS) -> Ended:
    """Wait for a process; one that hangs is killed, and its exit code is 124."""
    process.join(seconds)
    code = 124 if process.is_alive() else process.exitcode
    process.kill()
    process.join()
    return Ended(code, log.read_text(errors="replace"))


@contextmanager
def log_file() -> Iterator[Path]:
    """A temporary file for the output of a command."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "log").touch()
        yield Path(folder) / "log"


def _work(arguments: tuple[str, ...], log: str, kill_at: tuple[Moment, int] | None) -> None:
    """Run a command in this process, and kill it at a moment of its n-th file if one is given."""
    output = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    if kill_at is not None:
        _arm(*kill_at)
    sys.argv = ["volmin", *arguments]
    from volmin.cli import main

    main()


def _arm(moment: Moment, number: int) -> None:
    written, fsync, replace = 0, os.fsync, Path.replace

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def half(descriptor: int) -> None:
        nonlocal written
        written += 1
        if written == number and moment == "half written":
            os.ftruncate(descriptor, os.fstat(descriptor).st_size // 2)
            die()
        fsync(descriptor)

    def renamed(path: Path, target: Any) -> Path:
        if written == number and moment == "before the renaming":
            die()
        done = replace(path, target)
        if written == number and moment == "after the renaming":
            die()
        return done

    os.fsync, Path.replace = half, renamed  # type: ignore[assignment,method-assign]


def fingerprint(out: Path) -> dict[str, Any]:
    """The content of a folder that must be the same every time: everything but times and pictures."""
    return {str(path.relative_to(out)): _content(path) for path in sorted(out.rglob("*")) if path.is_file()}


def _content(path: Path) -> Any:
    if path.suffix in (".html", ".png"):
        return "a picture"
    if path.suffix == ".jsonl":
        return [_timeless(json.loads(line)) for line in path.read_text().splitlines()]
    if path.suffix == ".json":
        return _timeless(json.loads(path.read_text()))
    return path.read_bytes()


def _timeless(content: Any) -> Any:
    if isinstance(content, dict):
        return {key: _timeless(value) for key, value in content.items() if key not in (*_TIMES, "command")}
    return [_timeless(value) for value in content] if isinstance(content, list) else content


def half_written(out: Path) -> str:
    """What is wrong with the finished results below a folder; empty if nothing is."""
    from volmin import Audit
    from volmin.exceptions import VolminError
    from volmin.experiments.folder import read_result

    try:
        for path in out.rglob("result.json"):
            read_result(path.parent, files=True)
        for path in out.rglob("audit.json"):
            Audit.load(path.parent)
    except VolminError as error:
        return str(error)
    return ""


class Bench:
    """Commands on tiny data, with the undisturbed result of each."""

    def __init__(self, root: Path) -> None:
        self.root = root
        generator = np.random.default_rng(0)
        clean = np.arange(240) % 3
        labels = np.where(generator.random(240) < 0.2, (clean + 1) % 3, clean)
        x = 2 * np.eye(3)[clean] + 0.6 * generator.normal(size=(240, 3))
        table = root / "table.csv"
        lines = [f"{a:.4f},{b:.4f},{c:.4f},{'xyz'[label]}" for (a, b, c), label in zip(x, labels, strict=True)]
        table.write_text("\n".join(["a,b,c,label", *lines, ""]))
        reproduce = (
            *("reproduce", "table1", "--datasets", "digits", "--noises", "pair:0.35", "--seeds", "1"),
            *("--methods", "cross_entropy,volminnet", "--epochs", "3"),
        )
        self.commands = {
            "train": Command("volmin train", ("train", "--dataset", "digits", "--noise", "pair:0.35", "--epochs", "4")),
            "reproduce": Command("volmin reproduce", reproduce),
            "two jobs": Command("volmin reproduce --jobs 2", (*reproduce, "--jobs", "2")),
            "audit": Command("volmin audit", ("audit", str(table), "--label", "label", "--model", "logistic")),
        }

    @cache  # noqa: B019  (a process has one bench, for its whole life)
    def undisturbed(self, name: str) -> tuple[dict[str, Any], float]:
        """The fingerprint of a command's result, and the seconds that it takes."""
        out = self.fresh()
        start = time.perf_counter()
        ended = self.commands[name].run(out)
        seconds = time.perf_counter() - start
        if ended.code:
            raise RuntimeError(f"volmin {name} fails even undisturbed: {ended}")
        return fingerprint(out), seconds

    def fresh(self) -> Path:
        """A new path for a command's files."""
        return Path(tempfile.mkdtemp(dir=self.root)) / "out"

    def judge(self, name: str, out: Path, ended: Ended, *, may_refuse: bool) -> tuple[str, str]:
        """How a command that was run again ended: ``right`` (same bits), ``refused`` (if allowed) or ``failed``."""
        if ended.code == 0:
            found, expected = fingerprint(out), self.undisturbed(name)[0]
            if found == expected:
                return "right", ""
            other = sorted(file for file in found.keys() | expected.keys() if found.get(file) != expected.get(file))
            return "failed", f"{name}: other bits in {', '.join(other)}"
        return ("refused", "") if may_refuse and ended.refused else ("failed", f"{name}: {ended}")
