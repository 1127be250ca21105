import numpy as np
import pytest

from volmin import noise, transition_error
from volmin.estimation.anchors import max_anchors, outlier_share, percentile_anchors


def near_vertices(T, rows_per_class, jitter, seed=0):
    """Noisy posteriors of rows whose clean posteriors are within ``jitter`` of a vertex."""
    C = len(T)
    generator = np.random.default_rng(seed)
    doubt = jitter * generator.random((C * rows_per_class, 1))
    clean = (1 - doubt) * np.repeat(np.eye(C), rows_per_class, axis=0) + doubt / C
    return clean @ T.T


@pytest.mark.parametrize("estimate", [max_anchors, percentile_anchors])
@pytest.mark.parametrize("T", [noise.pair(4, 0.45), noise.asymmetric(6, 0.4, seed=3)])
def test_anchor_points_give_the_columns(estimate, T):
    np.testing.assert_allclose(estimate(near_vertices(T, 50, 1e-6)), T, atol=1e-5)


def test_percentile_threshold_is_an_observed_value_and_removed():
    rising = np.arange(100) / 100
    T = percentile_anchors(np.column_stack([rising, 1 - rising]))
    assert T[0, 0] == pytest.approx(0.96)  # threshold 0.97: the "higher" rule


def test_saturated_posteriors_are_not_removed():
    T = noise.pair(3, 0.3)
    np.testing.assert_allclose(percentile_anchors(np.repeat(T.T, 40, axis=0)), T)


def test_two_classes_may_share_an_anchor():
    """An in-place filter would hide the shared row from the second class."""
    probs = np.array([[0.5, 0.5, 0.0], [0.4, 0.1, 0.5], [0.1, 0.4, 0.5]])
    np.testing.assert_allclose(max_anchors(probs)[:, :2], [[0.5, 0.5], [0.5, 0.5], [0, 0]])


def test_without_anchor_points_noise_is_overestimated():
    T = noise.pair(3, 0.2)
    clean = np.random.default_rng(0).dirichlet([0.7] * 3, 2000)
    estimate = max_anchors(clean[clean.max(axis=1) < 0.8] @ T.T)
    inside = np.linalg.solve(T, estimate)
    assert inside.min() >= -1e-12
    assert (estimate.diagonal() < T.diagonal()).all()


def test_outlier_share_follows_class_size_for_many_classes():
    """With 100 classes, 3 % of all rows are three times the rows of a class."""
    T = noise.pair(100, 0.2)
    assert outlier_share(10) == outlier_share(33) == 0.03
    assert outlier_share(100) == pytest.approx(0.003)
    assert transition_error(T, percentile_anchors(near_vertices(T, 30, 1e-3))) < 0.01
