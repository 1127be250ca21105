from typing import Any

import pytest
import torch
from torch import nn

from volmin import networks


def parameters(net):
    return sum(p.numel() for p in net.parameters())


def test_mlp_flattens_and_has_the_widths_asked_for():
    net = networks.mlp(12, 4, hidden=(5, 6))
    assert net(torch.zeros(3, 3, 4)).shape == (3, 4)
    assert parameters(net) == 12 * 5 + 5 + 5 * 6 + 6 + 6 * 4 + 4


def test_outputs_are_logits():
    torch.manual_seed(0)
    out = networks.mlp(8, 4)(torch.randn(16, 8))
    assert (out < 0).any()
    assert not torch.allclose(out.sum(1), torch.ones(16))


def test_standardize_spares_constant_features():
    x = torch.tensor([[1.0, 5.0], [3.0, 5.0]])
    std, mean = torch.std_mean(x, dim=0, correction=0)
    assert networks.Standardize(mean, std)(x).tolist() == [[-1.0, 0.0], [1.0, 0.0]]


def test_a_fresh_copy_starts_elsewhere_and_shares_nothing():
    net: Any = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    twin = networks.fresh_copy(net)
    assert not torch.equal(net[0].weight, twin[0].weight)
    assert not torch.equal(net[2].bias, twin[2].bias)
    with torch.no_grad():
        twin[0].weight.zero_()
    assert net[0].weight.abs().sum() > 0


def test_weights_that_cannot_be_drawn_anew_are_named():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.matrix = nn.Parameter(torch.randn(3, 3))

    with pytest.raises(ValueError, match="matrix stayed as they were"):
        networks.fresh_copy(Own())


def test_a_layer_that_starts_at_constants_has_been_drawn_anew():
    class Passing(nn.Linear):
        def reset_parameters(self):
            nn.init.eye_(self.weight)
            nn.init.zeros_(self.bias)

    net = Passing(3, 3)
    with torch.no_grad():
        net.weight.fill_(5)
    assert torch.equal(networks.fresh_copy(net).weight, torch.eye(3))
    assert torch.equal(networks.fresh_copy(Passing(3, 3)).weight, torch.eye(3))


def test_networks_by_name():
    assert networks.build("mlp", (1, 2, 3), 4)(torch.zeros(5, 1, 2, 3)).shape == (5, 4)
    with pytest.raises(ValueError, match="Unknown network 'resnet7'"):
        networks.build("resnet7", (1,), 2)
