import subprocess
import sys

import pytest
import torch

from volmin import Recipe, fit, networks
from volmin.data import TensorLoader
from volmin.exceptions import InputError
from volmin.methods import VolMinNet
from volmin.training.devices import OneDevice, launch, lost_processes_reported


def test_one_device_is_the_fastest_available():
    expected = torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
    assert launch(1).device == OneDevice().device == expected
    assert OneDevice("cpu").device == torch.device("cpu")


@pytest.mark.parametrize("devices", [1, 3])
def test_torchrun_with_another_number_of_processes_is_rejected(monkeypatch, devices):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    with pytest.raises(ValueError, match=f"number of devices is {devices}: pass --devices 2"):
        launch(devices)


def test_lost_process_is_reported():
    class OneOfTwo(OneDevice):
        world_size = 2

    lost = RuntimeError("[third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer")
    with (
        pytest.raises(ConnectionError, match="Process 0 of 2 has lost"),
        lost_processes_reported(OneOfTwo()),
    ):
        raise lost
    for fabric, error in ((OneDevice(), lost), (OneOfTwo(), RuntimeError("shapes do not fit"))):
        with pytest.raises(RuntimeError, match="gloo|shapes"), lost_processes_reported(fabric):
            raise error


def test_processes_with_different_checkpoints_are_rejected(tmp_path):
    class AheadOfTheFirst(OneDevice):
        global_rank = 1

        def broadcast(self, value):
            return 0, 0

    loader = TensorLoader(torch.randn(8, 2), torch.arange(8) % 2, 4)
    method, recipe = VolMinNet(networks.mlp(2, 2, (3,)), 2), Recipe(epochs=1)
    fit(method, loader, recipe=recipe, checkpoint=tmp_path / "epoch.ckpt", fabric=OneDevice("cpu"))
    with pytest.raises(ValueError, match=r"first resumes from .* \(0, 0\), process 1 from \(0, 1\)"):
        fit(method, loader, recipe=recipe, checkpoint=tmp_path / "epoch.ckpt", fabric=AheadOfTheFirst("cpu"))


@pytest.mark.parametrize("name", ["abacus", None, 7])
def test_unknown_device_is_rejected(name):
    with pytest.raises(InputError, match=f"Unknown device {name!r}: give auto, cpu, gpu"):
        OneDevice(name)


@pytest.mark.skipif(torch.accelerator.is_available(), reason="there is a GPU")
def test_missing_gpu_is_rejected():
    with pytest.raises(InputError, match="no GPU that torch can use"):
        OneDevice("gpu")
    for name in ("cuda", "mps"):
        with pytest.raises(InputError, match=f"torch cannot use the device '{name}' here: give auto or cpu"):
            OneDevice(name)


@pytest.mark.slow
def test_training_on_one_device_imports_neither_fabric_nor_matplotlib():
    heavy = ("lightning_fabric", "matplotlib", "scipy.optimize", "sklearn")
    modules = "volmin.experiments.run, volmin.cli.progress, volmin.cli.terminal"
    code = f"import sys, {modules}; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
