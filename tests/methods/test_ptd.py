import numpy as np
import pytest
import torch

from volmin import networks, noise
from volmin.data import TensorLoader
from volmin.estimation.parts import anchor_rows, factorize, fit_parts, part_weights
from volmin.methods import PTD


def stochastic(*shape, seed=0):
    return torch.tensor(np.random.default_rng(seed).dirichlet(np.ones(shape[-1]), shape[:-1]), dtype=torch.float32)


def test_known_parts_are_recovered():
    """Two parts and three classes, with anchor points of independent weights."""
    parts = stochastic(2, 3, 3).mT
    weights = stochastic(6, 3, 2, seed=1)
    columns = torch.einsum("kjr,rij->kji", weights, parts)
    found = fit_parts(weights, columns, iterations=5_000)
    assert torch.allclose(found, parts, atol=1e-2)


def test_single_part_is_the_mean_column():
    columns = stochastic(5, 3, 3)
    found = fit_parts(torch.ones(5, 3, 1), columns)
    assert found.shape == (1, 3, 3)
    assert torch.allclose(found[0], columns.mean(0).T, atol=1e-3)


def test_part_without_anchor_points_stays_a_distribution():
    weights = torch.zeros(5, 3, 2)
    weights[..., 0] = 1
    assert torch.allclose(fit_parts(weights, stochastic(5, 3, 3)).sum(1), torch.ones(2, 3))


def test_factorisation_reconstructs_the_features_row_by_row():
    torch.manual_seed(0)
    truth = stochastic(200, 3)
    features = truth @ (5 * torch.rand(3, 12))
    basis = factorize(features, 3, 500)
    weights = part_weights(features, basis, 500)
    assert torch.allclose(weights.sum(1), torch.ones(200))
    assert ((weights @ basis - features).norm() / features.norm()) < 0.05
    rows = part_weights(features[7:9], basis, 500)
    assert torch.allclose(rows, weights[7:9], atol=1e-6)
    assert part_weights(torch.zeros(2, 12), basis).isfinite().all()


def test_anchor_rows_exclude_outliers():
    probs = torch.arange(100.0).div(100)[:, None].repeat(1, 2)
    assert anchor_rows(probs, 3)[:, 0].tolist() == [96, 97, 98]


@pytest.fixture
def fitted():
    torch.manual_seed(0)
    method = PTD(networks.mlp(4, 4, (16,)), 4, parts=3)
    y = torch.arange(200) % 4
    x = 3 * torch.eye(4)[y] + 0.5 * torch.randn(200, 4)
    next(method.net.parameters()).data.mul_(3)
    with torch.no_grad():
        method.estimate(TensorLoader(x, noise.corrupt(y.numpy(), noise.pair(4, 0.3), 0), 50))
    return method, x


def test_T_of_x_is_stochastic_and_independent_of_batch_and_further_training(fitted):
    method, x = fitted
    T = method.transition(x)
    assert T.shape == (200, 4, 4)
    assert T.min() >= 0
    assert torch.allclose(T.sum(1), torch.ones(200, 4), atol=1e-5)
    assert torch.allclose(method.transition(x[5:6]), T[5:6], atol=1e-5)
    assert not torch.allclose(T[0], T[1], atol=1e-3)
    assert torch.allclose(method.transition().sum(0), torch.ones(4), atol=1e-5)
    next(method.net.parameters()).data.zero_()  # training changes the network, but not its copy that gives the features
    assert torch.equal(method.transition(x), T)


def test_mean_T_lies_within_the_range_of_T_of_x(fitted):
    method, x = fitted
    T = method.transition(x)
    average = method.transition()
    assert (average <= T.max(0).values + 1e-5).all()
    assert (average >= T.min(0).values - 1e-5).all()
