"""Progress with the time left: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from volmin.formatting import duration, terminal_safe

_SHOWN = {
    "train_loss": "loss {:.4f}",
    "val_loss": "noisy val {:.4f}",
    "accuracy": "test {:.2%}",
    "transition_error": "T error {:.4f}",
}

Item = TypeVar("Item")


class _WithBar:
    """Shows its bar within a ``with`` block."""

    bar: Progress

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()


class EpochProgress(_WithBar):
    """Shows the epochs of one training; call it with the history after every epoch.

    Args:
        title: what is being trained.
        epochs: how many there will be.
        console: where to show it; standard error by default.
        interval: least number of seconds between two plain lines.
        quiet: show nothing.
    """

    def __init__(
        self, title: str, epochs: int, console: Console | None = None, interval: float = 10, quiet: bool = False
    ) -> None:
        self.title, self.epochs, self.interval = terminal_safe(title), epochs, interval
        self.console = console or Console(stderr=True, quiet=quiet)
        self.bar = _bar(self.console, quiet)
        self.task = self.bar.add_task(escape(self.title), total=epochs, state="")
        self.last_line = -float("inf")

    def __call__(self, history: Sequence[dict[str, Any]]) -> None:
        done, record = len(history), history[-1]
        state = "  ".join(form.format(record[key]) for key, form in _SHOWN.items() if record.get(key) is not None)
        self.bar.update(self.task, completed=done, state=state)
        if self.console.is_terminal:
            return
        now = time.monotonic()
        if now - self.last_line >= self.interval or done == self.epochs:
            self.last_line = now
            recent = [r["seconds"] for r in history[-10:]]
            left = duration((self.epochs - done) * sum(recent) / len(recent))
            line = f"{self.title}  epoch {done}/{self.epochs}  {state}  {left} left"
            self.console.print(line, soft_wrap=True, markup=False)


class GridProgress(_WithBar):
    """Shows many runs as one: epochs done of all, with the time left, and a line for each run that ends.

    Args:
        epochs: of all runs together.
        done: of those, before this start.
        console: where to show it; standard error by default.
        interval: least number of seconds between two plain lines.
    """

    def __init__(self, epochs: int, done: int, console: Console | None = None, interval: float = 30) -> None:
        self.epochs, self.before, self.interval = epochs, done, interval
        self.console = console or Console(stderr=True, highlight=False)
        self.bar = _bar(self.console)
        self.task = self.bar.add_task("epochs", total=epochs, completed=done, state="")
        self.started = self.last_line = time.monotonic()

    def update(self, done: int, ended: int, runs: int) -> None:
        """Epochs done, and how many of the runs have ended."""
        state = f"{ended} of {runs} runs"
        self.bar.update(self.task, completed=done, state=state)
        now = time.monotonic()
        if self.console.is_terminal or now - self.last_line < self.interval:
            return
        self.last_line = now
        here = done - self.before
        left = f"  {duration((self.epochs - done) * (now - self.started) / here)} left" if here > 0 else ""
        self.console.print(f"{state}  epoch {done:,} of {self.epochs:,}{left}", soft_wrap=True)

    def finished(self, title: str, outcome: str) -> None:
        """Say what became of a run."""
        self.console.print(terminal_safe(f"{title}: {outcome}"), soft_wrap=True, markup=False)


def tracked(items: Iterable[Item], title: str, total: int, console: Console | None = None) -> Iterator[Item]:
    """The items as they come, with their progress shown once the work has taken two seconds."""
    console = console or Console(stderr=True)
    start = shown = time.monotonic()
    bar = Progress(*_columns(), console=console, transient=True, disable=not console.is_terminal)
    task = bar.add_task(title, total=total)
    try:
        for done, item in enumerate(items, start=1):
            yield item
            now = time.monotonic()
            if now - start < 2:
                continue
            bar.start()
            bar.update(task, completed=done)
            if not console.is_terminal and now - shown >= 10:
                shown = now
                left = duration((total - done) * (now - start) / done)
                console.print(f"{title}  {done}/{total}  {left} left", soft_wrap=True)
    finally:
        bar.stop()


def _bar(console: Console, quiet: bool = False) -> Progress:
    return Progress(
        *_columns(),
        TextColumn("{task.fields[state]}"),
        console=console,
        transient=True,
        disable=quiet or not console.is_terminal,
    )


def _columns() -> tuple[ProgressColumn, ...]:
    return (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(compact=True),
    )


class DownloadProgress(_WithBar):
    """A bar for one download, with the few methods of tqdm that pooch calls; on a terminal only."""

    def __init__(self, name: str, console: Console | None = None) -> None:
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TimeRemainingColumn(compact=True),
            console=console or Console(stderr=True),
            transient=True,
        )
        self.bar.disable = not self.bar.console.is_terminal
        self.task = self.bar.add_task(name, total=None)
        self.total: float = 0

    def update(self, count: float) -> None:
        self.bar.update(self.task, total=self.total or None, advance=count)

    def reset(self) -> None:
        self.bar.reset(self.task)

    def close(self) -> None:
        """Nothing to do: leaving the context takes the bar away."""
