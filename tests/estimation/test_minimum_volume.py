"""Minimum volume for accurate posteriors of overlapping classes, and for biased posteriors of separable classes."""

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict

from volmin import noise, transition_error
from volmin.estimation import estimate_transition, minimum_volume
from volmin.estimation.geometry import PENALTIES, PathPoint, before_collapse, soft_to_hard
from volmin.estimation.minimum_volume import calibration, preferred, tempered
from volmin.exceptions import DegenerateTransitionWarning


def overlapping(T, n=2000, seed=0):
    """Exact noisy posteriors without anchor points, and labels drawn from them."""
    generator = np.random.default_rng(seed)
    clean = generator.dirichlet([0.7] * len(T), 5 * n)
    probs = clean[clean.max(axis=1) < 0.85][:n] @ T.T
    return probs, (probs.cumsum(axis=1) > generator.random((n, 1))).argmax(axis=1)


@pytest.fixture(scope="module")
def digits():
    """The features and clean labels of a small real data set."""
    X, y = load_digits(return_X_y=True)
    return X / 16, y


def out_of_fold(X, labels):
    model = LogisticRegression(max_iter=500)
    return np.asarray(cross_val_predict(model, X, labels, cv=3, method="predict_proba"))


@pytest.mark.parametrize("T", [noise.pair(3, 0.45), noise.asymmetric(3, 0.4, seed=2)])
def test_geometry_is_chosen_for_overlapping_classes(T):
    probs, labels = overlapping(T)
    result = minimum_volume(probs, labels)
    assert result.reading == "geometry"
    assert result.gain <= 2 * result.gain_error
    assert transition_error(T, result.transition) < 0.06
    others = [estimate_transition(probs, labels, name) for name in ("max", "percentile", "dual", "confident")]
    assert transition_error(T, result.transition) < min(transition_error(T, other) for other in others)


@pytest.mark.slow
def test_fit_to_labels_is_chosen_for_real_posteriors(digits):
    X, clean = digits
    T = noise.pair(10, 0.45)
    labels = noise.corrupt(clean, T, seed=1)
    probs = out_of_fold(X, labels)
    result = minimum_volume(probs, labels)
    assert result.reading == "labels"
    error = transition_error(T, result.transition)
    assert error < 0.15  # counting with known clean labels: 0.07
    assert error < 0.5 * transition_error(T, estimate_transition(probs, labels, "confident"))
    assert (result.transition[(np.arange(10) + 1) % 10, np.arange(10)] > 0.3).all()
    assert (result.clean_posteriors(probs).argmax(axis=1) == clean).mean() > 0.85


def test_clean_labels_give_the_identity(digits):
    X, clean = digits
    T = estimate_transition(out_of_fold(X, clean), clean)
    assert transition_error(np.eye(10), T) < 0.06


def test_labels_are_optional():
    T = noise.pair(3, 0.3)
    result = minimum_volume(overlapping(T)[0])
    assert result.reading == "geometry"
    assert np.isnan(result.gain)
    assert result.temperature == 1
    assert transition_error(T, result.transition) < 0.2


def test_same_random_state_gives_the_same_estimate():
    probs, labels = overlapping(noise.pair(3, 0.3), n=400)
    first = minimum_volume(probs, labels, random_state=3).transition
    np.testing.assert_array_equal(estimate_transition(probs, labels, random_state=3), first)


def test_estimate_follows_a_permutation_of_the_classes():
    T = noise.asymmetric(3, 0.4, seed=2)
    probs, labels = overlapping(T, n=600)
    order = np.array([2, 0, 1])
    renamed = estimate_transition(probs[:, order], np.argsort(order)[labels])
    np.testing.assert_allclose(renamed, estimate_transition(probs, labels)[np.ix_(order, order)], atol=0.02)


def test_only_miscalibrated_posteriors_are_tempered():
    probs, labels = overlapping(noise.symmetric(3, 0.2), n=4000)
    assert calibration(probs, labels) == 1
    assert calibration(tempered(probs, 2.0), labels) == pytest.approx(0.5, abs=0.1)


def test_default_penalty_is_kept_unless_the_labels_reject_it():
    path = [PathPoint(penalty, np.eye(2), 0.0, True) for penalty in PENALTIES]
    fits = np.random.default_rng(0).normal(size=(len(path), 1000))
    assert path[preferred(path, list(1e-3 * fits))].penalty == 80
    assert path[preferred(path, list(fits - 10 * np.arange(len(path))[:, None]))].penalty == PENALTIES[0]


def test_collapsed_simplex_is_not_chosen():
    """With a large penalty, posteriors with large errors give T = I, which explains any posteriors."""
    generator, C, rows = np.random.default_rng(0), 4, 1000
    T, clean = noise.pair(C, 0.45), np.arange(rows) % C
    labels = noise.corrupt(clean, T, seed=0)
    h = softmax(4 * np.eye(C)[clean] + generator.normal(size=(rows, C)), axis=1)
    probs = softmax(np.log(h @ T.T + 0.005) + 0.1 * generator.normal(size=(rows, C)), axis=1)
    found = minimum_volume(probs, labels, doubt=np.inf)  # the geometry alone
    hardest = soft_to_hard(tempered(probs, found.temperature), np.ones(rows), 100)[-1]
    assert transition_error(np.eye(C), hardest.transition) < 0.05
    assert transition_error(T, found.transition) < 0.25


@pytest.mark.parametrize(
    ("volumes", "kept"),
    [
        ((-7.6, -5.5, -5.2, 0.0, 0.0, 0.0), 3),  # stable at the noise, then collapsed
        ((-0.53, -0.29, -0.28, -0.21, -0.03, 0.0), 4),
        ((-6.2, -2.1, -0.5, -0.1, 0.0, 0.0), 6),  # clean labels
        ((-3.7, -3.55, -3.53, -3.52, -3.52, -3.52), 6),
    ],
)
def test_path_ends_before_the_simplex_collapses(volumes, kept):
    path = [PathPoint(mu, np.eye(2), volume, True) for mu, volume in zip(PENALTIES, volumes, strict=True)]
    assert before_collapse(path) == path[:kept]


def test_two_classes_with_anchor_points():
    T = np.array([[0.8, 0.3], [0.2, 0.7]])
    clean = np.random.default_rng(0).beta(0.2, 0.2, 3000)
    probs = np.column_stack([clean, 1 - clean]) @ T.T
    labels = (probs[:, 1] > np.random.default_rng(1).random(3000)).astype(int)
    assert transition_error(T, estimate_transition(probs, labels)) < 0.1


def test_nearly_singular_transition_gives_a_warning():
    probs = np.full((60, 3), 1 / 3) + 1e-6 * np.random.default_rng(0).normal(size=(60, 3))
    with pytest.warns(DegenerateTransitionWarning, match="singular"):
        minimum_volume(probs, np.arange(60) % 3)


@pytest.mark.filterwarnings("ignore::volmin.exceptions.DegenerateTransitionWarning")
def test_one_row_per_class_is_enough():
    generator = np.random.default_rng(0)
    T = estimate_transition(generator.dirichlet([0.3] * 8, 8), np.arange(8))
    np.testing.assert_allclose(T.sum(axis=0), 1)


@pytest.mark.parametrize("doubt", [np.inf, -np.inf])  # the geometry, and the fit to the labels
def test_clean_posteriors_of_a_single_row(doubt):
    probs, labels = overlapping(noise.pair(3, 0.3), n=300)
    result = minimum_volume(probs, labels, doubt=doubt)
    np.testing.assert_allclose(result.clean_posteriors(probs[:1]), result.clean_posteriors(probs)[:1])
