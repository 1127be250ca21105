import pytest
import torch
from torch import nn

from volmin import networks
from volmin.networks.lenet import PooledConvolution


def parameters(net):
    return sum(p.numel() for p in net.parameters())


def test_lenet5_is_the_authors_network():
    net = networks.lenet5()
    assert parameters(net) == 61_706
    assert net(torch.zeros(2, 1, 28, 28)).shape == (2, 10)
    assert networks.lenet5(3)(torch.zeros(1, 1, 28, 28)).shape == (1, 3)


def published_lenet5(net, x):
    pool = nn.MaxPool2d(2)
    return net.head(pool(net.conv2(pool(net.conv1(x).relu())).relu()).flatten(1))


@pytest.mark.parametrize("count", [1, 5, 128])
def test_lenet5_computes_what_the_published_order_of_its_layers_does(count):
    torch.manual_seed(0)
    net, x = networks.lenet5(), torch.randn(count, 1, 28, 28)
    # Black borders, as digits have: windows whose four outputs are equal.
    x[:, :, :10] = -0.42
    expected, given = published_lenet5(net, x).square().mean(), net(x).square().mean()
    assert torch.allclose(given, expected, atol=1e-6)
    for wanted, found in zip(*(torch.autograd.grad(loss, net.parameters()) for loss in (expected, given)), strict=True):
        assert torch.allclose(found, wanted, atol=1e-5)


def test_lenet5_computes_the_same_one_by_one_as_a_gpu_does():
    net, x = networks.lenet5(), torch.randn(3, 1, 28, 28)
    assert torch.allclose(net._one_by_one(x), net._side_by_side(x), atol=1e-6)


def test_the_gradient_of_a_pooled_convolution():
    torch.manual_seed(0)
    x, weight, bias = torch.randn(8, 2, 6, 3), torch.randn(3, 2, 3, 3), torch.randn(3)
    inputs = [tensor.double().requires_grad_() for tensor in (x, weight, bias)]
    assert torch.autograd.gradcheck(PooledConvolution.apply, inputs)


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
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
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
