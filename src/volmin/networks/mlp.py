"""Multi-layer perceptrons for tables, and the standardisation of their features."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn


def mlp(in_features: int, num_classes: int, hidden: Sequence[int] = (128,)) -> nn.Sequential:
    """A multi-layer perceptron with ReLU activations; the input is flattened."""
    widths = [in_features, *hidden]
    layers: list[nn.Module] = [nn.Flatten()]
    for fan_in, fan_out in pairwise(widths):
        layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], num_classes))


class Standardize(nn.Module):
    """Shifts and scales each feature by constants measured on the training data.

    Args:
        mean: (D,) means of the features.
        std: (D,) standard deviations; constant features, whose deviation is zero, are shifted only.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, mean: Tensor, std: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("scale", torch.where(std > 0, std, 1.0))

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.scale
