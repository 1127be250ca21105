import pytest
import torch
from torch import nn

from volmin import networks
from volmin.networks.resnets import BasicBlock, ResNet


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
    assert sum(p.numel() for p in build(num_classes).parameters()) == count


def heights(net: ResNet, size: int = 32) -> list[int]:
    """Heights of the outputs of the stem and of each stage."""
    seen: list[int] = []
    layers = [net.maxpool] + [layer for name, layer in net.named_children() if name.startswith("layer")]
    for layer in layers:
        layer.register_forward_hook(lambda module, inputs, out: seen.append(out.shape[2]))
    with torch.no_grad():
        net.eval()(torch.zeros(1, 3, size, size))
    return seen


def test_feature_map_sizes_are_those_of_the_authors_code():
    assert heights(networks.resnet18()) == [30, 30, 15, 8, 4]
    assert heights(networks.resnet18(stem_padding=1)) == [32, 32, 16, 8, 4]
    assert heights(networks.resnet34()) == [30, 30, 15, 8, 4]
    assert heights(networks.resnet32()) == [32, 32, 16, 8]
    assert heights(networks.resnet50(), 64) == [16, 16, 8, 4, 2]


@pytest.mark.parametrize("name", ["resnet18", "resnet32", "resnet50"])
def test_networks_by_name_accept_grey_images_and_any_number_of_classes(name):
    net = networks.build(name, (1, 32, 32), 7)
    assert net.eval()(torch.zeros(2, 1, 32, 32)).shape == (2, 7)


def test_block_with_zero_convolutions_is_the_relu_of_its_input():
    net = networks.resnet32()
    block = net.get_submodule("layer1.0")
    assert isinstance(block, BasicBlock)
    nn.init.zeros_(block.bn2.weight)
    x = torch.randn(2, 16, 8, 8)
    assert torch.equal(block(x), x.relu())
    assert isinstance(net.get_submodule("layer2.0.downsample"), nn.Sequential)
    assert isinstance(net.get_submodule("layer2.1.downsample"), nn.Identity)


def test_resnet50_has_the_parameter_names_of_torchvision():
    names = networks.resnet50().state_dict().keys()
    assert {
        "conv1.weight", "bn1.running_mean", "layer1.0.conv3.weight", "layer1.0.downsample.0.weight",
        "layer1.0.downsample.1.bias", "layer3.5.bn3.weight", "layer4.2.conv2.weight", "fc.weight", "fc.bias",
    } <= names  # fmt: skip
    assert len(names) == 320  # as in torchvision's checkpoint: 161 parameters, 53 x 3 statistics
    assert "layer1.1.downsample.0.weight" not in names


def test_resnets_can_be_redrawn():
    net = networks.resnet32(10)
    twin = networks.fresh_copy(net)
    assert not torch.equal(net.get_parameter("layer3.4.conv2.weight"), twin.get_parameter("layer3.4.conv2.weight"))
    assert networks.last_linear(net) is net.fc
