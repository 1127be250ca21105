import subprocess
import sys

import pytest
import torch
from torch import Tensor, nn

from volmin import networks
from volmin.networks.lenet import LeNet5


def published_order(net: LeNet5, x: Tensor) -> Tensor:
    """Logits computed with the layers in the order of the authors' code."""
    pool = nn.MaxPool2d(2)
    return net.head(pool(net.conv2(pool(net.conv1(x).relu())).relu()).flatten(1))


@pytest.mark.parametrize("num_classes", [3, 10])
def test_number_of_parameters_and_output_shape(num_classes: int):
    net = networks.lenet5(num_classes)
    assert sum(p.numel() for p in net.parameters()) == 60_856 + 85 * num_classes
    assert net(torch.zeros(2, 1, 28, 28)).shape == (2, num_classes)


def test_values_and_gradients_equal_those_of_the_published_order_of_layers():
    torch.manual_seed(0)
    net, x = networks.lenet5(), torch.randn(7, 1, 28, 28)
    x[:, :, :10] = -0.42  # a uniform border, as images of digits have, where all outputs of a pooling window are equal
    outputs = net(x), published_order(net, x)
    assert torch.allclose(*outputs, atol=1e-6)
    weights = torch.randn_like(outputs[0])
    gradients = [torch.autograd.grad((out * weights).mean(), list(net.parameters())) for out in outputs]
    for found, expected in zip(*gradients, strict=True):
        assert torch.allclose(found, expected, atol=1e-6, rtol=1e-4)


def test_empty_batch_is_accepted():
    assert networks.lenet5()(torch.zeros(0, 1, 28, 28)).shape == (0, 10)


def test_networks_import_neither_numba_nor_accelerated():
    code = (
        "import sys, torch; from volmin import networks; networks.lenet5()(torch.zeros(1, 1, 28, 28)); "
        "print({'numba', 'llvmlite', 'volmin.accelerated'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "set()"
