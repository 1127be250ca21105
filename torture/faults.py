"""Faults while commands work: killed processes, full and read-only disks, damaged files, two processes at once.

After each fault the same command must end in the same bits as an undisturbed run, or refuse with one clear line. A
result that is there must be whole at any moment. ``lost`` counts everything else.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from torture.outcome import Outcome
from torture.processes import context

Moment = Literal["half written", "before the renaming", "after the renaming"]
MOMENTS: tuple[Moment, ...] = ("half written", "before the renaming", "after the renaming")
SECONDS = 300
"""A command that takes longer hangs."""
_TIMES = ("seconds", "seconds_per_epoch", "seal", "versions")


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    output: str

    @property
    def refused(self) -> bool:
        """Whether it ended in a clear line, and not in the insides of the program."""
        said = [line for line in self.output.splitlines() if line.startswith("volmin: ") or "did not finish" in line]
        return self.code in (1, 2) and bool(said) and "Traceback" not in self.output

    def __str__(self) -> str:
        return f"exit code {self.code}: {' '.join(self.output.split())[-200:]}"


@dataclass(frozen=True)
class Command:
    """A command to disturb."""

    name: str
    arguments: tuple[str, ...]

    def start(self, out: Path, log: Path, kill_at: tuple[Moment, int] | None = None) -> Any:
        """The command as a process, on its way."""
        process = context().Process(target=_work, args=((*self.arguments, "--out", str(out)), str(log), kill_at))
        process.start()
        return process

    def run(self, out: Path, kill_at: tuple[Moment, int] | None = None) -> Ended:
        """The command from its beginning to its end."""
        with _log() as log:
            return finish(self.start(out, log, kill_at), log)


def finish(process: Any, log: Path, seconds: float = SECONDS) -> Ended:
    """Wait for a process; one that hangs is killed, and its exit code is 124."""
    process.join(seconds)
    code = 124 if process.is_alive() else process.exitcode
    process.kill()
    process.join()
    return Ended(code, log.read_text(errors="replace"))


@contextmanager
def _log() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "log").touch()
        yield Path(folder) / "log"


def _work(arguments: tuple[str, ...], log: str, kill_at: tuple[Moment, int] | None) -> None:
    """In a process of its own: a command, killed while it writes its n-th file if so asked."""
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
    """All that a folder holds and that must be the same every time: everything but times, and pictures of them."""
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
    """What is wrong with a result that is there, if anything: what is not finished may look like anything."""
    from volmin import Audit
    from volmin.experiments.run import read_result

    try:
        for path in out.rglob("result.json"):
            read_result(path.parent, files=True)
        for path in out.rglob("audit.json"):
            Audit.load(path.parent)
    except ValueError as error:
        return str(error)
    return ""


class Bench:
    """Commands on tiny data, with what each of them gives where nothing disturbs it."""

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

    @cache  # noqa: B019  (there is one bench in a process, for as long as it lives)
    def undisturbed(self, name: str) -> tuple[dict[str, Any], float]:
        """What a command leaves, and in how many seconds."""
        out = self.fresh()
        start = time.perf_counter()
        ended = self.commands[name].run(out)
        seconds = time.perf_counter() - start
        if ended.code:
            raise RuntimeError(f"volmin {name} does not even work undisturbed: {ended}")
        return fingerprint(out), seconds

    def fresh(self) -> Path:
        """A new place for a command's files."""
        return Path(tempfile.mkdtemp(dir=self.root)) / "out"

    def judge(self, name: str, out: Path, ended: Ended, *, may_refuse: bool) -> tuple[str, str]:
        """Whether a command that was run again ended as it must: in the same bits, or where due in a refusal."""
        if ended.code == 0:
            found, expected = fingerprint(out), self.undisturbed(name)[0]
            if found == expected:
                return "right", ""
            other = sorted(file for file in found.keys() | expected.keys() if found.get(file) != expected.get(file))
            return "failed", f"{name}: other bits in {', '.join(other)}"
        return ("refused", "") if may_refuse and ended.refused else ("failed", f"{name}: {ended}")


def killed_at_random(bench: Bench, name: str, count: int, generator: random.Random) -> Outcome:
    """Kill a command at a random moment, and run it again."""
    outcome = Outcome("faults", f"{bench.commands[name].name} killed at a random moment")
    _, seconds = bench.undisturbed(name)
    with outcome.timed():
        for _ in range(count):
            out = bench.fresh()
            with _log() as log:
                process = bench.commands[name].start(out, log)
                time.sleep(generator.uniform(0, seconds))
                process.kill()
                process.join()
            _count_second_run(bench, name, out, outcome)
            shutil.rmtree(out.parent)
    return outcome


