"""Runs on the user's own data and on labels from files, and predictions for new rows."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from PIL import Image

from volmin import load_dataset, load_run, noise, transition_error
from volmin.exceptions import DamagedFileError, DataError, InputError
from volmin.experiments import run, spec
from volmin.experiments.folder import read_result
from volmin.experiments.source import DataSource
from volmin.io.sealed import write_sealed_json

NAMES = np.array(["left", "right", "up"])
T = noise.pair(3, 0.3)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Three clouds in the plane with 30 % pair noise, a text column and a column with missing values."""
    generator = np.random.default_rng(0)
    y = np.arange(900) % 3
    centres = np.array([[-4, 0], [4, 0], [0, 4]])
    x = centres[y] + generator.normal(size=(900, 2))
    path = tmp_path_factory.mktemp("data") / "clouds & co.csv"
    frame = pl.DataFrame(
        {
            "a": x[:, 0], "b": x[:, 1], "side": np.where(x[:, 0] > 0, "east, say", "west"),
            "gap": [None if i % 5 else float(i % 7) for i in range(900)],
            "given": NAMES[noise.corrupt(y, T, 0)], "truth": NAMES[y],
        }
    )  # fmt: skip
    frame.write_csv(path)
    return path


def resolve(source, **changes):
    settings = {"method": "volminnet", "epochs": 10} | changes
    return spec.resolve(source.kind, source.check_noise(None), data=source.identity(), rows=source.rows, **settings)


@pytest.fixture(scope="module")
def finished(table, tmp_path_factory):
    source = DataSource(str(table), label="given", clean="truth")
    out = tmp_path_factory.mktemp("runs")
    result = run.run(run.set_up(resolve(source), dataset=source.load()), out)
    (folder,) = out.iterdir()
    return result, folder


def test_error_of_T_is_measured_against_true_labels(table, finished):
    result, folder = finished
    assert folder.name.startswith("clouds_co-none-volminnet-s1-")
    assert result["test_labels"] == "clean"
    assert result["accuracy"] > 0.95
    assert result["transition_error"] < 0.15
    assert transition_error(T, np.load(folder / "transition.npy")) < 0.15


def test_no_error_of_T_without_true_labels(table, tmp_path):
    source = DataSource(str(table), label="given", ignore=("truth",))
    result = run.run(run.set_up(resolve(source), dataset=source.load()), tmp_path)
    assert result["test_labels"] == "given"
    assert result["transition_error"] is None
    assert 0.55 < result["accuracy"] < 0.85, "the test labels are as noisy as the others"
    assert result["noise_rate_estimate"] == pytest.approx(0.3, abs=0.07)
    (metrics,) = tmp_path.glob("*/metrics.jsonl")
    assert "transition_error" not in json.loads(metrics.read_text().splitlines()[0])


def test_changed_file_or_column_gives_another_folder(table, tmp_path):
    copy = tmp_path / table.name
    copy.write_bytes(table.read_bytes())
    folder = resolve(DataSource(str(table), label="given", clean="truth")).folder(tmp_path)
    assert resolve(DataSource(str(copy), label="given", clean="truth")).folder(tmp_path) == folder
    assert resolve(DataSource(str(copy), label="given", ignore=("truth",))).folder(tmp_path) != folder
    copy.write_bytes(table.read_bytes().replace(b"west", b"West", 1))
    assert resolve(DataSource(str(copy), label="given", clean="truth")).folder(tmp_path) != folder


def test_named_data_set_needs_no_identity():
    source = DataSource("digits")
    assert (source.kind, source.identity(), source.rows, source.check_noise(None)) == ("digits", {}, None, "pair:0.45")
    assert "data" not in spec.resolve("digits", "pair:0.45", "volminnet").as_json()


def test_finished_run_predicts_new_rows(table, finished):
    _, folder = finished
    trained = load_run(folder)
    assert trained.classes == ("left", "right", "up")
    assert trained.transition is not None
    assert np.allclose(trained.transition, np.load(folder / "transition.npy"))
    frame = pl.read_csv(table)
    truth = frame["truth"].to_numpy()
    predicted = trained.predict(table)
    assert np.mean(predicted == truth) > 0.95
    probs = trained.predict_proba(frame.drop("given", "truth"))
    assert probs.shape == (900, 3)
    assert np.allclose(probs.sum(1), 1, atol=1e-6)
    assert (np.array(trained.classes)[probs.argmax(1)] == predicted).all()
    as_pandas = pd.DataFrame(frame.to_dict(as_series=False))
    assert np.allclose(trained.predict_proba(as_pandas), probs)
    odd = frame.head(1).with_columns(side=pl.lit("never seen"), a=pl.lit(None), gap=pl.lit(1e300))
    assert np.isfinite(trained.predict_proba(odd)).all()
    with pytest.raises(DataError, match="lacks columns that the encoding needs: a, side"):
        trained.predict(frame.drop("a", "side"))
    with pytest.raises(DataError, match=r"shape \(N, 7\), but are float64 of \(2, 2\)"):
        trained.predict(np.zeros((2, 2)))


