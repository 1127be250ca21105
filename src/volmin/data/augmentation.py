"""Random augmentation of batches of training images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor


class Augmentation(Protocol):
    """Random changes of images. All choices of an epoch are drawn at once, so they do not depend on the devices."""

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw (count, K) random choices, one row per example of an epoch."""
        ...

    def __call__(self, x: Tensor, choices: Tensor) -> Tensor:
        """Apply the choices to the rows of a batch."""
        ...


@dataclass(frozen=True)
class CropFlip:
    """Pad images with zeros, crop them to their size at a random place, and mirror half of them."""

    padding: int = 4

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        corner = torch.randint(2 * self.padding + 1, (count, 2), generator=generator)
        mirrored = torch.randint(2, (count, 1), generator=generator)
        return torch.cat([corner, mirrored], dim=1)

    def __call__(self, x: Tensor, choices: Tensor) -> Tensor:
        """Apply the choices; the result is in the channels-last format, in which convolutions on CPUs are fastest."""
        height, width = x.shape[2:]
        top, left, mirrored = choices.split(1, dim=1)
        rows = top + torch.arange(height, device=x.device)
        columns = left + torch.arange(width, device=x.device)
        columns = torch.where(mirrored.bool(), columns.flip(1), columns)
        image = torch.arange(len(x), device=x.device)
        padded = F.pad(x, [self.padding] * 4).permute(0, 2, 3, 1)
        return padded[image[:, None, None], rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


@dataclass(frozen=True)
class InnerCropFlip:
    """Crop images to 7/8 of their sides at a random place (256 to 224), and mirror half of them."""

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        # Places are fractions of the margin in fixed units, so that the draw does not depend on the image size.
        place = torch.randint(_UNITS, (count, 2), generator=generator)
        mirrored = torch.randint(2, (count, 1), generator=generator)
        return torch.cat([place, mirrored], dim=1)

    def __call__(self, x: Tensor, choices: Tensor) -> Tensor:
        height, width = (-(-side * 7 // 8) for side in x.shape[2:])
        places = torch.tensor([x.shape[2] - height + 1, x.shape[3] - width + 1], device=x.device)
        corners = choices[:, :2].to(x.device) * places // _UNITS
        crops = [
            image[:, top : top + height, left : left + width].flip(2 if mirrored else ())
            for image, (top, left), mirrored in zip(x, corners.tolist(), choices[:, 2].tolist(), strict=True)
        ]
        return torch.stack(crops)


_UNITS = 2**16
AUGMENTATIONS: dict[str, Augmentation] = {"crop_flip": CropFlip(), "inner_crop_flip": InnerCropFlip()}
"""Augmentations by the names that presets and specs use."""
