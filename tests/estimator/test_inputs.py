"""Sparse rows, weights, rows without a label, frames, saving and loading."""

import json
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
import torch
from safetensors.torch import load_file, save_file
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_wine, make_blobs
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from torch import nn

from volmin import NoisyLabelClassifier, noise
from volmin.exceptions import DataError, VolminError

QUICK: dict[str, Any] = {"epochs": 2, "random_state": 0}


def blobs(count=120):
    X, y = make_blobs(count, centers=3, random_state=0)[:2]
    return np.asarray(X), np.asarray(y)


@pytest.mark.parametrize("settings", [{}, QUICK])
def test_sparse_rows_are_never_made_dense_as_a_whole(settings: dict[str, Any], monkeypatch):
    """Of 2,000 columns, a dense batch has 8 rows."""
    generator = np.random.default_rng(0)
    y = np.arange(120) % 2
    columns = generator.integers(0, 20, size=(120, 5)) + 20 * y[:, None]
    X: Any = scipy.sparse.csr_matrix((np.ones(600), (np.repeat(np.arange(120), 5), columns.ravel())), (120, 2_000))
    if settings:
        X = X[:, :50]  # a perceptron on a million columns would be large itself
    monkeypatch.setattr("volmin.estimator.loader.LARGEST_DENSE", 8 * X.shape[1])
    largest = 0
    original = scipy.sparse.csr_matrix.toarray

    def toarray(matrix, *arguments, **options):
        nonlocal largest
        largest = max(largest, matrix.shape[0])
        return original(matrix, *arguments, **options)

    monkeypatch.setattr(scipy.sparse.csr_matrix, "toarray", toarray)
    classifier = NoisyLabelClassifier(**settings).set_params(random_state=0).fit(X, y)
    assert (classifier.predict(X) == y).mean() > 0.9
    assert 0 < largest <= 16


def test_dense_and_sparse_rows_give_the_same_network():
    X, y = blobs()
    dense, sparse = (NoisyLabelClassifier("cross_entropy", **QUICK).fit(x, y) for x in (X, scipy.sparse.csr_matrix(X)))
    assert dense.score(X, y) > 0.9
    assert sparse.score(X, y) > 0.9


@pytest.mark.parametrize("settings", [{}, {"epochs": 5}])
def test_weights_decide_between_contradicting_labels(settings: dict[str, Any]):
    X, y = blobs(200)
    X2, y2, weight = np.vstack([X, X]), np.r_[y, (y + 1) % 3], np.r_[np.full(200, 0.05), np.ones(200)]
    classifier = (
        NoisyLabelClassifier("volminnet", **settings).set_params(random_state=0).fit(X2, y2, sample_weight=weight)
    )
    assert (classifier.predict(X) == (y + 1) % 3).mean() > 0.9


def test_class_weights_shift_the_prediction():
    X = np.random.default_rng(0).normal(size=(300, 2))
    y = np.r_[np.zeros(250, int), np.ones(50, int)]
    shares = [
        (NoisyLabelClassifier(class_weight=weight, random_state=0).fit(X, y).predict_proba(X)[:, 1]).mean()
        for weight in (None, "balanced", {0: 1, 1: 100})
    ]
    assert shares[0] < shares[1] < shares[2]
    with pytest.raises(VolminError, match="names the label 7"):
        NoisyLabelClassifier(class_weight={7: 2}).fit(X, y)


@pytest.mark.parametrize("missing", [None, np.nan, -1])
def test_rows_without_a_label_are_left_out(missing):
    X, y = blobs()
    labels = [missing if row % 4 == 0 else int(label) for row, label in enumerate(y)]
    found = NoisyLabelClassifier(unlabelled=-1, random_state=0).fit(X, labels)
    kept = np.arange(len(y)) % 4 != 0
    alone = NoisyLabelClassifier(random_state=0).fit(X[kept], y[kept])
    assert found.classes_.tolist() == [0, 1, 2]
    np.testing.assert_array_equal(found.predict_proba(X), alone.predict_proba(X))


def test_minus_one_is_a_class_unless_said_otherwise():
    X, y = blobs()
    assert NoisyLabelClassifier(random_state=0).fit(X, np.where(y == 0, -1, y)).classes_.tolist() == [-1, 1, 2]
    with pytest.raises(VolminError, match="No row has a label"):
        NoisyLabelClassifier().fit(X, [None] * len(y))


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_frames_with_categories_go_through_a_pipeline(frame):
    y = np.array(["no", "yes"] * 60)
    table = frame({"colour": np.where(y == "yes", "red", "blue").tolist(), "size": np.arange(120.0).tolist()})
    columns = make_column_transformer((OneHotEncoder(), ["colour"]), (StandardScaler(), ["size"]))
    model = make_pipeline(columns, NoisyLabelClassifier(random_state=0)).fit(table, y)
    assert (model.predict(table) == y).all()


def test_names_of_columns_are_kept_after_set_output():
    wine: Any = load_wine(return_X_y=True, as_frame=True)
    X, y = wine
    model = make_pipeline(StandardScaler(), NoisyLabelClassifier(random_state=0)).set_output(transform="pandas")
    model.fit(X, y)
    assert model[-1].feature_names_in_.tolist() == X.columns.tolist()


