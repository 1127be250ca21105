import pytest
import torch
from torch import Tensor, nn

from volmin import networks
from volmin.exceptions import InputError


def test_mlp_flattens_its_input_and_has_the_given_widths():
    net = networks.mlp(12, 4, hidden=(5, 6))
    assert net(torch.zeros(3, 3, 4)).shape == (3, 4)
    assert sum(p.numel() for p in net.parameters()) == 12 * 5 + 5 + 5 * 6 + 6 + 6 * 4 + 4


def test_outputs_are_logits():
    torch.manual_seed(0)
    out: Tensor = networks.mlp(8, 4)(torch.randn(16, 8))
    assert (out < 0).any()
    assert not torch.allclose(out.sum(1), torch.ones(16))


def test_standardize_only_shifts_constant_features():
    x = torch.tensor([[1.0, 5.0], [3.0, 5.0]])
    std, mean = torch.std_mean(x, dim=0, correction=0)
    assert networks.Standardize(mean, std)(x).tolist() == [[-1.0, 0.0], [1.0, 0.0]]


def test_fresh_copy_has_other_weights_and_shares_no_memory():
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    twin = networks.fresh_copy(net)
    for name in ("0.weight", "0.bias", "2.weight", "2.bias"):
        assert not torch.equal(net.get_parameter(name), twin.get_parameter(name))
    nn.init.zeros_(twin.get_parameter("0.weight"))
    assert net.get_parameter("0.weight").abs().sum() > 0


def test_parameters_that_cannot_be_redrawn_are_named():
    class OwnParameter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.matrix = nn.Parameter(torch.randn(3, 3))

    with pytest.raises(InputError, match="Cannot redraw the network's weights: 0.matrix did not change"):
        networks.fresh_copy(nn.Sequential(OwnParameter(), nn.Linear(3, 2)))


def test_layers_with_a_constant_start_can_be_redrawn():
    class IdentityLinear(nn.Linear):
        def reset_parameters(self) -> None:
            nn.init.eye_(self.weight)
            nn.init.zeros_(self.bias)

    net = IdentityLinear(3, 3)
    nn.init.constant_(net.weight, 5)
    assert torch.equal(networks.fresh_copy(net).weight, torch.eye(3))
    assert torch.equal(networks.fresh_copy(IdentityLinear(3, 3)).weight, torch.eye(3))


def test_features_and_logits_are_those_around_the_last_linear_layer():
    torch.manual_seed(0)
    net, x = networks.mlp(6, 3, hidden=(5, 4)), torch.randn(2, 6)
    features, logits = networks.features_and_logits(net, x)
    last = networks.last_linear(net)
    assert last is net[-1]
    assert features.shape == (2, 4)
    assert torch.equal(logits, net(x))
    assert torch.equal(last(features), logits)
    assert not last._forward_pre_hooks
    with pytest.raises(InputError, match="no linear layer"):
        networks.last_linear(nn.Conv2d(1, 1, 1))


def test_every_network_has_a_builder_and_a_description():
    assert set(networks.names()) == set(networks.DESCRIPTIONS)


def test_networks_are_built_by_name():
    assert networks.build("mlp", (1, 2, 3), 4)(torch.zeros(5, 1, 2, 3)).shape == (5, 4)
    with pytest.raises(InputError, match="Unknown network 'resnet7'"):
        networks.build("resnet7", (1,), 2)


def test_inputs_that_a_network_does_not_accept_are_rejected():
    with pytest.raises(InputError, match="resnet18 takes images"):
        networks.build("resnet18", (12,), 2)
    with pytest.raises(InputError, match="lenet5 takes grey images of 28 x 28 pixels"):
        networks.build("lenet5", (1, 32, 32), 10)