def killed_while_writing(bench: Bench, name: str, every: int = 1) -> Outcome:
    """Kill a command around the writing of each of its files (or of every n-th), and run it again."""
    outcome = Outcome("faults", f"{bench.commands[name].name} killed while it writes a file")
    with outcome.timed():
        for moment in MOMENTS:
            for number in range(1, 1000, every):
                out = bench.fresh()
                if bench.commands[name].run(out, (moment, number)).code != -signal.SIGKILL:
                    break  # it writes no more files than that
                _count_second_run(bench, name, out, outcome)
                shutil.rmtree(out.parent)
    return outcome


def _count_second_run(bench: Bench, name: str, out: Path, outcome: Outcome) -> None:
    if broken := half_written(out):
        outcome.count("failed", f"half-written: {broken}")
        return
    ended = bench.commands[name].run(out)
    if "did not finish" in ended.output:  # workers of the killed command were still at it
        ended = bench.commands[name].run(out)
    outcome.count(*bench.judge(name, out, ended, may_refuse=False))


def damaged(bench: Bench, name: str, count: int, generator: random.Random, *, finished: bool) -> Outcome:
    """Flip a bit of a file, cut it off, or take it away, and run the command again."""
    state = "finished" if finished else "unfinished"
    outcome = Outcome("faults", f"a file of {state} {bench.commands[name].name} damaged")
    origin = bench.fresh()
    bench.commands[name].run(origin, None if finished else ("after the renaming", 5))
    files = [path.relative_to(origin) for path in origin.rglob("*") if path.is_file() and path.name != ".lock"]
    with outcome.timed():
        for number in range(count):
            out = bench.fresh()
            shutil.copytree(origin, out)
            _damage(out / files[number % len(files)], generator)
            outcome.count(*_judge_damaged(bench, name, out))
            shutil.rmtree(out.parent)
    return outcome


def _judge_damaged(bench: Bench, name: str, out: Path) -> tuple[str, str]:
    """A damaged finished audit is noticed by whoever reads it; the command writes it anew."""
    end, told = bench.judge(name, out, bench.commands[name].run(out), may_refuse=True)
    return (end, told) if end != "right" or not (broken := half_written(out)) else ("failed", broken)


def _damage(path: Path, generator: random.Random) -> None:
    content = bytearray(path.read_bytes())
    kind = generator.choice(("flip", "flip", "cut", "take away"))
    if kind == "take away":
        path.unlink()
    elif kind == "cut":
        path.write_bytes(content[: generator.randrange(len(content))])
    else:
        content[generator.randrange(len(content))] ^= 1 << generator.randrange(8)
        path.write_bytes(content)


def damaged_audit_is_noticed(bench: Bench, count: int, generator: random.Random) -> Outcome:
    """Damage what is read of a finished audit, and read it."""
    from volmin import Audit

    outcome = Outcome("faults", "a file of a finished audit damaged, then read")
    origin = bench.fresh()
    bench.commands["audit"].run(origin)
    expected = Audit.load(origin).summary()
    with outcome.timed():
        for number in range(count):
            out = bench.fresh()
            shutil.copytree(origin, out)
            _damage(out / ("audit.json", "labels.parquet")[number % 2], generator)
            try:
                same = Audit.load(out).summary() == expected
                outcome.count("right" if same else "failed", "a damaged audit was used")
            except ValueError:
                outcome.count("refused")
            shutil.rmtree(out.parent)
    return outcome


@contextmanager
def small_disk(place: Path) -> Iterator[Callable[[str], None]]:
    """A file system of its own in memory; the function that is given changes its size or its being read-only."""
    place.mkdir(parents=True)
    _mount("-t", "tmpfs", "-o", "size=64m", "tmpfs", str(place))

    def change(options: str) -> None:
        _mount("-o", f"remount,{options}", str(place))

    try:
        yield change
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True, capture_output=True)


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True, capture_output=True)


