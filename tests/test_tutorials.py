"""The Python code and the commands of the tutorials run as printed and give what the text claims."""

import contextlib
import re
import shlex
import subprocess
import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import polars as pl
import pytest
import torch

import volmin
from volmin import cli, methods, networks
from volmin.data import TensorLoader
from volmin.training import Callback

TASKS = Path(__file__).parents[1] / "docs" / "tasks"


def run_page(path, monkeypatch, names):
    """Execute the blocks of a page in order, commands in this process."""
    for language, block in re.findall(r"^```(python|sh)\n(.*?)^```", path.read_text(encoding="utf-8"), re.S | re.M):
        if language == "python":
            exec(compile(block, path.name, "exec"), names)
            continue
        for line in block.strip().splitlines():
            words = [
                found
                for word in shlex.split(line)
                for found in (map(str, Path().glob(word)) if "*" in word else [word])
            ]
            monkeypatch.setattr("sys.argv", words)
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
    shown = capsys.readouterr().out
    assert "flagged" in shown
    right, stated = (float(share) for share in re.findall(r"([\d.]+)% right, stated ([\d.]+)%", shown)[0])
    assert right > 90
    assert abs(right - stated) < 5


@pytest.mark.slow
def test_scikit_learn_tutorial(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = run_page(TASKS / "scikit-learn.md", monkeypatch, {})
    assert names["accuracy"] > 0.9
    assert names["answer"].tolist() == ["spam", "no spam"]
    assert names["head"].score(names["embeddings"], names["y"]) > 0.9
    assert names["shop"].score(names["table"], names["bought"]) == 1
    assert names["partial"].classes_.tolist() == list(range(10))


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


@pytest.mark.filterwarnings("ignore:Columns left out")
@pytest.mark.filterwarnings("ignore:Labels of row")
@pytest.mark.slow
def test_page_about_messy_tables(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = run_page(TASKS / "messy-tables.md", monkeypatch, {})
    shown = capsys.readouterr().out
    page = (TASKS / "messy-tables.md").read_text(encoding="utf-8")
    for line in re.findall(r"^Columns:.*?(?=^```)", page, re.S | re.M)[0].splitlines():
        assert line in shown
    wrong = names["truth"] != names["given"]
    for audit in (names["audit"], names["by_meaning"]):
        assert wrong[audit.issues()].mean() > 0.8


@pytest.mark.slow
def test_label_studio_page_corrects_the_labels(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = run_page(TASKS / "label-studio.md", monkeypatch, {})
    assert names["before"] > 0.12
    assert names["after"] < 0.03


@pytest.mark.slow
def test_pytorch_page_learns_from_loaders_and_in_an_own_loop(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = run_page(TASKS / "pytorch.md", monkeypatch, {})
    assert names["accuracy"] > 0.85
    assert names["own_accuracy"] > 0.85
    for T in (names["method"].transition(), names["T"]()):
        assert volmin.transition_error(volmin.noise.pair(10, 0.35), T) < 0.25


def test_mixed_precision_page_learns(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run_page(TASKS / "mixed-precision.md", monkeypatch, {})["accuracy"] > 0.85


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_callbacks_page_logs(tmp_path, monkeypatch):
    pytest.importorskip("tensorboard")
    monkeypatch.chdir(tmp_path)
    names = run_page(TASKS / "callbacks.md", monkeypatch, {})
    assert len(names["watch"].rates) == 5
    assert len(Path("logs/epochs.csv").read_text().splitlines()) == 6
    assert list(Path("logs/board").iterdir())


def test_mlflow_example_logs_every_epoch(tmp_path, monkeypatch):
    """With a stand-in for MLflow, which the tests do not install."""
    monkeypatch.chdir(tmp_path)
    page = (TASKS / "callbacks.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```\{.python .not-run\}\n(.*?)^```", page, re.S | re.M)
    logged = []
    stand_in = types.SimpleNamespace(
        start_run=contextlib.nullcontext,
        log_param=lambda name, value: logged.append((name, value)),
        log_metrics=lambda figures, step: logged.append((step, sorted(figures))),
    )
    monkeypatch.setitem(sys.modules, "mlflow", stand_in)
    loader = TensorLoader(torch.randn(20, 3), torch.arange(20) % 2)

    class Short(methods.VolMinNet):
        recipe_changes: ClassVar[Mapping[str, Any]] = {"epochs": 2}

    names = {"volmin": volmin, "Callback": Callback, "train_loader": loader, "val_loader": loader}
    exec(block, names | {"method": Short(networks.mlp(3, 2), 2)})
    figures = ["seconds", "train_loss", "val_accuracy", "val_loss"]
    assert logged == [("method", "Short"), (1, figures), (2, figures)]


def test_checkpoints_page_resumes_stops_and_loads(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = run_page(TASKS / "checkpoints.md", monkeypatch, {})
    assert len(names["history"]) < 200
    x = names["digits"].test.x
    assert torch.equal(names["loaded"](x), names["method"](x))
    whole, eight = names["train"](8), names["train"](8, checkpoint="last.ckpt")
    assert torch.equal(whole[0](x), eight[0](x))


def test_predict_page_trains_predicts_and_repeats(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_page(TASKS / "predict.md", monkeypatch, {})
    found = pl.read_csv("predictions.csv")
    assert found.columns == ["length", "colour", "predicted", "probability"]
    assert sum(a == b for a, b in zip(found["predicted"], ["rose", "iris"] * 10, strict=True)) >= 18
    (first,), (second,) = Path("runs").iterdir(), Path("again").iterdir()
    assert (first / "model.safetensors").read_bytes() == (second / "model.safetensors").read_bytes()


@pytest.mark.cluster
def test_script_for_several_devices_runs(tmp_path):
    page = (TASKS / "several-devices.md").read_text(encoding="utf-8")
    (script,) = re.findall(r"^```python\n(.*?)^```", page, re.S | re.M)
    (tmp_path / "train.py").write_text(script)
    done = subprocess.run(
        [sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=500
    )
    (accuracy,) = re.findall(r"clean accuracy ([\d.]+)%", done.stdout)
    assert float(accuracy) > 80


@pytest.mark.slow
def test_annotators_tutorial_finds_consensus_spammer_and_copies(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = run_page(TASKS / "annotators.md", monkeypatch, {})
    assert names["consensus_accuracy"] > 0.97
    assert names["classifier_accuracy"] > 0.9
    shown = capsys.readouterr().out
    assert "ann is the most accurate annotator" in shown
    assert "The answers of dee hardly depend on the class" in shown
    assert "bob and eve give the same answer" in shown
