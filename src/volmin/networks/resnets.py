"""Residual networks (He et al., 2016), with the parameter names of torchvision."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions with a shortcut around them."""

    expansion = 1

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _shortcut(channels, width * self.expansion, stride)

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(out)) + self.downsample(x))


class Bottleneck(nn.Module):
    """A 3 x 3 convolution between two 1 x 1 convolutions, with a shortcut around them."""

    expansion = 4

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, width * self.expansion, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(width * self.expansion)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _shortcut(channels, width * self.expansion, stride)

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        return self.relu(self.bn3(self.conv3(out)) + self.downsample(x))


def _shortcut(channels: int, out_channels: int, stride: int) -> nn.Module:
    """The identity, or a projection where the shape changes."""
    if stride == 1 and channels == out_channels:
        return nn.Identity()
    projection = nn.Conv2d(channels, out_channels, 1, stride, bias=False)
    return nn.Sequential(projection, nn.BatchNorm2d(out_channels))


class ResNet(nn.Module):
    """A residual network: stem, stages of blocks, mean over all pixels, linear layer.

    Every stage but the first halves the height and width.

    Args:
        block: ``BasicBlock`` or ``Bottleneck``.
        depths: Number of blocks of each stage.
        widths: Channels of each stage, before the block's expansion.
        num_classes: C, the number of logits.
        stem: First convolution.
        pool: Pooling after the stem, if any.
    """

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        depths: Sequence[int],
        widths: Sequence[int],
        num_classes: int,
        stem: nn.Conv2d,
        pool: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.conv1, self.bn1 = stem, nn.BatchNorm2d(stem.out_channels)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = pool or nn.Identity()
        channels, self.stages = stem.out_channels, len(depths)
        for number, (depth, width) in enumerate(zip(depths, widths, strict=True), start=1):
            strides = [1 if number == 1 else 2] + [1] * (depth - 1)
            stage = nn.Sequential()
            for stride in strides:
                stage.append(block(channels, width, stride))
                channels = width * block.expansion
            self.add_module(f"layer{number}", stage)
        self.fc = nn.Linear(channels, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        for number in range(1, self.stages + 1):
            x = self.get_submodule(f"layer{number}")(x)
        return self.fc(x.mean((2, 3)))


def resnet18(num_classes: int = 10, in_channels: int = 3, *, stem_padding: int = 0) -> ResNet:
    """ResNet-18 for images of 32 x 32, as in the VolMinNet authors' code (11,173,962 parameters for 10 classes).

    Its first convolution has no padding; ``stem_padding=1`` gives the version that is usual for CIFAR.
    """
    return _for_small_images((2, 2, 2, 2), num_classes, in_channels, stem_padding)


def resnet34(num_classes: int = 100, in_channels: int = 3, *, stem_padding: int = 0) -> ResNet:
    """ResNet-34 for images of 32 x 32, as the VolMinNet authors' code uses for CIFAR-100 (21,328,292 parameters)."""
    return _for_small_images((3, 4, 6, 3), num_classes, in_channels, stem_padding)


def _for_small_images(depths: Sequence[int], num_classes: int, in_channels: int, stem_padding: int) -> ResNet:
    stem = nn.Conv2d(in_channels, 64, 3, padding=stem_padding, bias=False)
    return _channels_last(ResNet(BasicBlock, depths, (64, 128, 256, 512), num_classes, stem))


def resnet32(num_classes: int = 100, in_channels: int = 3) -> ResNet:
    """He et al.'s ResNet-32 for CIFAR, which the paper names for CIFAR-100 (472,756 parameters).

    Shortcuts that change the shape are projections, as in the other networks here, not padded identities.
    """
    stem = nn.Conv2d(in_channels, 16, 3, padding=1, bias=False)
    return _channels_last(ResNet(BasicBlock, (5, 5, 5), (16, 32, 64), num_classes, stem))


def resnet50(num_classes: int = 1000, in_channels: int = 3) -> ResNet:
    """ResNet-50 for images of 224 x 224; torchvision's weights fit it (see ``load_weights``)."""
    stem = nn.Conv2d(in_channels, 64, 7, stride=2, padding=3, bias=False)
    pool = nn.MaxPool2d(3, stride=2, padding=1)
    return _channels_last(ResNet(Bottleneck, (3, 4, 6, 3), (64, 128, 256, 512), num_classes, stem, pool))


def _channels_last(net: ResNet) -> ResNet:
    return net.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