def can_mount() -> bool:
    """Whether this process may make file systems: root may, outside of most containers."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            with small_disk(Path(folder) / "disk"):
                return True
        except (OSError, subprocess.CalledProcessError):
            return False


def full_disk(bench: Bench, name: str, sizes: tuple[int, ...]) -> Outcome:
    """Let a command run out of space (kilobytes), make room, and run it again."""
    outcome = Outcome("faults", f"{bench.commands[name].name} on a full disk, then with room")
    if not can_mount():
        outcome.skipped = "file systems cannot be mounted here"
        return outcome
    with outcome.timed():
        for size in sizes:
            place = bench.fresh()
            with small_disk(place) as change:
                change(f"size={size}k")
                first = bench.commands[name].run(place / "runs")
                if first.code and not first.refused:
                    outcome.count("failed", f"on the full disk: {first}")
                    continue
                change("size=64m")
                if first.code:
                    _count_second_run(bench, name, place / "runs", outcome)
                else:
                    outcome.count(*bench.judge(name, place / "runs", first, may_refuse=False))
    return outcome


def read_only(bench: Bench, name: str) -> Outcome:
    """Run a command where it may not write, and again where it may."""
    outcome = Outcome("faults", f"{bench.commands[name].name} in a read-only folder, then in a writable one")
    if not can_mount():
        outcome.skipped = "file systems cannot be mounted here"
        return outcome
    with outcome.timed():
        for half_way in (False, True):
            place = bench.fresh()
            with small_disk(place) as change:
                if half_way:
                    bench.commands[name].run(place / "runs", ("after the renaming", 3))
                change("ro")
                first = bench.commands[name].run(place / "runs")
                change("rw")
                if not first.refused:
                    outcome.count("failed", f"in the read-only folder: {first}")
                else:
                    _count_second_run(bench, name, place / "runs", outcome)
    return outcome


def two_at_once(bench: Bench, name: str, count: int, generator: random.Random) -> Outcome:
    """Start a command twice: one works, and the other waits, or says that it does not."""
    outcome = Outcome("faults", f"{bench.commands[name].name} twice at once in one folder")
    _, seconds = bench.undisturbed(name)
    with outcome.timed():
        for _ in range(count):
            out = bench.fresh()
            with _log() as first_log, _log() as second_log:
                first = bench.commands[name].start(out, first_log)
                time.sleep(generator.uniform(0, seconds / 2))
                second = bench.commands[name].start(out, second_log)
                ended = [finish(first, first_log), finish(second, second_log)]
            lost = [str(one) for one in ended if one.code and not one.refused]
            if lost or all(one.code for one in ended):
                outcome.count("failed", f"{name} twice: {' / '.join(lost) or 'neither worked'}")
            else:
                outcome.count(*bench.judge(name, out, Ended(0, ""), may_refuse=False))
            shutil.rmtree(out.parent)
    return outcome


def run(share: float = 1.0, seed: int = 0, jobs: int = 2) -> list[Outcome]:
    """All faults, each kind about ``share`` times as often as in the full program."""

    def times(count: int) -> int:
        return max(2, round(share * count))

    def random_of(what: str) -> random.Random:
        return random.Random(f"{what}-{seed}")

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(jobs) as pool:
        bench = Bench(Path(folder))
        names = tuple(bench.commands)
        for name in names:
            bench.undisturbed(name)
        tasks: list[Callable[[], Outcome]] = []
        for name, kills, every, twice in (("train", 60, 1, 8), ("reproduce", 20, 3, 4), ("audit", 20, 1, 4)):
            tasks += [
                partial(killed_at_random, bench, name, times(kills), random_of(name)),
                partial(killed_while_writing, bench, name, every if share >= 1 else 7),
                partial(read_only, bench, name),
                partial(two_at_once, bench, name, times(twice), random_of(name)),
            ]
        for name, count in (("train", 48), ("reproduce", 16)):
            tasks += [
                partial(damaged, bench, name, times(count), random_of(f"{name}-{finished}"), finished=finished)
                for finished in (True, False)
            ]
        # Its workers outlive it for a while, and the second run meets them.
        tasks.append(partial(killed_at_random, bench, "two jobs", times(6), random_of("two jobs")))
        tasks.append(partial(damaged_audit_is_noticed, bench, times(200), random_of("audit")))
        for name, sizes in (("train", (4, 60, 130, 200, 280)), ("reproduce", (60, 400)), ("audit", (4, 40, 90))):
            tasks.append(partial(full_disk, bench, name, sizes if share >= 1 else sizes[1:2]))
        return list(pool.map(lambda task: task(), tasks))