def test_decision_function_agrees_with_probabilities():
    X, y = blobs()
    several = NoisyLabelClassifier(random_state=0).fit(X, y)
    np.testing.assert_allclose(np.exp(several.decision_function(X)), several.predict_proba(X))
    two = NoisyLabelClassifier(random_state=0).fit(X, y == 1)
    np.testing.assert_allclose(1 / (1 + np.exp(-two.decision_function(X))), two.predict_proba(X)[:, 1], atol=1e-9)


def test_threads_do_not_change_the_result():
    X, y = blobs()
    one, two = (NoisyLabelClassifier(random_state=0, n_jobs=jobs).fit(X, y).predict_proba(X) for jobs in (1, 2))
    assert one.tobytes() == two.tobytes()


def test_representations_are_short():
    classifier = NoisyLabelClassifier(options={"lam": 0.0})
    assert repr(classifier) == "NoisyLabelClassifier(options={'lam': 0.0})"
    assert "NoisyLabelClassifier" in classifier._repr_html_()


def test_search_over_networks():
    X, y = blobs()
    search = GridSearchCV(NoisyLabelClassifier(**QUICK), {"network": ["mlp", "linear"]}, cv=2).fit(X, y)
    assert search.best_score_ > 0.8


@pytest.mark.parametrize("precision", ["32", "bf16-mixed", "16-mixed"])
def test_a_network_is_trained_in_the_given_precision(precision):
    X, y = blobs(300)
    noisy = noise.corrupt(y, noise.pair(3, 0.2), 0)
    classifier = NoisyLabelClassifier(precision=precision, epochs=20, random_state=0).fit(X, noisy)
    assert classifier.score(X, y) > 0.9
    single = NoisyLabelClassifier(epochs=20, random_state=0).fit(X, noisy)
    assert (classifier.predict_proba(X).tobytes() == single.predict_proba(X).tobytes()) == (precision == "32")


def test_patience_ends_training():
    X, y = blobs(300)
    noisy = noise.corrupt(y, noise.pair(3, 0.2), 0)
    patient = NoisyLabelClassifier(epochs=100, patience=2, random_state=0).fit(X, noisy)
    best = np.argmin([record["val_loss"] for record in patient.history_])
    assert len(patient.history_) == best + 3 < 100
    assert patient.candidates_ == (), "a setting of the training trains a network"


def test_unknown_network_is_rejected():
    with pytest.raises(VolminError, match='network must be "auto", "linear", "mlp"'):
        NoisyLabelClassifier(network="deep").fit(*blobs())  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    "settings",
    [{}, {"network": "linear"}, QUICK, {"method": "cross_entropy", **QUICK}, {"class_weight": {"a": 2.0}}],
)
def test_a_loaded_classifier_predicts_the_same_bits(settings: dict[str, Any], tmp_path):
    X, y = blobs()
    y = noise.corrupt(y, noise.pair(3, 0.2), 0)
    labels = np.array(["a", "b", "c"])[y]
    classifier = NoisyLabelClassifier(**settings).set_params(random_state=0).fit(X, labels)
    classifier.save(tmp_path / "model")
    assert {path.suffix for path in (tmp_path / "model").iterdir()} == {".json", ".safetensors"}
    loaded = NoisyLabelClassifier.load(tmp_path / "model")
    assert loaded.predict_proba(X).tobytes() == classifier.predict_proba(X).tobytes()
    assert loaded.get_params() == classifier.get_params()
    assert loaded.predict(X).tolist() == classifier.predict(X).tolist()
    np.testing.assert_array_equal(loaded.transition_matrix_, classifier.transition_matrix_)


def test_a_network_of_the_user_is_given_again(tmp_path):
    X, y = blobs()
    net = nn.Linear(2, 3)
    classifier = NoisyLabelClassifier(network=net, **QUICK).fit(X, y)
    classifier.save(tmp_path)
    with pytest.raises(VolminError, match="network of yours"):
        NoisyLabelClassifier.load(tmp_path)
    loaded = NoisyLabelClassifier.load(tmp_path, network=nn.Linear(2, 3))
    np.testing.assert_array_equal(loaded.predict_proba(X), classifier.predict_proba(X))


def test_damaged_and_foreign_files_are_refused(tmp_path):
    X, y = blobs()
    NoisyLabelClassifier(random_state=0).fit(X, y).save(tmp_path)
    with pytest.raises(DataError, match="no saved classifier"):
        NoisyLabelClassifier.load(tmp_path / "elsewhere")
    weights = load_file(tmp_path / "weights.safetensors")
    save_file({name: torch.zeros_like(value) for name, value in weights.items()}, tmp_path / "weights.safetensors")
    with pytest.raises(VolminError):
        NoisyLabelClassifier.load(tmp_path)
    description = json.loads((tmp_path / "classifier.json").read_text())
    description["layers"] = [{"layer": "Exec", "sizes": []}]
    (tmp_path / "classifier.json").write_text(json.dumps(description))
    with pytest.raises(VolminError):
        NoisyLabelClassifier.load(tmp_path)
