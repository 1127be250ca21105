"""The code on the pages of questions runs as it stands, and what the text says of it is true."""

import re
from pathlib import Path

import numpy as np
import pytest

import volmin

PAGES = Path(__file__).parents[1] / "docs" / "questions"
ORDER = ("how-noisy", "identified", "which-labels", "how-sure")


@pytest.fixture(scope="module")
def names():
    """What is defined once all pages have been run, one after another."""
    defined = {}
    for page in ORDER:
        for block in re.findall(r"```python\n(.*?)```", (PAGES / f"{page}.md").read_text(), re.DOTALL):
            exec(compile(block, page, "exec"), defined)
    return defined


def test_every_page_is_run():
    assert {path.stem for path in PAGES.glob("*.md")} == set(ORDER)


def test_the_noise_is_found(names):
    assert volmin.transition_error(names["T_true"], names["T"]) < 0.15
    assert np.abs(names["noise_rates"] - 0.3).mean() < 0.05


def test_digits_are_identified(names):
    assert names["found"].verdict in ("well_identified", "borderline")
    low, high = names["bracket"].T
    assert (low <= high).all()


def test_flagged_labels_are_mostly_wrong_and_mostly_all(names):
    assert names["precision"] > 0.85
    assert names["recall"] > 0.85


def test_intervals_surround_the_estimate(names):
    rate = names["intervals"].noise_rate
    assert rate.low < rate.estimate < rate.high
    assert names["bounds"].shape == (10, 2)
