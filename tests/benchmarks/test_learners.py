"""The measures and the page of ``benchmarks/learners.py`` on small inputs with known answers."""

import sys

import numpy as np
import pytest

from benchmarks import learners
from volmin.io.atomic import read_json


def test_calibration_error_of_known_confidences():
    probs = np.array([[0.9, 0.1]] * 10 + [[0.4, 0.6]] * 10)
    labels = np.array([0] * 9 + [1] + [1] * 10)  # right in 9 of 10 and in all, instead of 9 and 6 of 10
    assert learners.calibration_error(probs, labels) == pytest.approx(0.2)


def test_page_holds_the_means_of_complete_sets():
    row = {"seed": 0, "calibration_error": 0.1, "seconds": 1.0}
    rows = [
        {**row, "set": "spam, rules", "learner": "volmin", "accuracy": 0.8},
        {**row, "set": "spam, rules", "learner": "volmin", "accuracy": 0.9, "seed": 1},
        {**row, "set": "spam, rules", "learner": "other", "accuracy": 0.7},
        {**row, "set": "wine, symmetric, 25 %", "learner": "volmin", "accuracy": 0.1},
    ]
    page = learners.markdown(
        {"date": "today", "versions": dict.fromkeys(("volmin", "scikit-learn", "cleanlab"), "1"), "rows": rows}
    )
    assert "| spam, rules | 85.0 | 70.0 |" in page
    assert "| **mean** | 85.0 | 70.0 |" in page
    assert "| wine, symmetric, 25 % | 10.0 |  |" in page


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_missing_files_are_skipped_with_a_line(tmp_path, monkeypatch, capsys):
    arguments = ["learners", "--data-dir", str(tmp_path), "--sets", "spam", "wine", "--seeds", "1", "--only-volmin"]
    monkeypatch.setattr(sys, "argv", [*arguments, "--json", str(tmp_path / "record.json")])
    learners.main()
    printed = capsys.readouterr().out
    assert "spam, rules" in printed
    assert "not found, skipped" in printed
    assert [row["set"] for row in read_json(tmp_path / "record.json")["rows"]] == ["wine, symmetric, 25 %"]
