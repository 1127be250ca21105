import numpy as np

from volmin import noise, transition_error
from volmin.estimation.anchors import percentile_anchors
from volmin.estimation.dual import dual, predicted_to_noisy


def test_counts_match_a_hand_computed_example():
    labels = np.array([0, 0, 0, 1, 0, 1])
    predicted = np.eye(2)[[0, 0, 0, 0, 1, 1]]
    spade = predicted_to_noisy(predicted, labels)
    np.testing.assert_allclose(spade, [[0.75, 0.5], [0.25, 0.5]])
    club = np.array([[0.9, 0.2], [0.1, 0.8]])
    np.testing.assert_allclose(spade @ club, [[0.725, 0.55], [0.275, 0.45]])


def test_perfect_predictions_recover_the_transition():
    C, T = 6, noise.pair(6, 0.45)
    clean = np.random.default_rng(0).integers(0, C, 60_000)
    assert transition_error(T, dual(np.eye(C)[clean], noise.corrupt(clean, T, 1))) < 0.02


def test_memorised_labels_reduce_to_anchor_points():
    probs = np.random.default_rng(0).dirichlet([0.4] * 4, 500)
    np.testing.assert_allclose(dual(probs, probs.argmax(axis=1)), percentile_anchors(probs))


def test_class_that_is_never_predicted_gets_an_identity_column():
    spade = predicted_to_noisy(np.eye(3)[[0, 0, 1, 1]], np.array([0, 1, 1, 2]))
    np.testing.assert_allclose(spade, [[0.5, 0, 0], [0.5, 0.5, 0], [0, 0.5, 1]])


def test_calibrated_posteriors_count_the_noise_twice():
    """Both factors equal T for calibrated posteriors: the method assumes an overconfident network."""
    C, T = 6, noise.pair(6, 0.3)
    clean = np.random.default_rng(0).integers(0, C, 60_000)
    found = dual(T.T[clean], noise.corrupt(clean, T, 1))
    assert transition_error(T @ T, found) < 0.02 < 0.3 < transition_error(T, found)
