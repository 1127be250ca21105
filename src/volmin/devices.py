"""Where training runs: on one device, or on several through Lightning Fabric.

Fabric takes longer to import than a small network to train, so it is asked for only where there is more than one
device, or where a user brings it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

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
    """One device without ceremony; several as data-parallel processes."""
    if devices == 1:
        return OneDevice()
    from lightning_fabric import Fabric

    fabric = Fabric(devices=devices, strategy="ddp")
    fabric.launch()
    return fabric


def _device(name: str) -> torch.device:
    if name not in ("auto", "gpu"):
        try:
            return torch.device(name)
        except RuntimeError:
            raise ValueError(f"Unknown device {name!r}: give auto, cpu, gpu, or a name such as cuda:1.") from None
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if accelerator is None and name == "gpu":
        raise ValueError("There is no GPU that torch can use: give the device as auto or cpu.")
    return accelerator or torch.device("cpu")
