"""The Python code and the commands of the tutorials run as printed and give what the text claims."""

import re
import shlex
from pathlib import Path

import polars as pl
import pytest

from volmin import cli

TASKS = Path(__file__).parents[1] / "docs" / "tasks"


def run_page(path, monkeypatch, names):
    """Execute the blocks of a page in order, commands in this process."""
    for language, block in re.findall(r"^```(python|sh)\n(.*?)^```", path.read_text(encoding="utf-8"), re.S | re.M):
        if language == "python":
            exec(compile(block, path.name, "exec"), names)
            continue
        for line in block.strip().splitlines():
            monkeypatch.setattr("sys.argv", shlex.split(line))
            with pytest.raises(SystemExit) as end:
                cli.main()
            assert end.value.code == 0, line
    return names


@pytest.mark.slow
def test_audit_tutorial_improves_a_classifier(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = run_page(TASKS / "audit.md", monkeypatch, {})
    accuracy = names["accuracy"]
    assert accuracy["digits-corrected.csv"] > accuracy["digits.csv"] + 0.1
    corrected = pl.read_csv("digits-corrected.csv")["label"].to_numpy()
    assert (corrected == names["truth"]).mean() > 0.93 > (names["labels"] == names["truth"]).mean() + 0.2
    assert "flagged" in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.slow
def test_cleanlab_tutorial_compares_both_packages(tmp_path, monkeypatch):
    pytest.importorskip("cleanlab")
    monkeypatch.chdir(tmp_path)
    names = run_page(TASKS / "from-cleanlab.md", monkeypatch, {})
    found, wrong = names["ours"], names["wrong"]
    theirs = wrong[names["theirs"]].sum() / wrong.sum()
    assert wrong[found].mean() > 0.9
    assert wrong[found].sum() / wrong.sum() > max(0.9, theirs)
