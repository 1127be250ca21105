import io
import re
import time

import pytest
from rich.console import Console

from volmin.cli import progress
from volmin.cli.progress import EpochProgress, GridProgress, TaskProgress
from volmin.cli.terminal import say
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


def plain(shown):
    """The text on a terminal, without control sequences, by piece."""
    return [piece.strip() for piece in re.split(r"\x1b\[[0-9;?]*[A-Za-z]|\r|\n", shown.getvalue()) if piece.strip()]


def test_plain_lines_come_regularly_also_within_a_task():
    shown = io.StringIO()
    with TaskProgress("reading", Console(file=shown), interval=0.05) as report:
        time.sleep(0.12)
        report("counting", 0, 4)
        report("counting", 1, 4)
        time.sleep(0.08)
    lines = shown.getvalue().splitlines()
    assert lines[0] == "reading  0 s elapsed"
    assert lines[-1] == "counting  1/4  0 s elapsed, 0 s left"
    assert len(lines) >= 3


def test_first_plain_line_comes_soon_although_later_ones_are_far_apart(monkeypatch):
    monkeypatch.setattr("volmin.cli.progress.FIRST_LINE", 0.02)
    shown = io.StringIO()
    with TaskProgress("reading", Console(file=shown), interval=60):
        time.sleep(0.5)
    assert shown.getvalue().count("reading") == 1


def test_times_are_named(monkeypatch):
    monkeypatch.setattr(progress.time, "monotonic", Clock(6.0))
    report = TaskProgress("counting", Console(file=io.StringIO()), quiet=True)
    for done in (0, 1, 2):
        report("counting", done, 5)
    assert report.line() == "counting  2/5  6 s elapsed, 9 s left"


def test_bar_is_shown_at_once_and_not_cut_at_80_columns():
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=80, legacy_windows=False)
    with TaskProgress("reading a table with a rather long name.csv", console) as report:
        first = plain(shown)
        assert any(piece.startswith("reading a table with a rather") for piece in first)
        report("[encoding] columns", 0, 30)
        report("[encoding] columns", 3, 30)
        assert report.bar is not None
        report.bar.refresh()
    pieces = plain(shown)
    assert "[encoding] columns" in pieces
    assert any(piece.endswith("left") and "elapsed" in piece for piece in pieces)


def test_state_of_a_training_stands_on_its_own_line():
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=80, legacy_windows=False)
    record = {"train_loss": 1.2, "val_loss": 0.4, "accuracy": 0.91, "transition_error": 0.01, "seconds": 2.0}
    with EpochProgress("digits pair:0.45 volminnet", 10, console) as report:
        report([record] * 3)
        assert report.bar is not None
        report.bar.refresh()
    assert "loss 1.2000  noisy val 0.4000  test 91.00%  T error 0.0100" in plain(shown)


def test_quiet_progress_shows_nothing():
    shown = io.StringIO()
    with TaskProgress("reading", Console(file=shown, force_terminal=True), interval=0.01, quiet=True) as report:
        assert list(tracked("abc", "counting", 3, report)) == list("abc")
        time.sleep(0.05)
    assert shown.getvalue() == ""


def test_task_that_fails_leaves_no_bar():
    shown = io.StringIO()
    report = TaskProgress(console=Console(file=shown, force_terminal=True))
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
            first = RunStatus(run, state, done, 10, seconds=(8.0,) * done, shared_epochs=done, error=None)
            report.update([first, RunStatus(other, "missing", 0, 10, seconds=(), shared_epochs=0, error=None)])
        report.message("a run", "\x1b[31m[red]")
    assert shown.getvalue().splitlines() == [
        "0 of 2 runs  epoch 2 of 20  1 min 12 s left",
        "1 of 2 runs  epoch 10 of 20  40 s left",
        r"a run: \x1b[31m[red]",
    ]


def test_control_characters_are_escaped_and_other_letters_kept():
    assert terminal_safe("\x1b[31mred\x07\r") == "\\x1b[31mred\\x07\\r"
    assert terminal_safe("naïve 猫\nλ") == "naïve 猫\nλ"


def test_prose_is_wrapped_between_words_on_a_terminal_and_whole_elsewhere(monkeypatch):
    prose = "Between 0.0% and 22.4% are wrong" + ", the labels alone cannot tell which reading is right" * 5
    command = "  volmin audit a-long-name.csv --label outcome --merge-labels --apply decisions-downloaded.csv"
    shown = io.StringIO()
    monkeypatch.setattr(
        "volmin.cli.terminal.console", lambda: Console(file=shown, force_terminal=True, width=80, color_system=None)
    )
    say(f"{prose}\n{command}")
    *wrapped, last = shown.getvalue().rstrip("\n").split("\n")
    assert len(wrapped) > 3
    assert all(len(line) <= 80 for line in wrapped)
    assert " ".join(line.strip() for line in wrapped) == prose
    assert last == command
    shown.truncate(shown.seek(0))
    monkeypatch.setattr("volmin.cli.terminal.console", lambda: Console(file=shown, width=80))
    say(f"{prose}\n{command}")
    assert shown.getvalue() == f"{prose}\n{command}\n"
