import numpy as np
import pytest
from scipy.optimize import check_grad

from volmin import noise, transition_error
from volmin.estimation.geometry import (
    PENALTIES,
    REFUSED,
    coreset,
    dominant,
    soft_hinge,
    soft_to_hard,
    unmix,
)


def scattered(C, n=1500, seed=0):
    """Clean posteriors without an anchor point: nobody is surer than 80 %."""
    clean = np.random.default_rng(seed).dirichlet([0.7] * C, 5 * n)
    return clean[clean.max(axis=1) < 0.8][:n]


def test_gradient_of_the_soft_hinge():
    generator = np.random.default_rng(0)
    columns, share = scattered(4, 50).T, np.full(50, 1 / 50)
    w = generator.normal(-1, 0.5, 16)

    def value(w):
        return soft_hinge(w, columns, share, 20.0, tau=0.05)[0]

    def gradient(w):
        return soft_hinge(w, columns, share, 20.0, tau=0.05)[1]

    assert check_grad(value, gradient, w) < 1e-5
    np.testing.assert_array_equal(gradient(w).reshape(4, 4).diagonal(), 0)


def test_a_reflected_matrix_is_refused():
    A = np.array([[1, 0.9, 0.01], [0.9, 1, 0.9], [0.01, 0.9, 1]])  # dominant, yet its determinant is negative
    w = np.log(A / np.maximum(1 - A, 1e-9)).ravel()
    assert np.linalg.det(dominant(w, 3)[0]) < 0
    assert soft_hinge(w, scattered(3, 20).T, np.full(20, 1 / 20), 10.0)[0] == REFUSED


@pytest.mark.parametrize("T", [noise.pair(4, 0.45), noise.asymmetric(3, 0.4, seed=1)])
def test_exact_posteriors_determine_the_simplex(T):
    """No anchor points, pair noise: only the smallest simplex is left."""
    path = soft_to_hard(scattered(len(T)) @ T.T, np.ones(1500), max_iterations=100)
    assert [point.penalty for point in path] == list(PENALTIES)
    assert transition_error(T, path[-1].transition) < 0.03
    volumes = [point.log_volume for point in path]
    assert volumes == sorted(volumes)
    assert volumes[-1] == pytest.approx(np.linalg.slogdet(T)[1], abs=0.1)


def test_rows_inside_stay_and_rows_outside_move_to_the_boundary():
    T = noise.pair(3, 0.3)
    inside = scattered(3, 100) @ T.T
    np.testing.assert_allclose(unmix(inside, T, steps=2000) @ T.T, inside, atol=1e-3)
    outside = unmix(np.array([[0.98, 0.01, 0.01]]), T, steps=2000)
    assert outside.min() == pytest.approx(0, abs=1e-3)
    assert outside.sum() == pytest.approx(1)


def test_coreset_keeps_extremes_and_weighs_the_rest():
    probs = np.random.default_rng(0).dirichlet([0.5] * 3, 5000)
    few, weights = coreset(probs, 500, np.random.default_rng(1))
    assert len(few) == len(weights) == 500
    assert weights.sum() == pytest.approx(5000)
    np.testing.assert_array_equal(few.max(axis=0), probs.max(axis=0))
    np.testing.assert_allclose(np.average(few, axis=0, weights=weights), probs.mean(axis=0), atol=0.05)
    same, ones = coreset(probs, 5000, np.random.default_rng(1))
    np.testing.assert_array_equal(same, probs)
    assert (ones == 1).all()
