from itertools import permutations

import numpy as np
import pytest
import torch
from scipy.optimize import approx_fprime

from volmin import noise, transition_error
from volmin.estimation import clusterability
from volmin.estimation.neighbours import _misfit, consensus, in_order, neighbour_triples, solve_consensus

TRUTH = np.array([[0.7, 0.2, 0.05], [0.2, 0.7, 0.25], [0.1, 0.1, 0.7]])
PRIORS = np.array([0.5, 0.3, 0.2])


def exact_consensus(priors, T):
    c3 = np.einsum("k,ik,jk,lk->ijl", priors, T, T, T)
    return T @ priors, c3.sum(axis=2), c3


def test_exact_frequencies_determine_priors_and_transition():
    priors, T = solve_consensus(*exact_consensus(PRIORS, TRUTH))
    assert transition_error(TRUTH, T) < 1e-4
    np.testing.assert_allclose(priors, PRIORS, atol=1e-4)


def test_columns_are_permuted_to_the_largest_trace():
    order = [2, 0, 1]
    priors, T = in_order(PRIORS[order], TRUTH[:, order])
    np.testing.assert_array_equal(T, TRUTH)
    np.testing.assert_array_equal(priors, PRIORS)


def test_frequencies_have_consistent_marginals():
    triples = np.random.default_rng(0).integers(0, 3, (500, 3))
    c1, c2, c3 = consensus(triples, 3)
    np.testing.assert_allclose([c1.sum(), c2.sum(), c3.sum()], 1)
    np.testing.assert_allclose(c3.sum(axis=2), c2)
    np.testing.assert_allclose(c2.sum(axis=1), c1)
    np.testing.assert_allclose(c1, np.bincount(triples[:, 0], minlength=3) / 500)


@pytest.mark.parametrize("seed", range(3))
def test_transition_is_recovered_from_independent_labels(seed):
    T = np.array([[0.88, 0.14], [0.12, 0.86]])
    clean = np.random.default_rng(seed).integers(0, 2, 100_000)
    copies = np.column_stack([noise.corrupt(clean, T, 10 * seed + k) for k in range(3)])
    assert transition_error(T, solve_consensus(*consensus(copies, 2))[1]) < 0.02


def test_neighbours_are_other_rows_of_the_same_direction():
    angles = np.array([0.0, 0.01, 0.03, 1.5, 1.52, 1.55])
    scale = np.array([1.0, 5.0, 0.1, 2.0, 1.0, 3.0])  # cosine distance ignores it
    X = scale[:, None] * np.column_stack([np.cos(angles), np.sin(angles)])
    triples = neighbour_triples(np.vstack([X, X[:1]]), block_rows=100, random_state=0)
    assert all(len(set(triple)) == 3 for triple in triples)
    for triple in triples:
        assert len({index in (3, 4, 5) for index in triple}) == 1


def test_pair_noise_is_recovered_from_clustered_features():
    C, T = 4, noise.pair(4, 0.4)
    generator = np.random.default_rng(0)
    clean = generator.integers(0, C, 4000)
    X = 5 * np.eye(C)[clean] + generator.normal(size=(len(clean), C))
    labels = noise.corrupt(clean, T, 1)
    estimate = clusterability(X, labels, block_rows=1500)
    assert transition_error(T, estimate) < 0.1
    np.testing.assert_array_equal(estimate, clusterability(X, torch.from_numpy(labels), block_rows=1500))


def test_gradient_of_the_misfit_matches_finite_differences():
    generator = np.random.default_rng(0)
    theta, targets = generator.normal(size=3 + 9), exact_consensus(PRIORS, TRUTH)
    differences = np.asarray(approx_fprime(theta, lambda at: _misfit(at, *targets)[0]))
    np.testing.assert_allclose(_misfit(theta, *targets)[1], differences, atol=1e-6)


def test_only_the_symmetric_part_of_frequencies_matters():
    """Observed frequencies are not symmetric, because the first neighbour is closer than the second."""
    c1, c2, c3 = consensus(np.random.default_rng(0).integers(0, 3, (50, 3)), 3)
    symmetric = np.mean([c3.transpose(axes) for axes in permutations(range(3))], axis=0)
    np.testing.assert_allclose(
        solve_consensus(c1, c2, c3)[1], solve_consensus(c1, (c2 + c2.T) / 2, symmetric)[1], atol=1e-12
    )
