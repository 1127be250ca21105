"""Devices and threads: one device, or several through Lightning Fabric.

Importing Fabric takes longer than training a small network, so it is imported only for more than one device.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor, nn

from volmin.exceptions import InputError, LostProcessError

if TYPE_CHECKING:
    from lightning_fabric import Fabric

Value = TypeVar("Value")


class OneDevice:
    """One device, with the part of Fabric's interface that the training loop uses.

    Args:
        name: ``auto`` for a GPU where there is one, ``gpu`` for any kind of GPU, or a device name of torch.
    """

    global_rank, world_size, is_global_zero = 0, 1, True

    def __init__(self, name: str = "auto") -> None:
        self.device = _device(name)

    def setup_module(self, module: nn.Module) -> nn.Module:
        return module.to(self.device)

    def backward(self, loss: Tensor) -> None:
        loss.backward()

    def broadcast(self, value: Value) -> Value:
        return value


def launch(devices: int = 1) -> OneDevice | Fabric:
    """One device, or a launched Fabric with ``devices`` data-parallel processes.

    Under ``torchrun`` the processes already exist, possibly on several machines, and ``devices`` counts all of them.
    """
    started, here = (int(os.environ.get(name, 0)) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    if here and started != devices:
        raise InputError(
            f"torchrun has started {started} processes, but the number of devices is {devices}: "
            f"pass --devices {started}."
        )
    if devices == 1:
        return OneDevice()
    from lightning_fabric import Fabric

    local, nodes = (here, started // here) if here else (devices, 1)
    fabric = Fabric(devices=local, num_nodes=nodes, strategy="ddp")
    fabric.launch()
    return fabric


def check_full_precision(fabric: OneDevice | Fabric) -> None:
    """Require a Fabric without mixed precision of its own, which would round the algebra of T too."""
    if not isinstance(fabric, OneDevice) and (found := fabric.strategy.precision.precision) != "32-true":
        raise InputError(f"Give the precision to fit (precision={found!r}), and launch Fabric without one.")


@contextmanager
def lost_processes_reported(fabric: OneDevice | Fabric) -> Iterator[None]:
    """Turn the communication error of a lost process into a ``LostProcessError``."""
    try:
        yield
    except RuntimeError as error:
        lost = isinstance(error, torch.distributed.DistError) or "gloo" in str(error) or "NCCL" in str(error)
        if fabric.world_size == 1 or not lost:
            raise
        raise LostProcessError(
            f"Process {fabric.global_rank} of {fabric.world_size} has lost another one, which was killed or ended with "
            "an error of its own. The same command resumes from the last epoch."
        ) from None


@contextmanager
def thread_limit(count: int) -> Iterator[None]:
    """Compute with ``count`` threads. Sums are split among them, so results depend on their number in the last bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _device(name: str) -> torch.device:
    if name not in ("auto", "gpu"):
        try:
            device = torch.device(name)
        except (RuntimeError, TypeError):
            raise InputError(f"Unknown device {name!r}: give auto, cpu, gpu, or a name such as cuda:1.") from None
        try:
            torch.empty(0, device=device)
        except (AssertionError, NotImplementedError, RuntimeError):  # which one depends on torch's build
            raise InputError(f"torch cannot use the device {name!r} here: give auto or cpu.") from None
        return device
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if accelerator is None and name == "gpu":
        raise InputError("There is no GPU that torch can use: give the device as auto or cpu.")
    return accelerator or torch.device("cpu")
