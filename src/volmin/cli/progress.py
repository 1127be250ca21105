"""Progress with the time left: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from volmin.formatting import duration, terminal_safe

if TYPE_CHECKING:
    from volmin.experiments.status import RunStatus

_SHOWN = {
    "train_loss": "loss {:.4f}",
    "val_loss": "noisy val {:.4f}",
    "accuracy": "test {:.2%}",
    "transition_error": "T error {:.4f}",
}


class _Shown:
    """A context manager that removes its bar at the end."""

    bar: Progress | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.stop()
            self.bar = None


class EpochProgress(_Shown):
    """Shows the epochs of one training. Call it with the history after every epoch.

    Args:
        title: Description of the training.
        epochs: Number of epochs.
        console: Console to print on; standard error by default.
        interval: Least number of seconds between two plain lines.
    """

    def __init__(self, title: str, epochs: int, console: Console | None = None, interval: float = 10) -> None:
        self.title, self.epochs, self.interval = terminal_safe(title), epochs, interval
        self.console = console or Console(stderr=True)
        self.last_line = -float("inf")

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self.bar = _bar(self.console, escape(self.title), self.epochs)
        return self

    def __call__(self, history: Sequence[dict[str, Any]]) -> None:
        done, record = len(history), history[-1]
        state = "  ".join(form.format(record[key]) for key, form in _SHOWN.items() if record.get(key) is not None)
        if self.bar is not None:
            self.bar.update(self.bar.task_ids[0], completed=done, state=state)
            return
        now = time.monotonic()
        if now - self.last_line >= self.interval or done == self.epochs:
            self.last_line = now
            recent = [r["seconds"] for r in history[-10:]]
            left = duration((self.epochs - done) * sum(recent) / len(recent))
            line = f"{self.title}  epoch {done}/{self.epochs}  {state}  {left} left"
            self.console.print(line, soft_wrap=True, markup=False)


class GridProgress(_Shown):
    """Shows the progress of a grid: the epochs done in all runs, the time left, and a line for each run that ends.

    Args:
        jobs: Number of runs at the same time.
        console: Console to print on; standard error by default.
        interval: Least number of seconds between two plain lines.
    """

    def __init__(self, jobs: int = 1, console: Console | None = None, interval: float = 30) -> None:
        self.jobs, self.interval = jobs, interval
        self.console = console or Console(stderr=True, highlight=False)
        self.last_line: float | None = None

    def update(self, statuses: Sequence[RunStatus]) -> None:
        """Show the status of the runs."""
        from volmin.experiments.status import seconds_left

        done, epochs = (sum(getattr(status, key) for status in statuses) for key in ("epochs_done", "epochs"))
        seconds = seconds_left([status for status in statuses if status.error is None], self.jobs)
        left = "" if seconds is None else f"  {duration(seconds)} left"
        state = f"{sum(not status.is_open for status in statuses)} of {len(statuses)} runs"
        now = time.monotonic()
        if self.console.is_terminal:
            self.bar = self.bar or _bar(self.console, "epochs", epochs, extrapolated=False)
            self.bar.update(self.bar.task_ids[0], completed=done, state=f"{state}{left}")
        elif self.last_line is None:
            self.last_line = now
        elif now - self.last_line >= self.interval:
            self.last_line = now
            self.console.print(f"{state}  epoch {done:,} of {epochs:,}{left}", soft_wrap=True)

    def message(self, title: str, text: str) -> None:
        """Print a line about a run."""
        self.console.print(terminal_safe(f"{title}: {text}"), soft_wrap=True, markup=False)


class TaskProgress(_Shown):
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
        self.title: str | None = None
        self.started = self.last_line = 0.0

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
            self.bar = self.bar or _bar(self.console, escape(self.title or ""), total)
            self.bar.update(self.bar.task_ids[0], completed=done)
        elif now - self.last_line >= self.interval:
            self.last_line = now
            left = duration((total - done) * (now - self.started) / done)
            self.console.print(f"{self.title}  {done}/{total}  {left} left", soft_wrap=True, markup=False)

    def _stop(self) -> None:
        self.__exit__(None, None, None)
        self.title = None


def _bar(console: Console, title: str, total: int, extrapolated: bool = True) -> Progress:
    """A bar on a terminal that is shown at once and disappears when it is stopped.

    Args:
        console: Console to print on.
        title: Description of the task.
        total: Number of its steps.
        extrapolated: Whether to show the time left as if all steps took equally long.
    """
    remaining = [TextColumn("left"), TimeRemainingColumn(compact=True)] if extrapolated else []
    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
        TimeElapsedColumn(),
        *remaining,
        TextColumn("{task.fields[state]}"),
        console=console,
        transient=True,
    )
    bar.add_task(title, total=total, state="")
    bar.start()
    return bar
