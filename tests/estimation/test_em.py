import numpy as np
import pytest
from scipy.optimize import minimize

from volmin import noise
from volmin.estimation import maximum_likelihood_transition
from volmin.estimation.em import fit_transitions, kl_projection, split_by_label, unmix


def simulate(T, num_rows, seed=0):
    """Clean posteriors, and noisy labels drawn under T."""
    generator = np.random.default_rng(seed)
    h = generator.dirichlet(np.full(len(T), 0.4), num_rows)
    clean = (generator.random((num_rows, 1)) > h.cumsum(axis=1)[:, :-1]).sum(axis=1)
    return h, noise.corrupt(clean, T, seed=seed + 1)


def test_transition_is_recovered_from_true_posteriors():
    T = noise.asymmetric(4, 0.4, seed=3)
    assert np.abs(maximum_likelihood_transition(*simulate(T, 100_000)) - T).max() < 0.02


def test_known_clean_labels_reduce_to_counting():
    T = noise.asymmetric(3, 0.4)
    clean = np.random.default_rng(0).integers(0, 3, 30_000)
    labels = noise.corrupt(clean, T, 1)
    counts = np.zeros((3, 3))
    np.add.at(counts, (labels, clean), 1)
    estimate = maximum_likelihood_transition(np.eye(3)[clean], labels)
    np.testing.assert_allclose(estimate, counts / counts.sum(axis=0))
    smoothed = fit_transitions(split_by_label(np.eye(3)[clean], labels), pseudo_counts=2.0)[0]
    np.testing.assert_allclose(smoothed, (counts + 2) / (counts + 2).sum(axis=0))


def test_weighted_fits_equal_fits_to_repeated_rows():
    h, y = simulate(noise.pair(3, 0.4), 200)
    repeats = np.random.default_rng(5).integers(0, 4, size=(200, 2))
    together = fit_transitions(split_by_label(h, y, repeats.astype(float)))
    for fit, times in zip(together, repeats.T, strict=True):
        rows = np.repeat(np.arange(200), times)
        np.testing.assert_allclose(fit, maximum_likelihood_transition(h[rows], y[rows]), atol=1e-3)


def test_class_without_mass_keeps_its_start():
    h = np.array([[0.5, 0.5, 0.0], [0.2, 0.8, 0.0], [0.9, 0.1, 0.0]])
    np.testing.assert_allclose(maximum_likelihood_transition(h, [0, 1, 0])[:, 2], [1 / 6, 1 / 6, 2 / 3])


def test_dominant_transition_is_the_constrained_maximum():
    T = np.array([[0.3, 0.1, 0.2], [0.6, 0.8, 0.2], [0.1, 0.1, 0.6]])  # column 0 is not dominant
    h, y = simulate(T, 2000)
    found = maximum_likelihood_transition(h, y, dominant=True, tolerance=1e-9)

    def nll(flat):
        return -np.log(np.maximum((h * flat.reshape(3, 3)[y]).sum(axis=1), 1e-12)).sum()

    gaps = [(j, i) for j in range(3) for i in range(3) if i != j]
    constraints = [
        {"type": "eq", "fun": lambda flat: flat.reshape(3, 3).sum(axis=0) - 1},
        {"type": "ineq", "fun": lambda flat: [flat.reshape(3, 3)[j, j] - flat.reshape(3, 3)[i, j] for j, i in gaps]},
    ]
    best = minimize(nll, (np.eye(3) * 0.7 + 0.1).ravel(), bounds=[(0, 1)] * 9, constraints=constraints)
    assert nll(found.ravel()) <= best.fun + 1e-3
    assert np.all(np.diag(found) >= found.max(axis=0) - 1e-12)
    np.testing.assert_allclose(found.sum(axis=0), 1)


def test_unmix_inverts_the_channel_inside_the_simplex_and_projects_outside_rows():
    T = noise.pair(3, 0.3)
    inside = np.random.default_rng(0).dirichlet(np.ones(3), 100) @ T.T
    np.testing.assert_allclose(unmix(inside, T, steps=2000) @ T.T, inside, atol=1e-3)
    corner = np.array([[0.98, 0.01, 0.01]])
    projected = unmix(corner, T, steps=2000)
    assert projected.min() == pytest.approx(0, abs=1e-3)
    assert projected.sum() == pytest.approx(1)
    np.testing.assert_allclose(projected, kl_projection(corner, T, gap=1e-9, max_iterations=500), atol=1e-3)
    assert unmix(corner, T).min() > 0  # stopped early
