"""Random changes of whole batches of training images."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor


class Augmentation(Protocol):
    """Random changes of images. All choices of an epoch are drawn at once, so they do not depend on the devices."""

    @property
    def scale(self) -> float:
        """Side of the changed images relative to that of the given ones."""
        ...

    def at(self, epoch: int, done: float) -> Augmentation:
        """The augmentation of one epoch.

        Args:
            epoch: Number of the epoch, from 0.
            done: Share of training that is complete, from 0 to 1.
        """
        ...

    def draw(self, rows: Tensor, generator: torch.Generator) -> Tensor:
        """Draw (N, K) random choices for the images at ``rows`` (N,) of the training set."""
        ...

    def __call__(self, x: Tensor, choices: Tensor) -> Tensor:
        """Apply the choices to the rows of a batch."""
        ...


@dataclass(frozen=True)
class CropFlip:
    """Pad images with zeros, crop them to their size at a random place, and mirror half of them."""

    padding: int = 4

    @property
    def scale(self) -> float:
        return 1.0

    def at(self, epoch: int, done: float) -> CropFlip:
        return self

    def draw(self, rows: Tensor, generator: torch.Generator) -> Tensor:
        corner = torch.randint(2 * self.padding + 1, (len(rows), 2), generator=generator)
        mirrored = torch.randint(2, (len(rows), 1), generator=generator)
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
class ProgressiveCropFlip(CropFlip):
    """Crop and flip images in short trainings, with small images first and each image mirrored in every other epoch.

    Whole images are shrunk, which makes early epochs cheaper. Alternating flips show both versions of an image equally
    often, which a few random flips do not.
    """

    scales: tuple[float, ...] = (5 / 8, 13 / 16, 1.0)
    """Sides of the images relative to their full size, each for an equal share of training."""
    alternating: bool = True
    """Whether flips alternate between epochs; they are random otherwise."""
    epoch: int = 0
    done: float = 1.0

    @property
    def scale(self) -> float:
        return self.scales[min(int(self.done * len(self.scales)), len(self.scales) - 1)]

    def at(self, epoch: int, done: float) -> ProgressiveCropFlip:
        return replace(self, epoch=epoch, done=done)

    def draw(self, rows: Tensor, generator: torch.Generator) -> Tensor:
        choices = super().draw(rows, generator)
        if self.alternating:
            choices[:, 2] = ((rows * _HASH >> 16) + self.epoch) % 2
        return choices

    def __call__(self, x: Tensor, choices: Tensor) -> Tensor:
        cropped = super().__call__(x, choices)
        sides = [round(side * self.scale) for side in x.shape[2:]]
        if sides == list(x.shape[2:]):
            return cropped
        return F.interpolate(cropped, sides, mode="bilinear", antialias=True)


@dataclass(frozen=True)
class InnerCropFlip:
    """Crop images to 7/8 of their sides at a random place (256 to 224), and mirror half of them."""

    @property
    def scale(self) -> float:
        return 7 / 8

    def at(self, epoch: int, done: float) -> InnerCropFlip:
        return self

    def draw(self, rows: Tensor, generator: torch.Generator) -> Tensor:
        # Places are fractions of the margin in fixed units, so that the draw does not depend on the image size.
        place = torch.randint(_UNITS, (len(rows), 2), generator=generator)
        mirrored = torch.randint(2, (len(rows), 1), generator=generator)
        return torch.cat([place, mirrored], dim=1)

    def __call__(self, x: Tensor, choices: Tensor) -> Tensor:
        height, width = (-(-side * 7 // 8) for side in x.shape[2:])
        margin = torch.tensor([x.shape[2] - height + 1, x.shape[3] - width + 1], device=x.device)
        corners = choices[:, :2].to(x.device) * margin // _UNITS
        crops = [
            image[:, top : top + height, left : left + width].flip(2 if mirrored else ())
            for image, (top, left), mirrored in zip(x, corners.tolist(), choices[:, 2].tolist(), strict=True)
        ]
        return torch.stack(crops)


_UNITS = 2**16
_HASH = 2654435761
"""Knuth's multiplier, 2**32 over the golden ratio: bit 16 of a row's product is as good as random."""
AUGMENTATIONS: dict[str, Augmentation] = {
    "crop_flip": CropFlip(),
    "inner_crop_flip": InnerCropFlip(),
    "progressive_crop_flip": ProgressiveCropFlip(),
}
"""Augmentations by the names that presets and specs use."""
