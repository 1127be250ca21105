"""Networks by name, for presets, specs and the command line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from torch import nn

from volmin.exceptions import InputError
from volmin.networks.fast_cnn import FastCNN
from volmin.networks.lenet import LeNet5
from volmin.networks.mlp import mlp
from volmin.networks.resnets import resnet18, resnet32, resnet34, resnet50


def lenet5(num_classes: int = 10) -> LeNet5:
    """LeNet-5 for 28 x 28 grey images, as in the VolMinNet authors' code (61,706 parameters for 10 classes)."""
    return LeNet5(num_classes)


def fast_cnn(
    num_classes: int = 10,
    in_channels: int = 3,
    widths: Sequence[int] = (32, 128, 128),
    *,
    mirrored: bool = False,
) -> FastCNN:
    """A small network for small images that trains well in few epochs on CPUs (497,826 parameters for CIFAR-10).

    Args:
        num_classes: Number of classes C.
        in_channels: Number of channels of the images.
        widths: Number of channels of each block.
        mirrored: Average the features of an image and its mirror image in evaluation.
    """
    return FastCNN(num_classes, in_channels, widths, mirrored=mirrored)


def cifar_cnn(num_classes: int = 10, in_channels: int = 3) -> FastCNN:
    """``fast_cnn`` for CIFAR, 1.5 times as wide, averaging over mirror images in evaluation."""
    return fast_cnn(num_classes, in_channels, (48, 192, 192), mirrored=True)


BUILDERS: dict[str, Callable[[tuple[int, ...], int], nn.Module]] = {
    "cifar_cnn": lambda shape, num_classes: cifar_cnn(num_classes, shape[0]),
    "fast_cnn": lambda shape, num_classes: fast_cnn(num_classes, shape[0]),
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
    "cifar_cnn": "fast_cnn for CIFAR: 1.5 times as wide, averaging over mirror images in evaluation",
    "fast_cnn": "a small network for small images that trains well in few epochs on CPUs",
    "lenet5": "for 28 x 28 grey images, as in the authors' code",
    "mlp": "one hidden layer of 128 units, for tables and flattened images",
    "resnet18": "for small images, as in the authors' code: its first convolution has no padding",
    "resnet18_padded": "resnet18 with padding, as in most versions for CIFAR",
    "resnet32": "for small images, named by the paper for CIFAR-100",
    "resnet34": "for small images, as in the authors' code: its first convolution has no padding",
    "resnet34_padded": "resnet34 with padding",
    "resnet50": "for images of 224 x 224 pixels; accepts torchvision's weights",
}


def names() -> list[str]:
    """Names that ``build`` accepts."""
    return sorted(BUILDERS)


def build(name: str, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """The named network.

    Args:
        name: One of ``names()``.
        input_shape: Shape of one input, without the batch dimension.
        num_classes: C, the number of logits.
    """
    check_input(name, input_shape)
    return BUILDERS[name](input_shape, num_classes)


def check_input(name: str, input_shape: tuple[int, ...]) -> None:
    """Require a known network that takes inputs of ``input_shape``."""
    check_name(name)
    if name != "mlp" and len(input_shape) != 3:
        raise InputError(f"The network {name} takes images, but the data are rows of shape {input_shape}: use mlp.")
    if name == "lenet5" and input_shape != (1, 28, 28):
        raise InputError(f"lenet5 takes grey images of 28 x 28 pixels, but these have the shape {input_shape}.")


def check_name(name: str) -> None:
    """Require a name that ``build`` accepts."""
    if name not in BUILDERS:
        raise InputError(f"Unknown network {name!r}. Choose one of: {', '.join(names())}.")
