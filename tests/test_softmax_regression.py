import numpy as np
import pytest
import scipy.sparse
import torch
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from volmin.softmax_regression import all_logits, column_moments, fit_softmax


def wine():
    x, y = load_wine(return_X_y=True)
    return StandardScaler().fit_transform(x), y


@pytest.mark.parametrize("sparse", [False, True])
def test_each_problem_equals_the_fit_of_scikit_learn(sparse):
    x, y = wine()
    weights = np.random.default_rng(0).integers(0, 4, size=(2, len(x))).astype(float)
    penalties = (0.1, 10.0)
    rows = scipy.sparse.csr_matrix(x) if sparse else torch.from_numpy(x)
    targets = torch.nn.functional.one_hot(torch.from_numpy(y), 3).double()
    ridge = torch.tensor([1 / (C * w.sum()) for C, w in zip(penalties, weights, strict=True)])
    found = fit_softmax(rows, targets, torch.from_numpy(weights), ridge, max_iterations=500, tolerance=1e-9)
    probs = all_logits(rows, found).softmax(2).numpy()
    for own, C, weight in zip(probs, penalties, weights, strict=True):
        expected = LogisticRegression(C=C, tol=1e-8, max_iter=2000).fit(x, y, sample_weight=weight)
        np.testing.assert_allclose(own, expected.predict_proba(x), atol=1e-4)


def test_uncertain_targets_equal_weighted_copies():
    x, y = wine()
    rows, share = torch.from_numpy(x), torch.full((len(x), 3), 0.1, dtype=torch.float64)
    share[torch.arange(len(x)), torch.from_numpy(y)] = 0.8
    settings = {"max_iterations": 500, "tolerance": 1e-9}
    ridge = torch.tensor([0.01], dtype=torch.float64)
    uncertain = fit_softmax(rows, share, torch.ones(1, len(x), dtype=torch.float64), ridge, **settings)
    copies, labels = rows.repeat(3, 1), torch.eye(3, dtype=torch.float64).repeat_interleave(len(x), 0)
    weighted = fit_softmax(copies, labels, share.T.reshape(1, -1), ridge, **settings)
    np.testing.assert_allclose(uncertain, weighted, atol=1e-5)


def test_groups_of_problems_give_the_same_coefficients(monkeypatch):
    x, y = wine()
    targets = torch.nn.functional.one_hot(torch.from_numpy(y), 3).double()
    arguments = (torch.from_numpy(x), targets, torch.ones(3, len(x)).double(), torch.tensor([0.1, 0.2, 0.3]).double())
    together = fit_softmax(*arguments, max_iterations=300, tolerance=1e-9)
    monkeypatch.setattr("volmin.softmax_regression.LARGEST_LOGITS", 1)
    np.testing.assert_allclose(fit_softmax(*arguments, max_iterations=300, tolerance=1e-9), together, atol=1e-6)


def test_weighted_moments():
    x = np.array([[1.0, 5.0], [3.0, 5.0], [7.0, 5.0]])
    mean, variance = column_moments(torch.from_numpy(x), np.array([1.0, 1.0, 2.0]))
    np.testing.assert_allclose(mean, [4.5, 5])
    np.testing.assert_allclose(variance, [6.75, 0], atol=1e-12)
    zeros, same = column_moments(scipy.sparse.csr_matrix(x), np.array([1.0, 1.0, 2.0]))
    np.testing.assert_array_equal(zeros, [0, 0])
    np.testing.assert_allclose(same, variance, atol=1e-9)
