"""Weights from files, without running anything that is in them."""

from __future__ import annotations

import pickle
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from volmin.exceptions import InputError


def load_weights(net: nn.Module, path: str | Path, head: str = "fc") -> nn.Module:
    """Put the weights of a checkpoint file into ``net``, which is given back.

    Args:
        net: the network, ``resnet50(14)`` say.
        path: a ``.safetensors`` file, or a state dict that ``torch.save`` wrote, such as torchvision's checkpoints.
        head: name of the last layer; it keeps its random start where the file's is for another number of classes.
    """
    found, own = _read(Path(path)), net.state_dict()
    for name in [name for name in found if name.startswith(f"{head}.")]:
        if name in own and found[name].shape != own[name].shape:
            found[name] = own[name]
    missing = [name for name in own if name not in found and not name.endswith("num_batches_tracked")]
    unknown = [name for name in found if name not in own]
    misshapen = [name for name in found if name in own and found[name].shape != own[name].shape]
    for problem, names in (("lacks", missing), ("has the unknown", unknown), ("has in another shape", misshapen)):
        if names:
            shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
            raise InputError(f"The weights in {path} are of another network: the file {problem} {shown}.")
    net.load_state_dict(found, strict=False)
    return net


def _read(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise InputError(f"There is no file of weights at {path}.")
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (SafetensorError, pickle.UnpicklingError, RuntimeError, EOFError, OSError, ValueError, KeyError) as error:
        raise InputError(
            f"The weights in {path} cannot be read ({type(error).__name__}): a .safetensors file or a state dict of "
            "tensors is expected."
        ) from None
    if not isinstance(content, dict) or not all(isinstance(value, Tensor) for value in content.values()):
        raise InputError(f"The file {path} does not hold a state dict of tensors.")
    return dict(content)
