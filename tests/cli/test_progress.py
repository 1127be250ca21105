import io

import pytest
from rich.console import Console

from volmin.cli import progress
from volmin.cli.progress import GridProgress, TaskProgress
from volmin.experiments import spec
from volmin.experiments.status import RunStatus
from volmin.formatting import terminal_safe
from volmin.progress import tracked


class Clock:
    """A clock that advances by a fixed step whenever it is read."""

    def __init__(self, step: float) -> None:
        self.step, self.now = step, -step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


@pytest.mark.parametrize(("step", "lines"), [(0.1, 0), (6.0, 2)])
def test_only_long_tasks_are_shown(monkeypatch, step, lines):
    monkeypatch.setattr(progress.time, "monotonic", Clock(step))
    shown = io.StringIO()
    with TaskProgress(Console(file=shown)) as report:
        assert list(tracked("abcde", "counting", 5, report)) == list("abcde")
    found = shown.getvalue().splitlines()
    assert len(found) == lines
    if lines:
        assert found[0] == "counting  2/5  18 s left"


def test_task_that_fails_leaves_no_bar(monkeypatch):
    monkeypatch.setattr(progress.time, "monotonic", Clock(3.0))
    shown = io.StringIO()
    report = TaskProgress(Console(file=shown, force_terminal=True))
    with pytest.raises(ZeroDivisionError), report:
        list(tracked((1 / (1 - i) for i in range(5)), "counting", 5, report))
    assert "counting" in shown.getvalue()
    assert report.bar is None


def test_grid_progress_shows_epochs_and_the_time_left(monkeypatch):
    monkeypatch.setattr(progress.time, "monotonic", Clock(40.0))
    shown = io.StringIO()
    run = spec.resolve("digits", "pair:0.35", "cross_entropy", epochs=10)
    other = spec.resolve("digits", "pair:0.35", "cross_entropy", epochs=10, seed=2)
    with GridProgress(2, Console(file=shown)) as report:
        for done in (0, 2, 10):
            state = "done" if done == 10 else "broken"
            first = RunStatus(run, state, done, 10, seconds=8.0 * done, shared_epochs=done, error=None)
            report.update([first, RunStatus(other, "missing", 0, 10, seconds=0.0, shared_epochs=0, error=None)])
        report.message("a run", "\x1b[31m[red]")
    assert shown.getvalue().splitlines() == [
        "0 of 2 runs  epoch 2 of 20  1 min 12 s left",
        "1 of 2 runs  epoch 10 of 20  40 s left",
        r"a run: \x1b[31m[red]",
    ]


def test_control_characters_are_escaped_and_other_letters_kept():
    assert terminal_safe("\x1b[31mred\x07\r") == "\\x1b[31mred\\x07\\r"
    assert terminal_safe("naïve 猫\nλ") == "naïve 猫\nλ"
