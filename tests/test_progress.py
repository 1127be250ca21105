import io

import pytest
from rich.console import Console

from volmin import progress


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