def test_loaded_classifier_has_the_recorded_accuracy(table, finished):
    result, folder = finished
    data = DataSource(str(table), label="given", clean="truth").load()
    predicted = load_run(folder).predict(data.test.tensor)
    assert np.mean(predicted == np.array(data.classes)[data.test.y]) == pytest.approx(result["accuracy"])


def test_runs_that_cannot_be_loaded_are_refused_with_the_reason(finished, tmp_path):
    _, folder = finished
    with pytest.raises(DataError, match="does not exist"):
        load_run(tmp_path / "nowhere")
    with pytest.raises(DataError, match="has not finished"):
        load_run(tmp_path)
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    assert load_run(tmp_path).classes
    content = json.loads((tmp_path / "spec.json").read_text())
    (tmp_path / "spec.json").write_text(json.dumps(content | {"method": "antigravity:Method"}))
    with pytest.raises(DamagedFileError, match="spec.json is damaged"):
        load_run(tmp_path)
    result = read_result(tmp_path) or {}
    write_sealed_json(tmp_path / "result.json", result)  # an attacker can compute a checksum too
    with pytest.raises(DataError, match="is not part of volmin: pass its class"):
        load_run(tmp_path)
    (tmp_path / "spec.json").write_text(json.dumps(content))
    encoding = json.loads((tmp_path / "encoder.json").read_text())
    del encoding["table"]["columns"][0]
    (tmp_path / "encoder.json").write_text(json.dumps(encoding))
    with pytest.raises(DataError, match="table's encoding does not give rows of the network's input shape"):
        load_run(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"nonsense")
    with pytest.raises(DataError, match="incomplete or damaged"):
        load_run(tmp_path)


def test_run_on_a_folder_of_images(tmp_path):
    generator = np.random.default_rng(0)
    for name, level in (("dark", 70), ("light", 180)):
        (tmp_path / "pets" / name).mkdir(parents=True)
        for i in range(40):
            pixels = generator.normal(level, 20, (16, 16)).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / "pets" / name / f"{i}.png")
    source = DataSource(str(tmp_path / "pets"))
    chosen = resolve(source, method="cross_entropy", epochs=3)
    result = run.run(run.set_up(chosen, dataset=source.load()), tmp_path / "runs")
    assert result["accuracy"] > 0.9
    trained = load_run(chosen.folder(tmp_path / "runs"))
    assert trained.transition is None
    paths = [tmp_path / "pets" / name / "0.png" for name in ("light", "dark")]
    assert trained.predict(paths).tolist() == ["light", "dark"]
    assert trained.predict(str(paths[0])).tolist() == ["light"]
    (tmp_path / "broken.png").write_text("no image")
    with pytest.raises(DataError, match="broken.png cannot be read"):
        trained.predict([tmp_path / "broken.png"])
    with pytest.raises(DataError, match="uint8"):
        trained.predict(np.zeros((2, 1, 16, 16)))
    before = chosen.folder(tmp_path)
    Image.new("L", (16, 16), 3).save(tmp_path / "pets" / "dark" / "0.png")
    assert resolve(DataSource(source.name), method="cross_entropy", epochs=3).folder(tmp_path) != before


def test_true_T_is_measured_for_labels_from_a_file(tmp_path, digits):
    noisy = noise.corrupt(digits.train.y, noise.pair(10, 0.35), 5)
    torch.save({"clean_label": digits.train.y, "worse_label": noisy}, tmp_path / "human.pt")
    source = DataSource("digits", labels=f"{tmp_path}/human.pt:worse_label")
    chosen = resolve(source, epochs=3)
    assert chosen.folder(tmp_path).name.startswith("digits-worse_label-volminnet-s1-")
    experiment = run.set_up(chosen, dataset=source.load())
    assert experiment.T is not None
    assert np.allclose(experiment.T, noise.measured(noisy, digits.train.y, 10))
    clean = run.set_up(spec.resolve("digits", "clean", "volminnet"), dataset=digits)
    trained_on, truth = (torch.cat([batch.y for batch in part.train]) for part in (experiment, clean))
    assert (trained_on == truth).double().mean().item() == pytest.approx(0.65, abs=0.03)
    result = run.run(experiment, tmp_path / "runs")
    estimate = np.load(chosen.folder(tmp_path / "runs") / "transition.npy")
    assert result["transition_error"] == pytest.approx(transition_error(experiment.T, estimate))
    assert result["test_labels"] == "clean"


