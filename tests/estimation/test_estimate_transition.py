"""Validation in ``estimate_transition``, and properties that hold for every estimator."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from volmin import noise
from volmin.estimation import clusterability, estimate_transition

METHODS = ["max", "percentile", "dual", "confident"]
ALL_METHODS = ["volume", *METHODS]


def posteriors(n=60, C=3, seed=0):
    generator = np.random.default_rng(seed)
    return generator.dirichlet(np.full(C, 0.5), n), generator.integers(0, C, n)


def with_entry(P, where, value):
    P = P.copy()
    P[where] = value
    return P


P, Y = posteriors()


@pytest.mark.parametrize("method", ALL_METHODS)
@pytest.mark.parametrize(
    ("probs", "labels", "message"),
    [
        (with_entry(P, (0, 0), -0.1), Y, "negative.*softmax"),
        (P * 2, Y, r"sum to one.*row \d+ sums to 2"),
        (with_entry(P, (3, 1), np.nan), Y, "NaN"),
        (np.ones((60, 1)), Y, "at least 2 classes"),
        (P[0], Y, "shape"),
        (P[:2], Y[:2], "2 rows for 3 classes"),
        (np.full((60, 3), 1 / 3), Y, "equal"),
        (P, Y[:-1], "one label per row"),
        (P, Y + 1, "0..2.* but span 1..3"),
        (P, Y - 1, "0..2.* but span -1"),
        (P, Y.astype(float), "integers"),
        (P, np.array(["a"] * 60), "integers"),
    ],
)
def test_invalid_input_is_rejected_in_one_line(method, probs, labels, message):
    with pytest.raises(ValueError, match=message) as error:
        estimate_transition(probs, labels, method)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("method", ["dual", "confident"])
def test_missing_labels_are_reported(method):
    with pytest.raises(ValueError, match="pass labels"):
        estimate_transition(P, method=method)


def test_unknown_method_lists_the_choices():
    unknown: Any = "maximum"
    features_only: Any = "hoc"
    with pytest.raises(ValueError, match="volume, max, percentile, dual, confident"):
        estimate_transition(P, Y, unknown)
    with pytest.raises(ValueError, match="clusterability"):
        estimate_transition(P, Y, features_only)


@pytest.mark.parametrize("method", ALL_METHODS)
def test_input_is_not_modified_and_tensors_are_accepted(method):
    before, labels_before = P.copy(), Y.copy()
    T = estimate_transition(P, Y, method)
    np.testing.assert_array_equal(P, before)
    np.testing.assert_array_equal(Y, labels_before)
    single = torch.tensor(P, dtype=torch.float32)
    np.testing.assert_allclose(estimate_transition(single, torch.tensor(Y), method), T, atol=1e-5)


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=25, deadline=None)
@given(C=st.integers(2, 6), seed=st.integers(0, 10_000))
def test_columns_sum_to_one_and_follow_a_permutation_of_the_classes(method, C, seed):
    probs, labels = posteriors(80, C, seed)
    T = estimate_transition(probs, labels, method)
    assert T.dtype == np.float64
    assert T.min() >= 0
    np.testing.assert_allclose(T.sum(axis=0), 1)
    order = np.random.default_rng(seed).permutation(C)
    renamed = estimate_transition(probs[:, order], np.argsort(order)[labels], method)
    np.testing.assert_allclose(renamed, T[np.ix_(order, order)], atol=1e-9)


@pytest.mark.parametrize("method", ALL_METHODS)
def test_class_that_is_never_predicted_or_labelled_gets_an_identity_column(method):
    probs = np.column_stack([P[:, :2].sum(axis=1), P[:, 2], np.zeros(len(P))])
    labels = np.minimum(Y, 1)
    T = estimate_transition(probs, labels, method)
    np.testing.assert_allclose(T.sum(axis=0), 1)
    np.testing.assert_allclose(T[:, 2], [0, 0, 1])


@pytest.mark.parametrize("method", ALL_METHODS)
def test_pair_noise_is_not_transposed(method):
    """Every row is an anchor point, so each estimator can be compared with the truth."""
    C, T = 5, noise.pair(5, 0.3)
    clean = np.random.default_rng(0).integers(0, C, 20_000)
    estimate = estimate_transition(T.T[clean], noise.corrupt(clean, T, 2), method)
    # Dual T counts the noise of calibrated posteriors twice.
    expected = T @ T if method == "dual" else T
    np.testing.assert_allclose(estimate, expected, atol=0.03)


def test_invalid_features_are_rejected():
    X = np.random.default_rng(0).normal(size=(60, 4))
    with pytest.raises(ValueError, match="features"):
        clusterability(with_entry(X, (0, 0), np.nan), Y)
    with pytest.raises(ValueError, match="one label per row"):
        clusterability(X, Y[:-1])
    with pytest.raises(ValueError, match="labels must be integers"):
        clusterability(X, ["a", "b", "c"] * 20)
    with pytest.raises(ValueError, match="num_classes"):
        clusterability(X, np.zeros(60, dtype=int))
    with pytest.raises(ValueError, match="num_classes must lie in 2..60"):
        clusterability(X, np.r_[Y[:-1], 60])
    with pytest.raises(ValueError, match="0 rows"):
        clusterability(X[:0], Y[:0])
    with pytest.raises(ValueError, match="must lie in"):
        clusterability(X, Y, num_classes=2)
