"""A person who has only the README gets from nothing to a corrected table: its code runs as printed."""

import re
import subprocess
from pathlib import Path

import polars as pl
import pytest
from tests.test_tutorials import run_page

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"


@pytest.mark.slow
def test_readme_leads_to_a_corrected_table(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = run_page(README, monkeypatch, {})
    corrected = pl.read_csv("digits-corrected.csv")["label"].to_numpy()
    assert (corrected == names["truth"]).mean() > 0.93 > (names["labels"] == names["truth"]).mean() + 0.2
    assert (names["classifier"].predict(names["x"]) == names["truth"]).mean() > 0.9
    assert names["method"].transition().shape == (10, 10)
    assert "volminnet" in capsys.readouterr().out


def test_targets_of_make_exist():
    targets = set(re.findall(r"\bmake ([a-z-]+)", README.read_text()))
    assert {"demo", "test"} <= targets
    for target in targets:
        subprocess.run(["make", "-n", target], cwd=ROOT, check=True, capture_output=True)


def test_every_link_and_picture_exists():
    for path in re.findall(r"\]\((?!http)([^)#]+)", README.read_text()):
        assert (ROOT / path).exists(), path