def test_rows_without_a_label_in_the_file_are_left_out(tmp_path, digits):
    noisy = noise.corrupt(digits.train.y, noise.pair(10, 0.35), 5)
    labelled = np.arange(len(noisy)) % 3 == 0
    np.save(tmp_path / "third.npy", np.where(labelled, noisy, -1))
    found = DataSource("digits", labels=f"{tmp_path}/third.npy").load()
    assert found.noisy is not None
    assert found.noisy.tolist() == noisy[labelled].tolist()
    assert found.train.y.tolist() == digits.train.y[labelled].tolist()
    assert torch.equal(found.train.tensor, digits.train.tensor[labelled])


def test_labels_of_other_data_are_refused(tmp_path, digits):
    torch.save({"clean_label": digits.train.y[::-1].copy(), "worse_label": digits.train.y}, tmp_path / "human.pt")
    with pytest.raises(DataError, match="belongs to other images"):
        _ = DataSource("digits", labels=f"{tmp_path}/human.pt:worse_label").load()
    np.save(tmp_path / "few.npy", digits.test.y)
    with pytest.raises(DataError, match="360 labels, but the training part has 1437 rows"):
        _ = DataSource("digits", labels=f"{tmp_path}/few.npy").load()


def test_noise_is_not_added_to_noisy_labels(table, tmp_path):
    with pytest.raises(InputError, match="noisy already: leave out --noise pair:0.2"):
        DataSource(str(table), label="given", clean="truth").check_noise("pair:0.2")
    with pytest.raises(InputError, match="leave out --noise sym:0.2"):
        DataSource("digits", labels="a.npy").check_noise("sym:0.2")
    with pytest.raises(DataError, match="holds its own labels"):
        DataSource(str(table), label="given", labels="a.npy")
    assert DataSource(str(table), label="truth").check_noise("pair:0.2") == "pair:0.2"


@pytest.fixture
def table_of_images(tmp_path):
    """Two hundred small grey images, bright or dark, and a table that mislabels a tenth of them."""
    generator = np.random.default_rng(0)
    (tmp_path / "photos").mkdir()
    rows = ["file,given,true"]
    for number in range(200):
        bright = number % 2
        pixels = generator.integers(0, 100, (20, 20)) + 120 * bright
        Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / "photos" / f"{number}.png")
        names = ("dark", "bright")
        rows.append(f"photos/{number}.png,{names[bright ^ (number % 10 == 9)]},{names[bright]}")
    (tmp_path / "photos.csv").write_text("\n".join(rows))
    return tmp_path / "photos.csv"


def test_run_on_a_table_of_images(table_of_images, tmp_path, command):
    train = ["train", "--dataset", table_of_images, "--label", "given", "--clean", "true", "--images"]
    train += ["--size", "16", "--epochs", "6", "--method", "cross_entropy", "--out", tmp_path / "runs"]
    assert command(*train).code == 0
    (folder,) = (tmp_path / "runs").iterdir()
    content = json.loads((folder / "spec.json").read_text())
    assert content["dataset"] == "images"
    assert content["data"]["size"] == 16
    assert json.loads((folder / "result.json").read_text())["accuracy"] > 0.9
    # A changed image gives another run.
    Image.new("L", (20, 20), 90).save(tmp_path / "photos" / "7.png")
    assert command(*train).code == 0
    assert len(list((tmp_path / "runs").iterdir())) == 2


def test_table_of_images_with_true_labels(table_of_images):
    dataset = load_dataset(table_of_images, label="given", clean="true", images=True)
    assert dataset.input_shape == (1, 20, 20)
    assert dataset.noisy is not None
    assert 0 < (dataset.noisy != dataset.train.y).mean() < 0.2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--dataset", "digits", "--images"],
            "--ignore, --types, --text, --images, --size and encoders",
        ),
        (["--dataset", "{table}", "--label", "given", "--size", "16"], "a table of features, which have no size"),
        (["--dataset", "{table}", "--label", "given", "--images", "--ignore", "true"], "leave out ignore"),
        (["--dataset", "{table}", "--label", "given", "--images", "--clean", "tru"], "Did you mean 'true'"),
        (["--dataset", "digits", "--network", "resnet"], "Unknown network 'resnet'"),
        (["--dataset", "digits", "--network", "lenet5"], "use mlp"),
    ],
)
def test_options_that_do_not_fit_together_are_refused(table_of_images, tmp_path, command, options, message):
    given = [text.format(table=table_of_images) for text in options]
    done = command("train", *given, "--out", tmp_path / "runs")
    assert done.code == 2
    assert message in done.err


def test_network_is_part_of_the_spec():
    chosen = spec.resolve("cifar10", "sym:0.2", "volminnet", network="resnet18_padded")
    assert chosen.as_json()["network"] == "resnet18_padded"
    assert chosen.folder(Path()) != spec.resolve("cifar10", "sym:0.2", "volminnet").folder(Path())
