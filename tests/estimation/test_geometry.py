import numpy as np
import pytest
import torch
from scipy.optimize import check_grad

from volmin import noise, transition, transition_error
from volmin.estimation.geometry import (
    INFEASIBLE,
    PENALTIES,
    column_normalised,
    coreset,
    soft_hinge,
    soft_to_hard,
)


def scattered(C, n=1500, seed=0):
    """Clean posteriors without anchor points: none exceeds 0.8."""
    clean = np.random.default_rng(seed).dirichlet([0.7] * C, 5 * n)
    return clean[clean.max(axis=1) < 0.8][:n]


def test_gradient_of_the_soft_hinge_matches_finite_differences():
    generator = np.random.default_rng(0)
    columns, share = scattered(4, 50).T, np.full(50, 1 / 50)
    w = generator.normal(-1, 0.5, 16)

    def value(w):
        return soft_hinge(w, columns, share, 20.0, tau=0.05)[0]

    def gradient(w):
        return soft_hinge(w, columns, share, 20.0, tau=0.05)[1]

    assert check_grad(value, gradient, w) < 1e-5
    np.testing.assert_array_equal(gradient(w).reshape(4, 4).diagonal(), 0)


def test_matrix_with_negative_determinant_is_infeasible():
    A = np.array([[1, 0.9, 0.01], [0.9, 1, 0.9], [0.01, 0.9, 1]])  # dominant, but its determinant is negative
    w = np.log(A / np.maximum(1 - A, 1e-9)).ravel()
    assert np.linalg.det(column_normalised(w, 3)[0]) < 0
    assert soft_hinge(w, scattered(3, 20).T, np.full(20, 1 / 20), 10.0)[0] == INFEASIBLE


@pytest.mark.parametrize("T", [noise.pair(4, 0.45), noise.asymmetric(3, 0.4, seed=1)])
def test_exact_posteriors_determine_the_simplex(T):
    """Without anchor points, only the volume determines T."""
    path = soft_to_hard(scattered(len(T)) @ T.T, np.ones(1500), max_iterations=100)
    assert [point.penalty for point in path] == list(PENALTIES)
    assert transition_error(T, path[-1].transition) < 0.03
    volumes = [point.log_volume for point in path]
    assert volumes == sorted(volumes)
    assert volumes[-1] == pytest.approx(np.linalg.slogdet(T)[1], abs=0.1)


def test_numpy_parametrisation_equals_the_trainable_one():
    w = np.random.default_rng(0).normal(size=16)
    expected = transition.dominant(torch.from_numpy(w).reshape(4, 4)).numpy()
    np.testing.assert_allclose(column_normalised(w, 4)[0], expected)


def test_coreset_keeps_extreme_rows_and_preserves_means():
    probs = np.random.default_rng(0).dirichlet([0.5] * 3, 5000)
    few, weights = coreset(probs, 500, np.random.default_rng(1))
    assert len(few) == len(weights) == 500
    assert weights.sum() == pytest.approx(5000)
    np.testing.assert_array_equal(few.max(axis=0), probs.max(axis=0))
    np.testing.assert_allclose(np.average(few, axis=0, weights=weights), probs.mean(axis=0), atol=0.05)
    same, ones = coreset(probs, 5000, np.random.default_rng(1))
    np.testing.assert_array_equal(same, probs)
    assert (ones == 1).all()
