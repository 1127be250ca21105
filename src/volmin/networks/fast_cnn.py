"""A small network for small images that is good after few epochs, for CPUs.

Three blocks after the design of Jordan's "94 % on CIFAR-10 in 3.29 seconds" (2024), at half its width. The pooling
comes before the first normalisation of a block, so that three quarters of the pixels are never normalised. What makes
it learn fast is where it starts: from decorrelated pixels, with convolutions that pass on what they are given, and with
logits near zero.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# Mean, vertical, horizontal and diagonal contrast of 2 x 2 pixels, and how much they vary in natural photographs; and
# the same of colours: brightness, red against blue, and both against green. The products are very nearly the principal
# components of such patches, so that they need not be measured.
_CONTRASTS = torch.tensor([[1, 1, 1, 1], [1, 1, -1, -1], [1, -1, 1, -1], [1, -1, -1, 1]]) / 2
_COLOURS = torch.tensor([[1, 1, 1], [1, 0, -1], [1, -2, 1]]) / torch.tensor([[3.0], [2.0], [6.0]]).sqrt()
_VARIANCES = torch.tensor([[10.13, 0.396, 0.331, 0.055], [0.828, 0.017, 0.014, 0.0016], [0.189, 0.005, 0.0046, 0.0006]])
_NOISE = 5e-4
"""Added to variances: what varies less than this is not made louder."""
_CALM = 3.0
"""Divides the logits: features that are maxima are large, and so would be the head's first steps. Much more of it, and
the head would still be unsure at the end of a short training, which a transition matrix takes for less noise."""


class FastCNN(nn.Sequential):
    """The network of ``volmin.networks.fast_cnn``."""

    def __init__(
        self,
        num_classes: int,
        in_channels: int,
        widths: Sequence[int],
        *,
        dtype: torch.dtype = torch.float32,
        mirrored: bool = False,
    ) -> None:
        whitening = Whitening(in_channels)
        channels, layers = whitening.out_channels, [whitening, nn.GELU()]
        for width in widths:
            layers += [
                PassingConv2d(channels, width, 3, padding=1, bias=False),
                nn.MaxPool2d(2),
                nn.BatchNorm2d(width),
                nn.GELU(),
                PassingConv2d(width, width, 3, padding=1, bias=False),
                nn.BatchNorm2d(width),
                nn.GELU(),
            ]
            channels = width
        super().__init__(*layers, nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(channels, num_classes))
        self.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
        self.dtype, self.mirrored = dtype, mirrored

    def forward(self, input: Tensor) -> Tensor:
        *layers, head = self
        features = self._features(layers, input)
        if self.mirrored and not self.training:
            features = (features + self._features(layers, input.flip(3))) / 2
        return head(features) / _CALM

    def _features(self, layers: Sequence[nn.Module], x: Tensor) -> Tensor:
        """(B, D) input of the last layer, in full precision: logits and T are more sensitive to rounding."""
        if self.dtype == torch.float32:
            return nn.Sequential(*layers)(x)
        with torch.autocast(x.device.type, self.dtype):
            return nn.Sequential(*layers)(x).float()


class Whitening(nn.Module):
    """The components of 2 x 2 patches at a common scale, each with both signs. Only the bias is learned."""

    filters: Tensor

    def __init__(self, in_channels: int) -> None:
        super().__init__()
        colours, variances = _COLOURS, _VARIANCES
        if in_channels != 3:
            # Of other channels nothing is known: each is taken for itself, as bright as a third of three colours.
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


class PassingConv2d(nn.Conv2d):
    """A convolution whose first outputs are its inputs until it has learned better."""

    def reset_parameters(self) -> None:
        super().reset_parameters()
        nn.init.dirac_(self.weight.data[: self.in_channels])
