"""Where training runs: on one device, or on several through Lightning Fabric.

Fabric takes longer to import than a small network to train, so it is asked for only where there is more than one
device, or where a user brings it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from volmin.exceptions import InputError

if TYPE_CHECKING:
    from lightning_fabric import Fabric

Anything = TypeVar("Anything")


class OneDevice:
    """One device, with the names by which the training loop speaks to Fabric.

    Args:
        name: ``auto`` for a GPU where there is one, ``gpu`` for whichever kind there is, or a name that torch knows.
    """

    global_rank, world_size, is_global_zero = 0, 1, True

    def __init__(self, name: str = "auto") -> None:
        self.device = _device(name)

    def setup(self, module: nn.Module, *optimizers: Optimizer) -> tuple[Any, ...]:
        return module.to(self.device), *optimizers

    def backward(self, loss: Tensor) -> None:
        loss.backward()

    def broadcast(self, value: Anything) -> Anything:
        return value

    def to_device(self, tensors: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(torch.as_tensor(tensor).to(self.device) for tensor in tensors)


def launch(devices: int = 1) -> OneDevice | Fabric:
    """One device without ceremony; several as data-parallel processes.

    Below ``torchrun`` the processes are there already, maybe on several machines, and ``devices`` counts all of them.
    """
    started, here = (int(os.environ.get(name, 0)) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    if here and started != devices:
        raise InputError(
            f"torchrun has started {started} processes, but the number of devices is {devices}: "
            f"say --devices {started}."
        )
    if devices == 1:
        return OneDevice()
    from lightning_fabric import Fabric

    local, nodes = (here, started // here) if here else (devices, 1)
    fabric = Fabric(devices=local, num_nodes=nodes, strategy="ddp")
    fabric.launch()
    return fabric


@contextmanager
def told_of_lost_processes(fabric: OneDevice | Fabric) -> Iterator[None]:
    """Say in a line that another process is gone, where the libraries below would show a page of their insides."""
    try:
        yield
    except RuntimeError as error:
        gone = isinstance(error, torch.distributed.DistError) or "gloo" in str(error) or "NCCL" in str(error)
        if fabric.world_size == 1 or not gone:
            raise
        raise ConnectionError(
            f"Process {fabric.global_rank} of {fabric.world_size} has lost another one, which was killed or ended with "
            "an error of its own. The same command goes on from the last epoch."
        ) from None


def _device(name: str) -> torch.device:
    if name not in ("auto", "gpu"):
        try:
            return torch.device(name)
        except RuntimeError:
            raise InputError(f"Unknown device {name!r}: give auto, cpu, gpu, or a name such as cuda:1.") from None
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if accelerator is None and name == "gpu":
        raise InputError("There is no GPU that torch can use: give the device as auto or cpu.")
    return accelerator or torch.device("cpu")
