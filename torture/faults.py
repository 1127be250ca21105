"""Faults while commands run: killed processes, full and read-only disks, damaged files, two processes at once.

After each fault, the same command must end in the same bits as an undisturbed run, or refuse with one clear line. A
finished result must be complete at any moment. Everything else counts as lost.
"""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from torture.bench import MOMENTS, Bench, Ended, finish, half_written, log_file
from torture.outcome import Outcome


def killed_at_random(bench: Bench, name: str, count: int, generator: random.Random) -> Outcome:
    """Kill a command at a random moment and run it again."""
    outcome = Outcome("faults", f"{bench.commands[name].name} killed at a random moment")
    _, seconds = bench.undisturbed(name)
    with outcome.timed():
        for _ in range(count):
            out = bench.fresh()
            with log_file() as log:
                process = bench.commands[name].start(out, log)
                time.sleep(generator.uniform(0, seconds))
                process.kill()
                process.join()
            _count_second_run(bench, name, out, outcome)
            shutil.rmtree(out.parent)
    return outcome


def killed_while_writing(bench: Bench, name: str, every: int = 1) -> Outcome:
    """Kill a command while it writes each of its files (or every n-th) and run it again."""
    outcome = Outcome("faults", f"{bench.commands[name].name} killed while it writes a file")
    with outcome.timed():
        for moment in MOMENTS:
            for number in range(1, 1000, every):
                out = bench.fresh()
                if bench.commands[name].run(out, (moment, number)).code != -signal.SIGKILL:
                    break  # it writes fewer files
                _count_second_run(bench, name, out, outcome)
                shutil.rmtree(out.parent)
    return outcome


def _count_second_run(bench: Bench, name: str, out: Path, outcome: Outcome) -> None:
    if broken := half_written(out):
        outcome.count("failed", f"half-written: {broken}")
        return
    ended = bench.commands[name].run(out)
    if "did not finish" in ended.output:  # workers of the killed command were still running
        ended = bench.commands[name].run(out)
    outcome.count(*bench.judge(name, out, ended, may_refuse=False))


def damaged(bench: Bench, name: str, count: int, generator: random.Random, *, finished: bool) -> Outcome:
    """Flip a bit of a file, truncate it, or delete it, and run the command again."""
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
    """Run a command on damaged files. An audit overwrites them, so its results are checked as well."""
    end, reason = bench.judge(name, out, bench.commands[name].run(out), may_refuse=True)
    return (end, reason) if end != "right" or not (broken := half_written(out)) else ("failed", broken)


def _damage(path: Path, generator: random.Random) -> None:
    content = bytearray(path.read_bytes())
    kind = generator.choice(("flip", "flip", "truncate", "delete"))
    if kind == "delete":
        path.unlink()
    elif kind == "truncate":
        path.write_bytes(content[: generator.randrange(len(content))])
    else:
        content[generator.randrange(len(content))] ^= 1 << generator.randrange(8)
        path.write_bytes(content)


def damaged_audit_is_noticed(bench: Bench, count: int, generator: random.Random) -> Outcome:
    """Damage a file of a finished audit and load it."""
    from volmin import Audit
    from volmin.exceptions import VolminError

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
            except VolminError:
                outcome.count("refused")
            shutil.rmtree(out.parent)
    return outcome


@contextmanager
def small_disk(place: Path) -> Iterator[Callable[[str], None]]:
    """A file system in memory; yields a function that changes its mount options."""
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
    """Whether this process may mount file systems; root may, outside most containers."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            with small_disk(Path(folder) / "disk"):
                return True
        except (OSError, subprocess.CalledProcessError):
            return False


def full_disk(bench: Bench, name: str, sizes: tuple[int, ...]) -> Outcome:
    """Run a command on a disk that is too small (sizes in kilobytes), and again with enough space."""
    outcome = Outcome("faults", f"{bench.commands[name].name} on a full disk, then with space")
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
    """Run a command in a read-only folder, and again in a writable one."""
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
    """Start a command twice: one works, and the other waits or is refused."""
    outcome = Outcome("faults", f"{bench.commands[name].name} twice at once in one folder")
    _, seconds = bench.undisturbed(name)
    with outcome.timed():
        for _ in range(count):
            out = bench.fresh()
            with log_file() as first_log, log_file() as second_log:
                first = bench.commands[name].start(out, first_log)
                time.sleep(generator.uniform(0, seconds / 2))
                second = bench.commands[name].start(out, second_log)
                ended = [finish(first, first_log), finish(second, second_log)]
            lost = [str(one) for one in ended if one.code and not one.refused]
            if lost or all(one.code for one in ended):
                outcome.count("failed", f"{name} twice: {' / '.join(lost) or 'both failed'}")
            else:
                outcome.count(*bench.judge(name, out, Ended(0, ""), may_refuse=False))
            shutil.rmtree(out.parent)
    return outcome


def run(share: float = 1.0, seed: int = 0, jobs: int = 2) -> list[Outcome]:
    """All faults, each kind ``share`` times as often as in the full program."""

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
        # Workers outlive a killed command for a while, so that the second run finds them working.
        tasks.append(partial(killed_at_random, bench, "two jobs", times(6), random_of("two jobs")))
        tasks.append(partial(damaged_audit_is_noticed, bench, times(200), random_of("audit")))
        for name, sizes in (("train", (4, 60, 130, 200, 280)), ("reproduce", (60, 400)), ("audit", (4, 40, 90))):
            tasks.append(partial(full_disk, bench, name, sizes if share >= 1 else sizes[1:2]))
        return list(pool.map(lambda task: task(), tasks))
