import numpy as np
import pytest
import scipy.sparse
import torch
from sklearn.datasets import load_wine
from sklearn.linear_model import Ridge
from sklearn.preprocessing import StandardScaler

from volmin import ridge
from volmin.ridge import FoldRidge, Task, column_moments, fit_in_parts

PENALTY = 0.05


def wine():
    x, y = load_wine(return_X_y=True)
    weights = np.random.default_rng(0).integers(1, 4, len(x)).astype(float)
    x = StandardScaler().fit_transform(x, sample_weight=weights)
    return x, np.eye(3)[y], weights, np.arange(len(x)) % 4


def of_scikit_learn(x, targets, weights, kept):
    """Ridge regression; its penalty is a sum over rows, ours a mean relative to the mean squared length."""
    size = weights @ np.square(x).sum(axis=1) / weights.sum()
    model = Ridge(alpha=PENALTY * size * weights[kept].sum())
    return model.fit(x[kept], targets[kept], sample_weight=weights[kept])


@pytest.mark.parametrize("wide", [False, True])
def test_each_fit_without_folds_equals_the_fit_of_scikit_learn(monkeypatch, wide):
    monkeypatch.setattr(ridge, "NEGLIGIBLE", 1e-12)
    x, targets, weights, fold = wine()
    if wide:
        x = np.random.default_rng(1).normal(size=(len(x), 300))
        x -= np.average(x, axis=0, weights=weights)
    found = FoldRidge(*map(torch.from_numpy, (x, weights, fold)))
    other = 1 - targets
    tasks = [Task(0, (2,), 2), Task(1, (0, 3), 3)]
    scores = found.cross_fitted(torch.from_numpy(np.stack([targets, other])), tasks, PENALTY)
    for task, own, labels in zip(tasks, scores, (targets, other), strict=True):
        expected = of_scikit_learn(x, labels, weights, ~np.isin(fold, task.left_out))
        np.testing.assert_allclose(own, expected.predict(x[fold == task.scored]), atol=1e-8)
    expected = of_scikit_learn(x, targets, weights, fold >= 0)
    coefficients = found.fit(torch.from_numpy(targets), PENALTY)
    np.testing.assert_allclose(coefficients[:-1].T, expected.coef_, atol=1e-8)
    np.testing.assert_allclose(coefficients[-1], expected.intercept_, atol=1e-8)


def test_sparse_rows_give_the_scores_of_dense_ones(monkeypatch):
    monkeypatch.setattr(ridge, "GRADIENT_TOLERANCE", 1e-9)
    monkeypatch.setattr(ridge, "NEGLIGIBLE", 1e-12)
    x, targets, weights, fold = wine()
    x[np.abs(x) < 0.5] = 0
    y, others = torch.from_numpy(targets)[None], [torch.from_numpy(part) for part in (weights, fold)]
    tasks = [Task(0, (k,), k) for k in range(4)]
    dense = FoldRidge(torch.from_numpy(x), *others).cross_fitted(y, tasks, PENALTY)
    rows = FoldRidge(scipy.sparse.csr_matrix(x), *others)
    torch.testing.assert_close(rows.cross_fitted(y, tasks, PENALTY), dense, atol=1e-6, rtol=0)
    monkeypatch.setattr(ridge, "LARGEST_GROUP", 1)
    torch.testing.assert_close(rows.cross_fitted(y, tasks, PENALTY), dense, atol=1e-6, rtol=0)


@pytest.mark.parametrize("sparse", [False, True])
def test_rows_in_parts_give_the_fit_to_all(monkeypatch, sparse):
    monkeypatch.setattr(ridge, "GRADIENT_TOLERANCE", 1e-9)
    monkeypatch.setattr(ridge, "NEGLIGIBLE", 1e-12)
    x, targets, weights, fold = wine()
    y, w = torch.from_numpy(targets), torch.from_numpy(weights)
    rows = scipy.sparse.csr_matrix(x) if sparse else torch.from_numpy(x)
    parts = [(rows[half], y[half], w[half]) for half in (slice(0, 70), slice(70, None))]
    every = FoldRidge(torch.from_numpy(x), w, torch.from_numpy(fold)).fit(y, PENALTY)
    torch.testing.assert_close(fit_in_parts(parts, PENALTY), every, atol=1e-6, rtol=0)


def test_components_without_variance_are_left_out():
    x, targets, weights, fold = wine()
    x = np.c_[x, x[:, 0], 1e-4 * x[:, 1]]
    found = FoldRidge(*map(torch.from_numpy, (x, weights, fold)))
    assert found.basis is not None
    assert found.basis.shape == (15, 13)
    assert found.fit(torch.from_numpy(targets), PENALTY).shape == (16, 3)


def test_weighted_moments():
    x = np.array([[1.0, 5.0], [3.0, 5.0], [7.0, 5.0]])
    mean, variance = column_moments(torch.from_numpy(x), np.array([1.0, 1.0, 2.0]))
    np.testing.assert_allclose(mean, [4.5, 5])
    np.testing.assert_allclose(variance, [6.75, 0], atol=1e-12)
    zeros, same = column_moments(scipy.sparse.csr_matrix(x), np.array([1.0, 1.0, 2.0]))
    np.testing.assert_array_equal(zeros, [0, 0])
    np.testing.assert_allclose(same, variance, atol=1e-9)
