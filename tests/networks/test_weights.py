import os
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from volmin import networks


@pytest.fixture
def trained():
    """A network whose batch statistics have moved too."""
    net = networks.resnet32(6)
    net(torch.randn(4, 3, 8, 8))
    return net.eval()


def save(net, path):
    state = {name: value.contiguous() for name, value in net.state_dict().items()}
    save_file(state, path) if path.suffix == ".safetensors" else torch.save(state, path)
    return path


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_a_checkpoint_gives_the_same_outputs(trained, tmp_path, suffix):
    net = networks.load_weights(networks.resnet32(6), save(trained, tmp_path / f"net{suffix}")).eval()
    x = torch.randn(2, 3, 8, 8)
    assert torch.equal(net(x), trained(x))


def test_a_head_for_other_classes_keeps_its_own_start(trained, tmp_path):
    net: Any = networks.resnet32(3)
    before = net.fc.weight.clone()
    networks.load_weights(net, save(trained, tmp_path / "net.pth"))
    assert torch.equal(net.fc.weight, before)
    assert torch.equal(net.layer2[0].conv1.weight, trained.layer2[0].conv1.weight)
    assert torch.equal(net.bn1.running_mean, trained.bn1.running_mean)


def test_old_checkpoints_do_not_count_batches(trained, tmp_path):
    state = {name: value for name, value in trained.state_dict().items() if "num_batches" not in name}
    torch.save(state, tmp_path / "old.pth")
    networks.load_weights(networks.resnet32(6), tmp_path / "old.pth")


def test_weights_of_another_network_are_refused(trained, tmp_path):
    path = save(trained, tmp_path / "net.pth")
    with pytest.raises(ValueError, match="of another network: the file lacks layer1.0.conv3.weight, .* more"):
        networks.load_weights(networks.resnet50(6), path)
    with pytest.raises(ValueError, match="the file has in another shape conv1.weight"):
        networks.load_weights(networks.resnet32(6, in_channels=1), path)
    torch.save({**trained.state_dict(), "extra": torch.zeros(1)}, path)
    with pytest.raises(ValueError, match="the file has the unknown extra"):
        networks.load_weights(networks.resnet32(6), path)


class Harm:
    def __reduce__(self):
        return os.mkdir, ("harmed",)


@pytest.mark.parametrize("name", ["net.pth", "net.safetensors"])
def test_damaged_and_harmful_files_are_refused(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    path, net = tmp_path / name, networks.mlp(2, 2)
    torch.save({"fc.weight": Harm()}, path)
    with pytest.raises(ValueError, match="cannot be read"):
        networks.load_weights(net, path)
    for content in (b"", b"junk" * 10):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="cannot be read"):
            networks.load_weights(net, path)
    assert not (tmp_path / "harmed").exists()
    with pytest.raises(ValueError, match="There is no file of weights"):
        networks.load_weights(net, tmp_path / "nothing.pth")


def test_a_file_that_holds_something_else_is_refused(tmp_path):
    torch.save({"epoch": 3}, tmp_path / "net.pth")
    with pytest.raises(ValueError, match="does not hold a state dict of tensors"):
        networks.load_weights(networks.mlp(2, 2), tmp_path / "net.pth")
