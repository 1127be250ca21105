import pytest
import torch

from volmin import Recipe, networks
from volmin.data import Batch
from volmin.exceptions import InputError
from volmin.methods import LinearNoiseLayer
from volmin.methods.linear_noise_layer import project_columns


def test_projection_of_given_columns():
    columns = torch.tensor([[0.5, 0.2, 3.0, -1.0], [0.5, 0.3, 0.0, -1.0], [1.0, 0.5, 1.0, -1.0]])
    expected = torch.tensor([[1 / 6, 0.2, 1.0, 1 / 3], [1 / 6, 0.3, 0.0, 1 / 3], [2 / 3, 0.5, 0.0, 1 / 3]])
    assert torch.allclose(project_columns(columns), expected)


def test_projection_is_the_nearest_distribution():
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(5, 50, generator=generator)
    nearest = project_columns(points)
    assert nearest.min() >= 0
    assert torch.allclose(nearest.sum(0), torch.ones(50))
    others = torch.rand(5, 50, generator=generator)
    others = others / others.sum(0)
    assert ((points - nearest).norm(dim=0) <= (points - others).norm(dim=0) + 1e-6).all()


def test_Q_is_stochastic_after_every_step_and_its_zero_entries_can_grow():
    torch.manual_seed(0)
    method = LinearNoiseLayer(networks.mlp(3, 3, (8,)), 3)
    batch = Batch(torch.randn(30, 3), torch.arange(30) % 3)
    optimizers = method.phases(Recipe(lr=0.1))[1].optimizers()
    for step in range(5):
        for optimizer in optimizers:
            optimizer.zero_grad()
        method.loss(batch, step).backward()
        for optimizer in optimizers:
            optimizer.step()
        Q = method.transition()
        assert Q.min() >= 0
        assert torch.allclose(Q.sum(0), torch.ones(3))
    assert method.transition().detach().fill_diagonal_(0).max() > 0


def test_trace_is_penalised():
    torch.manual_seed(0)
    batch = Batch(torch.randn(30, 3), torch.arange(30) % 3)
    net = networks.mlp(3, 3, (8,))
    without, with_trace = (LinearNoiseLayer(net, 3, trace=trace).loss(batch, 0) for trace in (0.0, 0.3))
    assert (with_trace - without).item() == pytest.approx(0.3, rel=1e-4)
    with pytest.raises(InputError, match="trace"):
        LinearNoiseLayer(net, 3, trace=-1.0)


def test_projection_of_columns_with_huge_entries():
    """The gradient of a likelihood near zero is huge: after a step, 1 may be below the rounding error of an entry."""
    Q = torch.tensor([[3e10, 0.5, 2e9], [1.0, 0.5, -4e12], [-7.0, 0.5, 2e9]])
    expected = torch.tensor([[1.0, 1 / 3, 0.5], [0.0, 1 / 3, 0.0], [0.0, 1 / 3, 0.5]])
    assert torch.allclose(project_columns(Q), expected)


def test_projection_keeps_entries_that_are_not_finite():
    # The training loop then reports that training has diverged.
    assert project_columns(torch.tensor([[float("nan"), 0.5], [0.5, 0.5]]))[:, 0].isnan().all()
    assert not project_columns(torch.full((2, 2), float("inf"))).isfinite().any()


def test_gradient_of_an_almost_impossible_label_is_clipped():
    method = LinearNoiseLayer(networks.mlp(2, 3), 3)
    phase = method.phases(Recipe(epochs=1))[-1]
    with torch.no_grad():
        method.layer.weight.copy_(torch.tensor([[1.0, 0, 2e-12], [0, 1, 0], [0, 0, 1]]))
        networks.last_linear(method.net).bias.copy_(torch.tensor([-50.0, -50, 50]))
    phase.loss(Batch(torch.zeros(4, 2), torch.zeros(4, dtype=torch.long), None), 0).backward()
    gradient = method.layer.weight.grad
    assert gradient is not None
    assert gradient.abs().max() > 1e6
    phase.optimizers()[1].step()
    assert (method.transition().diagonal() > 0.9).all()
