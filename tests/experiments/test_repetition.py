"""Runs in other precisions, with early stopping, and repeated from their specs."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from volmin.exceptions import InputError
from volmin.experiments import spec
from volmin.experiments.plan import shared_training
from volmin.experiments.records import read_records
from volmin.experiments.repetition import read_spec
from volmin.training import Recipe

TRAIN = ("train", "--noise", "pair:0.2", "--method", "volminnet", "--set", "lam=0.001", "--seed", "3", "--epochs", "6")
RECORDS = Path(__file__).parents[2] / "results"


def only(folder):
    (found,) = folder.iterdir()
    return found


def result(folder):
    return json.loads((folder / "result.json").read_text())


@pytest.fixture(scope="module")
def flowers(tmp_path_factory):
    """Two classes of unequal size, and a column that tells them apart."""
    generator = np.random.default_rng(0)
    y = np.arange(300) % 5 == 0
    path = tmp_path_factory.mktemp("flowers") / "flowers.csv"
    kind = np.where(y, "rare", "common")
    pl.DataFrame({"size": generator.normal(size=300) + 4 * y, "colour": "red", "kind": kind}).write_csv(path)
    return path


def test_spec_of_a_run_without_the_new_settings_is_as_before():
    assert not {"precision", "patience"} & spec.resolve("digits", "pair:0.2", "forward").as_json().keys()
    records = [record for record in read_records(RECORDS) if ":" not in record.spec["method"]]
    assert len(records) > 10
    for record in records[::7]:
        recipe = Recipe(**record.spec["recipe"])
        assert spec.RunSpec(**{**record.spec, "recipe": recipe}).as_json() == {
            **record.spec,
            "recipe": json.loads(json.dumps(vars(recipe))),
        }


def test_precision_and_patience_are_part_of_the_spec():
    plain = spec.resolve("digits", "pair:0.2", "forward")
    changed = spec.resolve("digits", "pair:0.2", "forward", precision="bf16-mixed", patience=4)
    assert plain.folder(Path()) != changed.folder(Path())
    assert (changed.as_json()["precision"], changed.as_json()["patience"]) == ("bf16-mixed", 4)
    assert shared_training(plain) is not None
    assert shared_training(changed) is None, "its first phase may end sooner"


def test_accelerated_network_is_not_used_in_mixed_precision(command, tmp_path):
    assert not spec.resolve("mnist", "pair:0.2", "volminnet", precision="bf16-mixed").accelerated
    done = command("train", "--precision", "bf16-mixed", "--accelerate", "--out", tmp_path)
    assert done.code == 2
    assert "Accelerated networks compute in single precision: leave out --precision bf16-mixed" in done.err


def test_spec_repeats_a_run_exactly(command, tmp_path):
    given = ("--precision", "16-mixed", "--patience", "2", "--out", tmp_path / "first")
    assert command(*TRAIN, *given).code == 0
    first = only(tmp_path / "first")
    assert command("train", "--spec", first / "spec.json", "--out", tmp_path / "second").code == 0
    second = only(tmp_path / "second")
    assert second.name == first.name
    for name in ("spec.json", "model.safetensors", "transition.npy", "encoder.json"):
        assert (second / name).read_bytes() == (first / name).read_bytes()
    assert "already finished" in command("train", "--spec", first, "--out", tmp_path / "second").out


def test_spec_of_own_data_needs_the_same_data(command, tmp_path, flowers, monkeypatch):
    train = ("train", "--method", "cross_entropy", "--epochs", "2", "--dataset", flowers, "--label", "kind")
    assert command(*train, "--out", tmp_path / "first").code == 0
    first = only(tmp_path / "first")
    monkeypatch.chdir(tmp_path)
    repeat = ("train", "--spec", first / "spec.json", "--out", tmp_path / "second")
    elsewhere = command(*repeat)
    assert elsewhere.code == 2
    assert "run on flowers.csv, which is not in this folder: give its path (--dataset)" in elsewhere.err
    assert command(*repeat, "--dataset", flowers).code == 0
    assert only(tmp_path / "second").name == first.name
    Path("flowers.csv").write_text(flowers.read_text().replace("rare", "rear", 1))
    changed = command(*repeat)
    assert changed.code == 2
    assert "flowers.csv is not the data of the spec: sha256 differ" in changed.err


def test_other_options_beside_a_spec_are_refused(command, tmp_path):
    done = command("train", "--spec", tmp_path, "--epochs", "3", "--set", "lam=0.1", "--no-accelerate")
    assert done.code == 2
    assert "A spec repeats a run exactly: leave out --accelerate, --epochs, --set, or leave out --spec." in done.err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"method": "antigravity:Method"}, "not part of volmin; if you trust it, add --method antigravity:Method"),
        ({"wings": 2}, "unknown fields wings"),
        ({"seed": "one"}, "seed cannot be 'one'"),
        ({"patience": 0}, "patience cannot be 0"),
        ({"precision": "64"}, "precision must be one of"),
        ({"options": {"lamda": 1}}, "no option 'lamda'"),
        ({"recipe": {"epochs": 0}}, "epochs must be a whole number"),
        ({"recipe": {"speed": 0}}, "speed"),
        ({"network": "brain"}, "Unknown network 'brain'"),
        ({"dataset": "imagenet"}, "dataset cannot be 'imagenet'"),
        (None, "the fields dataset, method"),
        ("text", "not the spec of a run"),
    ],
)
def test_damaged_spec_is_one_line(command, tmp_path, change, message):
    content = spec.resolve("digits", "pair:0.2", "volminnet").as_json()
    text = "{" if change == "text" else json.dumps({} if change is None else content | change)
    (tmp_path / "spec.json").write_text(text)
    done = command("train", "--spec", tmp_path / "spec.json", "--out", tmp_path / "runs")
    assert done.code == 2
    assert message in done.err
    assert len(done.err.strip().splitlines()) == 1
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("name", ["spec.json", ""])
def test_missing_spec_is_reported(tmp_path, name):
    with pytest.raises(InputError, match="There is no spec at .*spec.json: give the folder of a run"):
        read_spec(tmp_path / name)


def test_spec_read_again_is_the_same(tmp_path):
    chosen = spec.resolve("digits", "pair:0.2", "volminnet", options={"lam": 0.01}, patience=3)
    (tmp_path / "spec.json").write_text(json.dumps(chosen.as_json()))
    assert read_spec(tmp_path) == chosen


def test_own_data_has_a_balanced_accuracy_and_a_baseline(command, tmp_path, flowers):
    train = ("train", "--epochs", "8", "--dataset", flowers, "--label", "kind", "--out", tmp_path)
    done = command(*train, "--method", "cross_entropy")
    found = result(only(tmp_path))
    assert found["majority_baseline"] == pytest.approx(0.8, abs=0.01)
    assert 0.8 < found["balanced_accuracy"] <= 1
    assert "balanced accuracy" in done.out
    assert "majority baseline" in done.out
