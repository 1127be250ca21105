"""Random features of the Gaussian kernel."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class RandomFeatures(nn.Module):
    """``sqrt(2 / M) cos(x W + b)``, whose inner products approximate a Gaussian kernel.

    A linear layer on these features is a smooth nonlinear classifier that is fitted like a linear one. Reference:
    Rahimi, Recht, "Random Features for Large-Scale Kernel Machines", NIPS 2007.

    Args:
        in_features: Number of features D of a row.
        out_features: Number of random features M.
        gamma: The kernel is ``exp(-gamma |x - x'|^2)``.
        seed: Random seed of W and b.
    """

    weight: Tensor
    phase: Tensor

    def __init__(self, in_features: int, out_features: int, gamma: float = 1.0, seed: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        weight = torch.randn(in_features, out_features, generator=generator) * math.sqrt(2 * gamma)
        self.register_buffer("weight", weight)
        self.register_buffer("phase", 2 * math.pi * torch.rand(out_features, generator=generator))

    def forward(self, x: Tensor) -> Tensor:
        return math.sqrt(2 / len(self.phase)) * torch.cos(x @ self.weight + self.phase)


class WithRandomFeatures(RandomFeatures):
    """The inputs and their random features side by side: the kernel of a linear layer is a sum of two kernels."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, super().forward(x)], dim=1)
