"""Rows without a label get suggestions with probabilities; weights act on shares and on nothing else."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.datasets import load_digits

import volmin
from volmin import noise
from volmin.auditing import Audit, apply_decisions
from volmin.exceptions import InputError


@pytest.fixture(scope="module")
def digits():
    """Features, true labels, noisy labels, and rows that shall have none."""
    x, truth = load_digits(return_X_y=True)
    labels = noise.corrupt(truth, noise.asymmetric(10, 0.2, seed=0), seed=0)
    return x, truth, labels, np.sort(np.random.default_rng(0).permutation(len(x))[:300])


@pytest.fixture(scope="module")
def audited(digits):
    x, _, labels, gone = digits
    given = [None if row in set(gone) else int(label) for row, label in enumerate(labels)]
    return volmin.audit(given, features=x, model="logistic", random_state=0)


def test_suggestions_are_as_often_right_as_their_probabilities_say(digits, audited):
    _, truth, _, gone = digits
    found = audited.unlabelled
    assert found["row"].to_list() == gone.tolist()
    right = audited.suggested[gone] == truth[gone]
    assert right.mean() > 0.9
    assert abs(right.mean() - found["probability"].mean()) < 0.04
    assert found["suggested"].to_list() == audited.suggested[gone].tolist()


def test_statements_are_about_labelled_rows_and_rows_keep_their_numbers(digits, audited):
    x, truth, labels, gone = digits
    rows = np.setdiff1d(np.arange(len(x)), gone)
    alone = volmin.audit(labels[rows], features=x[rows], model="logistic", random_state=0)
    assert audited.num_labels == len(alone) == 1497
    assert abs(audited.noise_rate - alone.noise_rate) < 0.03  # with other folds
    flagged = audited.issues()
    assert not np.isin(flagged, gone).any()
    assert not np.isin(audited.issues(fdr=0.2), gone).any()
    assert (labels[flagged] != truth[flagged]).mean() > 0.9
    frame = audited.frame()
    assert frame["row"].to_list() == list(range(len(x)))
    assert frame["given"].is_null().to_numpy().nonzero()[0].tolist() == gone.tolist()
    assert frame["probability_wrong"].null_count() == len(gone)
    assert audited.labels[gone[0]] is None
    assert audited.labels[rows[0]] == labels[rows[0]]
    assert "300 more rows have no label" in audited.summary()
    assert "1,497 labels" in repr(audited)
    assert "300 more rows" in audited._repr_html_()
    assert np.isin(audited.embedding[0], rows).all()
    assert np.array_equal(audited.embedding[0], rows)  # fewer rows than the map has room for
    check = audited.check(truth)
    assert check.rows == 1497
    assert check.precision > 0.9


@pytest.mark.parametrize("gap", [None, float("nan"), pd.NA])
def test_given_probabilities_suggest_too(gap):
    generator = np.random.default_rng(1)
    truth = generator.integers(3, size=900)
    labels = noise.corrupt(truth, noise.pair(3, 0.2), seed=0).astype(object)
    probs = noise.pair(3, 0.2).T[truth] * 0.9 + 0.1 * generator.dirichlet(np.ones(3), 900)
    labels[:100] = gap
    found = volmin.audit(pd.Series(labels), probs=probs)
    assert found.classes.dtype == np.int64
    assert (found.suggested[:100] == truth[:100]).mean() > 0.95
    assert found.unlabelled.height == 100


def test_column_of_integers_with_gaps_keeps_its_classes():
    labels = pl.Series([1, 2, None] * 20)  # floats with NaN as an array
    probs = np.eye(2)[np.arange(60) % 3 % 2] * 0.8 + 0.1
    probs[:6] = probs[:6, ::-1]
    found = volmin.audit(labels, probs=probs)
    assert found.classes.tolist() == [1, 2]
    assert found.num_labels == 40


def test_saved_audits_keep_suggestions_and_weights(digits, audited, tmp_path):
    x, _, labels, gone = digits
    audited.save(tmp_path, examples={"text": [f"<b>{row}</b>" for row in range(len(x))]})
    loaded = Audit.load(tmp_path)
    assert loaded.summary() == audited.summary()
    assert loaded.unlabelled["row"].to_list() == gone.tolist()
    np.testing.assert_array_equal(loaded.certainty, audited.certainty)
    written = pl.read_csv(tmp_path / "suggestions.csv")
    assert written["row"].to_list() == gone.tolist()
    page = (tmp_path / "report.html").read_text()
    assert "Rows without a label" in page
    surest = audited.unlabelled.sort("probability")["row"][-1]
    assert f"&lt;b&gt;{surest}&lt;/b&gt;" in page
    # Suggestions are decisions that fill in labels.
    given = [None if row in set(gone) else int(label) for row, label in enumerate(labels)]
    filled = apply_decisions(given, written.with_columns(decision=pl.lit("wrong")))
    assert filled.labels[gone].tolist() == audited.suggested[gone].tolist()
    assert filled.rows.tolist() == gone.tolist()
    assert [filled.labels[donor] for donor in filled.donors[gone] if donor not in gone] == filled.labels[gone].tolist()
    weighted = volmin.audit(labels, features=x, model="logistic", random_state=0, sample_weight=np.arange(len(x)) + 1)
    weighted.save(tmp_path)
    assert not (tmp_path / "suggestions.csv").exists()
    np.testing.assert_array_equal(Audit.load(tmp_path).weights, weighted.weights)


def test_all_labels_missing_is_an_error():
    with pytest.raises(InputError, match="All 3 labels are missing"):
        volmin.audit([None, None, None], features=np.zeros((3, 2)))


def test_weights_act_on_shares_only():
    generator = np.random.default_rng(2)
    truth = generator.integers(2, size=4000)
    T = np.array([[0.95, 0.3], [0.05, 0.7]])
    labels = np.where(generator.random(4000) < T[1 - truth, truth], 1 - truth, truth)
    probs = T.T[truth] * 0.98 + 0.01
    plain = volmin.audit(labels, probs=probs, reading="class_dependent")
    weights = np.where(truth == 1, 3.0, 1.0)
    weighted = volmin.audit(labels, probs=probs, reading="class_dependent", sample_weight=weights)
    wrong = labels != truth
    assert abs(plain.noise_rate - wrong.mean()) < 0.03
    assert abs(weighted.noise_rate - np.average(wrong, weights=weights)) < 0.03
    assert weighted.noise_rate > plain.noise_rate + 0.04
    assert abs(weighted.class_priors[1] - np.average(truth, weights=weights)) < 0.02
    np.testing.assert_array_equal(weighted.issues(), plain.issues())
    assert "weighted" in weighted.summary()
    assert "weighted" not in plain.summary()
    # Equal weights of any size change nothing; unequal ones leave fewer effective labels.
    equal = volmin.audit(labels, probs=probs, reading="class_dependent", sample_weight=np.full(4000, 7.0))
    assert equal.noise_rate == pytest.approx(plain.noise_rate, abs=1e-12)
    assert equal.effective_labels == pytest.approx(4000)
    assert weighted.effective_labels < 3500


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones(3), "shape"),
        (["a"] * 20, "a number for each row"),
        (np.full(20, np.nan), "finite numbers"),
        (-np.ones(20), "none negative"),
        (np.zeros(20), "not all zero"),
    ],
)
def test_invalid_weights_are_refused(weights, message):
    labels = np.arange(20) % 2
    with pytest.raises(InputError, match=message):
        volmin.audit(labels, probs=np.eye(2)[labels] * 0.8 + 0.1, sample_weight=weights)
    with pytest.raises(InputError, match="for one label per row"):
        volmin.audit(np.stack([labels, labels], axis=1), features=np.zeros((20, 2)), sample_weight=np.ones(20))
