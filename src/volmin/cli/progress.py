"""Progress with the time left: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
)
from rich.table import Column
from rich.text import Text

from volmin.formatting import duration, terminal_safe

if TYPE_CHECKING:
    from volmin.experiments.status import RunStatus

TITLE = 30
"""Number of characters of a title beside a bar, which leaves room for the times in 80 columns."""

FIRST_LINE = 1
"""Number of seconds after which the first plain line is printed: what takes less time needs none."""

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
    """Shows the progress that library functions report: a bar from the start on a terminal, plain lines elsewhere.

    An instance is a ``volmin.progress.Progress`` callback for any number of tasks, one after another. Plain lines are
    printed at regular times, also while a task reports nothing.

    Args:
        title: What is being done before the first task is reported; by default nothing is shown.
        console: Console to print on; standard error by default.
        interval: Number of seconds between two plain lines.
        quiet: Whether to show nothing.
    """

    def __init__(
        self,
        title: str | None = None,
        console: Console | None = None,
        interval: float = 10,
        quiet: bool = False,
    ) -> None:
        self.first, self.interval, self.quiet = title, interval, quiet
        self.console = console or Console(stderr=True)
        self.title: str | None = None
        self.done, self.total = 0, 1
        self.started = dict[str, float]()
        self.ended = threading.Event()

    def __enter__(self) -> Self:
        if not (self.quiet or self.console.is_terminal):
            threading.Thread(target=self._print_regularly, daemon=True).start()
        if self.first is not None:
            self(self.first, 0, 1)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.ended.set()
        super().__exit__(kind, error, trace)

    def __call__(self, title: str, done: int, total: int) -> None:
        title = terminal_safe(title)
        if done == 0:
            self.started[title] = time.monotonic()
        changed = title != self.title or done == 0
        self.title, self.done, self.total = (title, done, total) if done < total else (None, 0, 1)
        if self.quiet or not self.console.is_terminal:
            return
        if self.title is None:
            super().__exit__(None, None, None)
        elif self.bar is None or changed:
            steps = None if total == 1 else total
            self.bar = self.bar or _bar(self.console, escape(title), steps)
            self.bar.reset(self.bar.task_ids[0], description=escape(title), total=steps, completed=done)
            self.bar.refresh()
        else:
            self.bar.update(self.bar.task_ids[0], completed=done)

    def line(self) -> str:
        """The present task as a line of text; empty between two tasks."""
        if self.title is None:
            return ""
        elapsed = time.monotonic() - self.started.setdefault(self.title, time.monotonic())
        steps = "" if self.total == 1 else f"  {self.done:,}/{self.total:,}"
        return f"{self.title}{steps}  {_times(elapsed, self.done, self.total)}"

    def _print_regularly(self) -> None:
        pause = min(FIRST_LINE, self.interval)
        while not self.ended.wait(pause):
            pause = self.interval
            if line := self.line():
                self.console.print(line, soft_wrap=True, markup=False)


class _Bar(Progress):
    """A bar with the state of a task on a line of its own, so that neither is cut on a narrow terminal."""

    def get_renderables(self) -> Iterable[RenderableType]:
        yield self.make_tasks_table(self.tasks)
        for task in self.tasks:
            if task.fields["state"]:
                yield Text(f"  {task.fields['state']}")


class _Times(ProgressColumn):
    """The time elapsed and, where it can be told, the time left."""

    def __init__(self, extrapolated: bool) -> None:
        super().__init__(Column(no_wrap=True))
        self.extrapolated = extrapolated

    def render(self, task: Task) -> Text:
        done, total = (task.completed, task.total or 0) if self.extrapolated else (0, 0)
        return Text(_times(task.elapsed or 0, done, total))


def _times(elapsed: float, done: float, total: float) -> str:
    left = f", {duration((total - done) * elapsed / done)} left" if 0 < done < total else ""
    return f"{duration(elapsed)} elapsed{left}"


def _bar(console: Console, title: str, total: int | None, extrapolated: bool = True) -> Progress:
    """A bar on a terminal that is shown at once and disappears when it is stopped.

    Args:
        console: Console to print on.
        title: Description of the task.
        total: Number of its steps, None if unknown.
        extrapolated: Whether to show the time left as if all steps took equally long.
    """
    bar = _Bar(
        SpinnerColumn(),
        TextColumn("{task.description}", table_column=Column(overflow="ellipsis", no_wrap=True, max_width=TITLE)),
        BarColumn(bar_width=16),
        MofNCompleteColumn(),
        _Times(extrapolated),
        console=console,
        transient=True,
    )
    bar.add_task(title, total=total, state="")
    bar.start()
    return bar
