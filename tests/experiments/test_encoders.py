"""Encoders of texts and images, any callable, from training to prediction; they are not part of a run."""

import sys
import types

import numpy as np
import polars as pl
import pytest
from PIL import Image

from volmin import load_run
from volmin.data import load_dataset
from volmin.data.encoders import NamedEncoder, named_encoder
from volmin.exceptions import DataError, InputError
from volmin.experiments import run, spec
from volmin.experiments.source import DataSource

WORDS = {"ham": ["meeting", "lunch", "report", "agenda"], "spam": ["winner", "prize", "cheap", "click"]}


def messages(count, seed=0):
    """Texts of two classes that differ in a few words, with 10 % wrong labels in ``label``."""
    generator = np.random.default_rng(seed)
    truth = generator.choice(list(WORDS), count)
    wrong = generator.random(count) < 0.1
    texts = [" ".join(generator.choice([*WORDS[name], "the", "you", "is", "now", "please"], 9)) for name in truth]
    given = np.where(wrong, np.where(truth == "ham", "spam", "ham"), truth)
    return pl.DataFrame({"text": texts, "length": [len(text) for text in texts], "label": given, "truth": truth})


def word_counts(texts):
    return [[sum(text.count(word) for word in words) for words in WORDS.values()] for text in texts]


def trained(folder, source):
    chosen = spec.resolve(source.kind, "none", "cross_entropy", epochs=6, data=source.identity(), rows=source.rows)
    run.run(run.set_up(chosen, dataset=source.load()), folder)
    return chosen.folder(folder)


def test_text_encoder_from_training_to_prediction(tmp_path):
    messages(300).write_csv(tmp_path / "mail.csv")
    encoder = named_encoder(word_counts)
    source = DataSource(str(tmp_path / "mail.csv"), label="label", ignore=("truth", "length"), text_encoder=encoder)
    data = source.load()
    assert data.input_shape == (2,)
    assert source.identity()["text_encoder"] == "word_counts"
    folder = trained(tmp_path / "runs", source)
    new = messages(100, seed=1)
    found = load_run(folder, text_encoder=word_counts)
    assert (found.predict(new) == new["truth"].to_numpy()).mean() > 0.9
    # The centre and the scale are those of the training, whatever is predicted.
    np.testing.assert_allclose(found.predict_proba(new[:1]), found.predict_proba(new)[:1], atol=1e-6)
    with pytest.raises(DataError, match=r"The encoder of the column 'text', word_counts, is not part of the run"):
        load_run(folder).predict(new)
    with pytest.raises(DataError, match="gave 2 numbers in training, but gives 3 now"):
        load_run(folder, text_encoder=lambda texts: np.zeros((len(texts), 3))).predict(new)


def test_encoder_of_other_files_is_refused(tmp_path):
    messages(60).write_csv(tmp_path / "mail.csv")
    first, second = (NamedEncoder("model", word_counts, digest) for digest in ("abc", "def"))
    data = load_dataset(tmp_path / "mail.csv", label="label", ignore=["truth"], text_encoder=first)
    assert data.encoder is not None
    from volmin.data.tables import TableEncoder

    TableEncoder.from_json(dict(data.encoder), first)
    with pytest.raises(DataError, match="The encoder of the training was model"):
        TableEncoder.from_json(dict(data.encoder), second)


def colours(root, count):
    """Images of two classes that their mean colour tells apart."""
    generator = np.random.default_rng(0)
    for place in range(count):
        name = ("red", "blue")[place % 2]
        pixels = generator.integers(0, 120, (12, 20, 3))
        pixels[..., 0 if name == "red" else 2] += 100
        (root / name).mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.astype(np.uint8)).save(root / name / f"{place}.png")


def mean_colours(images):
    return np.array([np.asarray(image).mean(axis=(0, 1)) for image in images])


def test_image_encoder_from_training_to_prediction(tmp_path):
    colours(tmp_path / "images", 80)
    source = DataSource(str(tmp_path / "images"), image_encoder=named_encoder(mean_colours))
    assert source.kind == "table"  # the recipe of features, not of pixels
    assert source.load().input_shape == (3,)
    folder = trained(tmp_path / "runs", source)
    paths = sorted((tmp_path / "images").rglob("*.png"))
    found = load_run(folder, image_encoder=mean_colours)
    assert found.predict(paths).tolist() == [path.parent.name for path in paths]
    from volmin.experiments.predictions import predict_file

    written = predict_file(found, tmp_path / "images", tmp_path / "out.csv")
    assert written["predicted"].to_list() == [name.split("/")[0] for name in written["file"]]
    with pytest.raises(DataError, match="encoder of the images, mean_colours, is not part of the run"):
        predict_file(load_run(folder), tmp_path / "images", tmp_path / "none.csv")


def test_encoders_need_fitting_data(tmp_path):
    messages(60).write_csv(tmp_path / "mail.csv")
    colours(tmp_path / "images", 12)
    for path, options, message in (
        (tmp_path / "mail.csv", {"label": "label", "image_encoder": mean_colours}, "leave out the image encoder"),
        (tmp_path / "images", {"text_encoder": word_counts}, "leave out the text encoder"),
        ("digits", {"text_encoder": word_counts}, "and encoders"),
    ):
        with pytest.raises((DataError, InputError), match=message):
            load_dataset(path, **options)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="must be a function"):
        load_dataset(tmp_path / "mail.csv", label="label", text_encoder="all-MiniLM")  # type: ignore[arg-type]


class FakeSentences:
    """Stands for sentence_transformers.SentenceTransformer."""

    def __init__(self, folder, **options):
        assert options["local_files_only"]

    def encode(self, texts, **_):
        return np.array(word_counts(texts))


def test_train_and_predict_from_the_command_line(command, tmp_path, monkeypatch):
    module = types.SimpleNamespace(SentenceTransformer=FakeSentences)
    monkeypatch.setitem(sys.modules, "sentence_transformers", module)
    monkeypatch.setattr("pooch.os_cache", lambda name: tmp_path / "cache" / name)
    for name in ("model", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "weights.txt").write_text(name)
    messages(200).write_csv(tmp_path / "mail.csv")
    new = messages(50, seed=1)
    new.drop("label").write_csv(tmp_path / "new.csv")
    options = ["--dataset", tmp_path / "mail.csv", "--label", "label", "--ignore", "truth", "--epochs", 5]
    runs = tmp_path / "runs"
    code, _, err = command("train", *options, "--text-encoder", tmp_path / "model", "--out", runs)
    assert code == 0, err
    (folder,) = runs.iterdir()
    out = tmp_path / "predictions.csv"
    predict = ["predict", folder, tmp_path / "new.csv", "--out", out]
    code, _, err = command(*predict, "--text-encoder", tmp_path / "model")
    assert code == 0, err
    assert np.mean((pl.read_csv(out)["predicted"] == new["truth"]).to_numpy()) > 0.9
    out.unlink()
    for more, message in (
        ([], "is not part of the run: give it"),
        (["--text-encoder", tmp_path / "other"], "but other"),
    ):
        code, _, err = command(*predict, *more)
        assert code == 2
        assert message in err
        assert len(err.strip().splitlines()) == 1
        assert not out.exists()
    repeated = ["train", "--spec", folder, "--dataset", tmp_path / "mail.csv", "--out", tmp_path / "again"]
    code, _, err = command(*repeated)
    assert code == 2
    assert "text_encoder differ" in err
    assert command(*repeated, "--text-encoder", tmp_path / "model").code == 0
    (again,) = (tmp_path / "again").iterdir()
    assert (again / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()
