"""Progress with the time left: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from volmin import progress as library
from volmin.formatting import duration, terminal_safe

if TYPE_CHECKING:
    from volmin.experiments.status import RunStatus

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
    """Shows the epochs of one training. Call it with the history after every epoch.

    Args:
        title: Description of the training.
        epochs: Number of epochs.
        console: Console to print on; standard error by default.
        interval: Least number of seconds between two plain lines.
        quiet: Whether to show nothing.
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


class GridProgress:
    """Shows the progress of a grid: the epochs done in all runs, the time left, and a line for each run that ends.

    Args:
        console: Console to print on; standard error by default.
        interval: Least number of seconds between two plain lines.
    """

    def __init__(self, console: Console | None = None, interval: float = 30) -> None:
        self.interval = interval
        self.console = console or Console(stderr=True, highlight=False)
        self.bar = _bar(self.console)
        self.task: TaskID | None = None
        self.before, self.started, self.last_line = 0, 0.0, 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()

    def update(self, statuses: Sequence[RunStatus]) -> None:
        """Show the status of the runs."""
        done, epochs = (sum(getattr(status, key) for status in statuses) for key in ("epochs_done", "epochs"))
        state = f"{sum(not status.is_open for status in statuses)} of {len(statuses)} runs"
        now = time.monotonic()
        if self.task is None:
            self.task = self.bar.add_task("epochs", total=epochs, completed=done, state=state)
            self.bar.start()
            self.before, self.started, self.last_line = done, now, now
        self.bar.update(self.task, completed=done, state=state)
        if self.console.is_terminal or now - self.last_line < self.interval:
            return
        self.last_line = now
        here = done - self.before
        left = f"  {duration((epochs - done) * (now - self.started) / here)} left" if here > 0 else ""
        self.console.print(f"{state}  epoch {done:,} of {epochs:,}{left}", soft_wrap=True)

    def message(self, title: str, text: str) -> None:
        """Print a line about a run."""
        self.console.print(terminal_safe(f"{title}: {text}"), soft_wrap=True, markup=False)


class TaskProgress:
    """Shows the progress that library functions report, once a task has taken two seconds.

    An instance is a ``volmin.progress.Progress`` callback for any number of tasks, one after another.

    Args:
        console: Console to print on; standard error by default.
        interval: Least number of seconds between two plain lines.
    """

    patience = 2.0
    """Seconds that a task may take without being shown."""

    def __init__(self, console: Console | None = None, interval: float = 10) -> None:
        self.interval = interval
        self.console = console or Console(stderr=True)
        self.bar: Progress | None = None
        self.title: str | None = None
        self.started = self.last_line = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def __call__(self, title: str, done: int, total: int) -> None:
        now = time.monotonic()
        title = terminal_safe(title)
        if done == 0 or title != self.title:
            self._stop()
            self.title, self.started, self.last_line = title, now, now
        if done > 0 and now - self.started >= self.patience:
            self._show(done, total, now)
        if done >= total:
            self._stop()

    def _show(self, done: int, total: int, now: float) -> None:
        if self.console.is_terminal:
            if self.bar is None:
                self.bar = Progress(*_columns(), console=self.console, transient=True)
                self.bar.add_task(escape(self.title or ""), total=total)
                self.bar.start()
            self.bar.update(self.bar.task_ids[0], completed=done)
        elif now - self.last_line >= self.interval:
            self.last_line = now
            left = duration((total - done) * (now - self.started) / done)
            self.console.print(f"{self.title}  {done}/{total}  {left} left", soft_wrap=True, markup=False)

    def _stop(self) -> None:
        if self.bar is not None:
            self.bar.stop()
        self.bar = self.title = None


def tracked(items: Iterable[Item], title: str, total: int, console: Console | None = None) -> Iterator[Item]:
    """Yield the items and show their progress once the work has taken two seconds."""
    with TaskProgress(console) as shown:
        yield from library.tracked(items, title, total, shown)


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
        """Nothing to do: leaving the context removes the bar."""
