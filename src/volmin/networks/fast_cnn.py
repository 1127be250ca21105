"""A small network for small images that trains well in few epochs on CPUs.

Three blocks after the design of Jordan's "94 % on CIFAR-10 in 3.29 seconds" (2024), at half its width. Pooling precedes
the first normalisation of a block, so that three quarters of the pixels are not normalised. It trains fast because of
its initialisation: whitened patches, convolutions that start as the identity, and logits near zero.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# Mean, vertical, horizontal and diagonal contrast of 2 x 2 pixels; brightness, red minus blue, both minus green; and
# the variances of their products in natural photographs. The products are very nearly the principal components of such
# patches, so they do not have to be estimated.
_CONTRASTS = torch.tensor([[1, 1, 1, 1], [1, 1, -1, -1], [1, -1, 1, -1], [1, -1, -1, 1]]) / 2
_COLOURS = torch.tensor([[1, 1, 1], [1, 0, -1], [1, -2, 1]]) / torch.tensor([[3.0], [2.0], [6.0]]).sqrt()
_VARIANCES = torch.tensor([[10.13, 0.396, 0.331, 0.055], [0.828, 0.017, 0.014, 0.0016], [0.189, 0.005, 0.0046, 0.0006]])
_NOISE = 5e-4
"""Added to the variances, so that components with a smaller variance are not amplified."""
_LOGIT_SCALE = 3.0
"""Divisor of the logits: features that are maxima are large, and so would be the first steps of the head. With a much
larger divisor the head is still uncertain at the end of a short training, and T is estimated with too little noise."""


class FastCNN(nn.Sequential):
    """The network of ``volmin.networks.fast_cnn``."""

    def __init__(self, num_classes: int, in_channels: int, widths: Sequence[int], *, mirrored: bool = False) -> None:
        whitening = Whitening(in_channels)
        channels, layers = whitening.out_channels, [whitening, nn.GELU()]
        for width in widths:
            layers += [
                IdentityConv2d(channels, width, 3, padding=1, bias=False),
                nn.MaxPool2d(2),
                nn.BatchNorm2d(width),
                nn.GELU(),
                IdentityConv2d(width, width, 3, padding=1, bias=False),
                nn.BatchNorm2d(width),
                nn.GELU(),
            ]
            channels = width
        super().__init__(*layers, nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(channels, num_classes))
        self.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
        self.mirrored = mirrored

    def forward(self, input: Tensor) -> Tensor:
        features = self._features(input)
        if self.mirrored and not self.training:
            features = (features + self._features(input.flip(3))) / 2
        # In full precision also under autocast: logits, and T with them, are sensitive to rounding.
        with torch.autocast(input.device.type, enabled=False):
            return self[-1](features.float()) / _LOGIT_SCALE

    def _features(self, x: Tensor) -> Tensor:
        """(B, D) input of the last layer."""
        for layer in list(self)[:-1]:
            x = layer(x)
        return x


class Whitening(nn.Module):
    """The components of 2 x 2 patches at one scale, each with both signs. Only the bias is trained."""

    filters: Tensor

    def __init__(self, in_channels: int) -> None:
        super().__init__()
        colours, variances = _COLOURS, _VARIANCES
        if in_channels != 3:
            # The statistics of other channels are unknown: each is whitened alone, with a third of the variance.
            colours, variances = torch.eye(in_channels), _VARIANCES[:1].expand(in_channels, -1) / 3
        components = torch.einsum("ac,bp->abcp", colours, _CONTRASTS) / (variances + _NOISE).sqrt()[..., None, None]
        components = components.reshape(-1, in_channels, 2, 2)
        self.register_buffer("filters", torch.cat([components, -components]))
        self.bias = nn.Parameter(torch.zeros(len(self.filters)))

    @property
    def out_channels(self) -> int:
        return len(self.filters)

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.filters, self.bias)


class IdentityConv2d(nn.Conv2d):
    """A convolution whose first output channels start as copies of its input channels."""

    def reset_parameters(self) -> None:
        super().reset_parameters()
        nn.init.dirac_(self.weight.data[: self.in_channels])
