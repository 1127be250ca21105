from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from PIL import Image

from volmin import load_dataset
from volmin.exceptions import DataError, InputError


def table(tmp_path, count=60, **columns):
    generator = np.random.default_rng(0)
    content = {"x": generator.normal(size=count), "y": ["b", "a", "c"] * (count // 3)} | columns
    pl.DataFrame(content).write_csv(tmp_path / "t.csv")
    return tmp_path / "t.csv"


def test_table_is_a_data_set_with_given_labels(tmp_path):
    data = load_dataset(table(tmp_path), label="y")
    assert data.classes == ("a", "b", "c")
    assert (len(data.train), len(data.test)) == (48, 12)
    assert np.bincount(data.test.y).tolist() == [4, 4, 4]
    assert data.input_shape == (1,)
    assert not data.clean_train
    assert not data.clean_test
    assert data.noisy is None


def test_features_are_standardised_by_training_rows_only(tmp_path):
    plain = load_dataset(table(tmp_path), label="y")
    assert plain.train.tensor.mean().abs() < 1e-6
    assert (plain.train.tensor.std(correction=0) - 1).abs() < 1e-6
    assert plain.test.tensor.mean().abs() > 1e-3


def test_true_labels_are_test_labels_and_not_a_feature(tmp_path):
    truth = ["b", "a", "c"] * 20
    truth[:6] = ["d"] * 6
    data = load_dataset(
        table(tmp_path, truth=truth, other=np.arange(60) % 7), label="y", clean="truth", ignore=["other"]
    )
    assert data.classes == ("a", "b", "c", "d")
    assert data.clean_test
    assert data.input_shape == (1,)
    assert data.noisy is not None
    differ = data.noisy != data.train.y
    assert (data.train.y[differ] == 3).all()
    assert differ.sum() + (data.test.y == 3).sum() == 6
    mixed = load_dataset(table(tmp_path, y=[1, 2, 3] * 20, truth=["1", "2", "x"] * 20), label="y", clean="truth")
    assert mixed.classes == ("1", "2", "3", "x")


def test_folder_of_images_is_a_data_set(tmp_path):
    for name, colour in (("dark", 40), ("light", 200)):
        (tmp_path / name).mkdir()
        for i in range(10):
            Image.new("L", (17, 18), colour + i).save(tmp_path / name / f"{i}.png")
    data = load_dataset(tmp_path)
    assert data.classes == ("dark", "light")
    assert data.train.x.shape == (16, 1, 18, 17)
    assert data.train.x.dtype == torch.uint8
    scaled = data.normalize(data.train.tensor)
    assert scaled.mean().abs() < 1e-5
    assert (scaled.std() - 1).abs() < 1e-2
    with pytest.raises(DataError, match="leave out label"):
        load_dataset(tmp_path, label="y")
    with pytest.raises(InputError, match="keep their size"):
        data.resized(8)


def test_progress_of_decoding_is_reported(tmp_path):
    for name in ("dark", "light"):
        (tmp_path / name).mkdir()
        for i in range(3):
            Image.new("L", (17, 18)).save(tmp_path / name / f"{i}.png")
    reports = []
    load_dataset(tmp_path, progress=lambda *report: reports.append(report))
    titles = ("reading image sizes", "decoding images")
    assert reports == [(title, done, 6) for title in titles for done in range(7)]


def test_invalid_arguments_are_explained(tmp_path):
    path = table(tmp_path)
    (tmp_path / "few.csv").write_text("x,y\n1,a\n2,b\n3,b\n")
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"name": path}, "Name the label column .* It has: x, y"),
        ({"name": path, "label": "z"}, "no column 'z'"),
        ({"name": path, "label": "y", "clean": "z"}, "no column 'z'"),
        ({"name": path, "label": "y", "ignore": ["x"]}, "no feature columns"),
        (
            {"name": tmp_path / "nowhere.csv"},
            "Unknown data set .*nowhere.csv.* Choose one of: digits, .* or give the path",
        ),
        ({"name": "digits", "label": "y"}, "no columns to choose from"),
        ({"name": tmp_path / "few.csv", "label": "y"}, "too few"),
    )
    for arguments, message in cases:
        with pytest.raises(ValueError, match=message):
            load_dataset(**arguments)
