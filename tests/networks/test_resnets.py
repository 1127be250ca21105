from typing import Any

import pytest
import torch
from torch import nn

from volmin import networks


def parameters(net):
    return sum(p.numel() for p in net.parameters())


@pytest.mark.parametrize(
    ("build", "num_classes", "count"),
    [
        (networks.resnet18, 10, 11_173_962),
        (networks.resnet34, 10, 21_282_122),
        (networks.resnet34, 100, 21_328_292),
        (networks.resnet32, 100, 472_756),
        (networks.resnet50, 1000, 25_557_032),
        (networks.resnet50, 14, 23_536_718),
    ],
)
def test_parameter_counts(build, num_classes, count):
    assert parameters(build(num_classes)) == count


def sides(net, size=32):
    """Height of what the stem and each stage give."""
    seen = []
    layers = [net.maxpool] + [layer for name, layer in net.named_children() if name.startswith("layer")]
    for layer in layers:
        layer.register_forward_hook(lambda module, inputs, out: seen.append(out.shape[2]))
    with torch.no_grad():
        net.eval()(torch.zeros(1, 3, size, size))
    return seen


def test_map_sizes_are_those_of_the_authors_code():
    assert sides(networks.resnet18()) == [30, 30, 15, 8, 4]
    assert sides(networks.resnet18(stem_padding=1)) == [32, 32, 16, 8, 4]
    assert sides(networks.resnet34()) == [30, 30, 15, 8, 4]
    assert sides(networks.resnet32()) == [32, 32, 16, 8]
    assert sides(networks.resnet50(), 64) == [16, 16, 8, 4, 2]


@pytest.mark.parametrize("name", ["resnet18", "resnet32", "resnet50"])
def test_grey_images_and_numbers_of_classes_by_name(name):
    net = networks.build(name, (1, 32, 32), 7)
    assert net.eval()(torch.zeros(2, 1, 32, 32)).shape == (2, 7)


def test_a_block_adds_its_input():
    """With silent convolutions a block of equal shape is the ReLU of its input."""
    net: Any = networks.resnet32()
    block = net.layer1[0]
    nn.init.zeros_(block.bn2.weight)
    x = torch.randn(2, 16, 8, 8)
    assert torch.equal(block(x), x.relu())
    assert isinstance(net.layer2[0].downsample, nn.Sequential)
    assert isinstance(net.layer2[1].downsample, nn.Identity)


def test_resnet50_has_torchvisions_names():
    names = networks.resnet50().state_dict().keys()
    assert {
        "conv1.weight", "bn1.running_mean", "layer1.0.conv3.weight", "layer1.0.downsample.0.weight",
        "layer1.0.downsample.1.bias", "layer3.5.bn3.weight", "layer4.2.conv2.weight", "fc.weight", "fc.bias",
    } <= names  # fmt: skip
    assert len(names) == 320  # as in its checkpoint: 161 parameters, 53 x 3 statistics
    assert "layer1.1.downsample.0.weight" not in names


def test_a_resnet_can_be_copied_afresh():
    net: Any = networks.resnet32(10)
    twin = networks.fresh_copy(net)
    assert not torch.equal(net.layer3[4].conv2.weight, twin.layer3[4].conv2.weight)
    assert networks.last_linear(net) is net.fc
