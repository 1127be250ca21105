"""Networks. They take a batch and return logits, never probabilities."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from itertools import pairwise
from math import prod

import torch
from torch import Tensor, nn

from volmin.exceptions import InputError
from volmin.networks.fast_cnn import FastCNN
from volmin.networks.lenet import LeNet5
from volmin.networks.resnets import resnet18, resnet32, resnet34, resnet50
from volmin.networks.weights import load_weights

__all__ = [
    "Standardize",
    "build",
    "fast_cnn",
    "features_and_logits",
    "fresh_copy",
    "last_linear",
    "lenet5",
    "load_weights",
    "mlp",
    "names",
    "reset_parameters",
    "resnet18",
    "resnet32",
    "resnet34",
    "resnet50",
]


def lenet5(num_classes: int = 10) -> nn.Module:
    """LeNet-5 for 28 x 28 grey images, as the VolMinNet code has it (61,706 parameters for 10 classes)."""
    return LeNet5(num_classes)


def fast_cnn(
    num_classes: int = 10,
    in_channels: int = 3,
    widths: Sequence[int] = (32, 128, 128),
    *,
    dtype: torch.dtype = torch.float32,
) -> nn.Module:
    """A small network for small images that trains well in few epochs, for CPUs (497,826 parameters for CIFAR-10).

    Args:
        num_classes: Number of classes C.
        in_channels: Number of channels of the images.
        widths: Number of channels of each of the blocks.
        dtype: Type in which features are computed; weights and logits are float32.
    """
    return FastCNN(num_classes, in_channels, widths, dtype=dtype)


def mlp(in_features: int, num_classes: int, hidden: Sequence[int] = (128,)) -> nn.Module:
    """A multi-layer perceptron with ReLU on flattened input."""
    widths = [in_features, *hidden]
    layers: list[nn.Module] = [nn.Flatten()]
    for fan_in, fan_out in pairwise(widths):
        layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], num_classes))


class Standardize(nn.Module):
    """Shifts and scales each feature by constants that were measured on training data."""

    mean: Tensor
    scale: Tensor

    def __init__(self, mean: Tensor, std: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("scale", torch.where(std > 0, std, 1.0))

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.scale


BUILDERS: dict[str, Callable[[tuple[int, ...], int], nn.Module]] = {
    "fast_cnn": lambda shape, num_classes: fast_cnn(num_classes, shape[0]),
    "fast_cnn_bf16": lambda shape, num_classes: fast_cnn(num_classes, shape[0], dtype=torch.bfloat16),
    "lenet5": lambda shape, num_classes: lenet5(num_classes),
    "mlp": lambda shape, num_classes: mlp(prod(shape), num_classes),
    "resnet18": lambda shape, num_classes: resnet18(num_classes, shape[0]),
    "resnet18_padded": lambda shape, num_classes: resnet18(num_classes, shape[0], stem_padding=1),
    "resnet32": lambda shape, num_classes: resnet32(num_classes, shape[0]),
    "resnet34": lambda shape, num_classes: resnet34(num_classes, shape[0]),
    "resnet34_padded": lambda shape, num_classes: resnet34(num_classes, shape[0], stem_padding=1),
    "resnet50": lambda shape, num_classes: resnet50(num_classes, shape[0]),
}
DESCRIPTIONS = {
    "fast_cnn": "a small network for small images that trains well in few epochs, for CPUs",
    "fast_cnn_bf16": "the same, computed in bfloat16: about twice as fast on CPUs with AVX-512 BF16 or AMX",
    "lenet5": "for 28 x 28 grey images, as in the authors' code",
    "mlp": "a hidden layer of 128 units, for tables and flattened images",
    "resnet18": "for small images, as in the authors' code: its first convolution has no padding",
    "resnet18_padded": "the same with padding, as most versions for CIFAR have it",
    "resnet32": "for small images, named by the paper for CIFAR-100",
    "resnet34": "for small images, as in the authors' code: its first convolution has no padding",
    "resnet34_padded": "the same with padding",
    "resnet50": "for images of 224 x 224, takes torchvision's weights",
}


def names() -> list[str]:
    """Names that ``build`` takes."""
    return sorted(BUILDERS)


def build(name: str, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """The named network for inputs of ``input_shape`` (without the batch dimension)."""
    check_name(name)
    if name != "mlp" and len(input_shape) != 3:
        raise InputError(f"The network {name} takes images, but the data are rows of shape {input_shape}: take mlp.")
    if name == "lenet5" and input_shape != (1, 28, 28):
        raise InputError(f"lenet5 takes grey images of 28 x 28 pixels, but these have the shape {input_shape}.")
    return BUILDERS[name](input_shape, num_classes)


def check_name(name: str) -> None:
    """Refuse a name that ``build`` does not take."""
    if name not in BUILDERS:
        raise InputError(f"Unknown network {name!r}. Choose one of: {', '.join(names())}.")


def reset_parameters(net: nn.Module) -> None:
    """Draw all parameters of ``net`` anew, as its layers do when they are made."""
    before = {name: p.detach().clone() for name, p in net.named_parameters()}
    drawn = set()
    for name, module in net.named_modules():
        reset = getattr(module, "reset_parameters", None)
        if callable(reset):
            reset()
            drawn.add(name)
    # A layer may start at constants by right; a weight that stays although nobody claims to draw it has been missed.
    missed = [
        name
        for name, p in net.named_parameters()
        if name.rpartition(".")[0] not in drawn and torch.equal(p, before[name]) and p.unique().numel() > 1
    ]
    if missed:
        raise InputError(
            f"Cannot draw the network's weights anew: {', '.join(missed)} stayed as they were. "
            "Give the modules that own them a reset_parameters method."
        )


def fresh_copy(net: nn.Module) -> nn.Module:
    """A second network of the same architecture with its own random start."""
    twin = copy.deepcopy(net)
    reset_parameters(twin)
    return twin


def last_linear(net: nn.Module) -> nn.Linear:
    """The layer that makes the logits: the last linear one."""
    layers = [module for module in net.modules() if isinstance(module, nn.Linear)]
    if not layers:
        raise InputError("The network has no linear layer, so it has no features before one.")
    return layers[-1]


def features_and_logits(net: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """What the last linear layer sees, (B, D), and what the network makes of it, (B, C)."""
    seen: list[Tensor] = []
    handle = last_linear(net).register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    try:
        logits = net(x)
    finally:
        handle.remove()
    return seen[0], logits
