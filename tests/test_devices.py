import subprocess
import sys

import pytest
import torch

from volmin.devices import OneDevice, launch


def test_one_device_is_the_cpu_where_there_is_nothing_faster():
    expected = torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
    assert launch(1).device == OneDevice().device == expected
    assert OneDevice("cpu").device == torch.device("cpu")


def test_unknown_devices_are_refused():
    with pytest.raises(ValueError, match="Unknown device 'abacus': give auto, cpu, gpu"):
        OneDevice("abacus")


@pytest.mark.skipif(torch.accelerator.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="no GPU that torch can use"):
        OneDevice("gpu")


def test_training_on_one_device_waits_neither_for_fabric_nor_for_figures():
    heavy = ("lightning_fabric", "matplotlib", "sklearn")
    code = f"import sys, volmin.experiments.commands; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
