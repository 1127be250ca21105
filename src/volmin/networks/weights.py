"""Weights from files, read without executing code in them."""

from __future__ import annotations

import pickle
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from volmin.exceptions import DataError
from volmin.networks.modules import Network


def load_weights(net: Network, path: str | Path, head: str = "fc") -> Network:
    """Load the weights of a checkpoint file into ``net``, and return it.

    Args:
        net: Network of the architecture that the file is for.
        path: A ``.safetensors`` file, or a state dict written by ``torch.save``, such as torchvision's checkpoints.
        head: Name of the last layer, which keeps its weights if the file's are for another number of classes.
    """
    found, own = _read(Path(path)), net.state_dict()
    for name in [name for name in found if name.startswith(f"{head}.")]:
        if name in own and found[name].shape != own[name].shape:
            found[name] = own[name]
    missing = [name for name in own if name not in found and not name.endswith("num_batches_tracked")]
    unknown = [name for name in found if name not in own]
    misshapen = [name for name in found if name in own and found[name].shape != own[name].shape]
    for problem, names in (("lacks", missing), ("also has", unknown), ("has another shape for", misshapen)):
        if names:
            shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
            raise DataError(f"The weights in {path} are for another network: the file {problem} {shown}.")
    net.load_state_dict(found, strict=False)
    return net


def _read(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise DataError(f"The file of weights {path} does not exist.")
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        content = torch.load(path, map_location="cpu", weights_only=True)
    # Damaged or foreign files make the parsers raise any of these.
    except (SafetensorError, pickle.UnpicklingError, RuntimeError, EOFError, OSError, ValueError, KeyError) as error:
        raise DataError(
            f"The weights in {path} cannot be read ({type(error).__name__}): a .safetensors file or a state dict of "
            "tensors is expected."
        ) from None
    if not isinstance(content, dict) or not all(isinstance(value, Tensor) for value in content.values()):
        raise DataError(f"The file {path} does not hold a state dict of tensors.")
    return dict(content)
