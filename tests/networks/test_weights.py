import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from volmin import networks
from volmin.exceptions import DataError
from volmin.networks.resnets import ResNet


@pytest.fixture
def trained() -> ResNet:
    """A network whose batch statistics differ from the initial ones."""
    net = networks.resnet32(6)
    net(torch.randn(4, 3, 8, 8))
    return net.eval()


def save(net: nn.Module, path: Path) -> Path:
    state = {name: value.contiguous() for name, value in net.state_dict().items()}
    if path.suffix == ".safetensors":
        save_file(state, path)
    else:
        torch.save(state, path)
    return path


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_loaded_weights_give_the_same_outputs(trained, tmp_path, suffix):
    net = networks.load_weights(networks.resnet32(6), save(trained, tmp_path / f"net{suffix}")).eval()
    x = torch.randn(2, 3, 8, 8)
    assert torch.equal(net(x), trained(x))


def test_head_for_another_number_of_classes_keeps_its_weights(trained, tmp_path):
    net = networks.resnet32(3)
    before = net.fc.weight.clone()
    networks.load_weights(net, save(trained, tmp_path / "net.pth"))
    assert torch.equal(net.fc.weight, before)
    name = "layer2.0.conv1.weight"
    assert torch.equal(net.get_parameter(name), trained.get_parameter(name))
    assert torch.equal(net.get_buffer("bn1.running_mean"), trained.get_buffer("bn1.running_mean"))


def test_checkpoints_without_batch_counters_are_accepted(trained, tmp_path):
    state = {name: value for name, value in trained.state_dict().items() if "num_batches" not in name}
    torch.save(state, tmp_path / "old.pth")
    networks.load_weights(networks.resnet32(6), tmp_path / "old.pth")


def test_weights_of_another_network_are_rejected(trained, tmp_path):
    path = save(trained, tmp_path / "net.pth")
    with pytest.raises(DataError, match="for another network: the file lacks layer1.0.conv3.weight, .* more"):
        networks.load_weights(networks.resnet50(6), path)
    with pytest.raises(DataError, match="the file has another shape for conv1.weight"):
        networks.load_weights(networks.resnet32(6, in_channels=1), path)
    torch.save({**trained.state_dict(), "extra": torch.zeros(1)}, path)
    with pytest.raises(DataError, match="the file also has extra"):
        networks.load_weights(networks.resnet32(6), path)


class CreatesFolder:
    """Creates the folder ``created`` when it is unpickled."""

    def __reduce__(self):
        return os.mkdir, ("created",)


@pytest.mark.parametrize("name", ["net.pth", "net.safetensors"])
def test_damaged_and_malicious_files_are_rejected(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    path, net = tmp_path / name, networks.mlp(2, 2)
    torch.save({"fc.weight": CreatesFolder()}, path)
    with pytest.raises(DataError, match="cannot be read"):
        networks.load_weights(net, path)
    for content in (b"", b"junk" * 10):
        path.write_bytes(content)
        with pytest.raises(DataError, match="cannot be read"):
            networks.load_weights(net, path)
    assert not (tmp_path / "created").exists()
    with pytest.raises(DataError, match="does not exist"):
        networks.load_weights(net, tmp_path / "nothing.pth")


def test_files_without_a_state_dict_are_rejected(tmp_path):
    torch.save({"epoch": 3}, tmp_path / "net.pth")
    with pytest.raises(DataError, match="does not hold a state dict of tensors"):
        networks.load_weights(networks.mlp(2, 2), tmp_path / "net.pth")
