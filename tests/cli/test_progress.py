import io

import pytest
from rich.console import Console

from volmin.cli import progress


@pytest.mark.parametrize(("step", "lines"), [(0.1, 0), (6.0, 2)])
def test_long_work_tells_how_far_it_is_and_short_work_nothing(monkeypatch, step, lines):
    clock = iter(step * i for i in range(100))
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    shown = io.StringIO()
    assert list(progress.tracked("abcde", "counting", 5, Console(file=shown))) == list("abcde")
    found = shown.getvalue().splitlines()
    assert len(found) == lines
    if lines:
        assert found[0] == "counting  2/5  18 s left"


def test_control_characters_are_spelled_out_and_letters_of_any_language_stay():
    assert progress.terminal_safe("\x1b[31mred\x07\r") == "\\x1b[31mred\\x07\\r"
    assert progress.terminal_safe("naïve 猫\nλ") == "naïve 猫\nλ"
