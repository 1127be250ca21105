"""LeNet-5 (LeCun et al., 1998)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class LeNet5(nn.Module):
    """LeNet-5 for 28 x 28 grey images, as in the VolMinNet authors' code (61,706 parameters for 10 classes)."""

    def __init__(self, num_classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.head = nn.Sequential(
            nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, num_classes)
        )

    def features(self, x: Tensor) -> Tensor:
        """(N, 16, 5, 5) output of both convolutions."""
        # Pooling before the ReLU gives the same values as after it, on a quarter of the pixels.
        x = F.max_pool2d(self.conv1(x), 2).relu()
        return F.max_pool2d(self.conv2(x), 2).relu()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x).flatten(1))
