"""Fixed maps of rows to the inputs of a linear head: scaling, standardisation, random features."""

from __future__ import annotations

from dataclasses import dataclass

import scipy.sparse
import torch
from torch import Tensor, nn

from volmin._typing import Array
from volmin.networks import Standardize, WithRandomFeatures
from volmin.ridge import CHUNK, Rows, column_moments

RANDOM_FEATURES = 512
STANDARDISED = "standardised"
ENOUGH_FEATURES = 30
"""Where the variance is spread over so many features, no few of them dominate, and features keep their scales."""


@dataclass(frozen=True)
class FeatureMap:
    """A map of rows to the inputs of a head.

    Attributes:
        name: What the head sees.
        layers: The map; the first layer standardises.
    """

    name: str
    layers: nn.Sequential

    def transform(self, x: Rows) -> Rows:
        """The mapped rows; sparse rows are only scaled, and stay sparse."""
        if isinstance(x, Tensor):
            with torch.no_grad():
                return torch.cat([self.layers(part) for part in x.split(CHUNK)])
        scale = self.layers.get_buffer("0.scale").numpy()
        return scipy.sparse.csr_matrix(x.multiply(1 / scale), dtype=x.dtype)

    def network(self, coefficients: Tensor) -> nn.Sequential:
        """The map followed by a linear layer with the (D + 1, C) coefficients."""
        layer = nn.Linear(len(coefficients) - 1, coefficients.shape[1], dtype=coefficients.dtype)
        with torch.no_grad():
            layer.weight.copy_(coefficients[:-1].T)
            layer.bias.copy_(coefficients[-1])
        return nn.Sequential(*self.layers, layer)


def feature_maps(x: Rows, weights: Array, *, linear: bool, seed: int) -> list[FeatureMap]:
    """The maps that suit the rows; all have inputs of mean square length one.

    Where a few features have most of the variance, rows are scaled as a whole and, in another map, feature by feature;
    else they are only scaled as a whole. Dense rows get random features beside their own. Where few features dominate,
    no map is without them; else one is, and is cheaper.

    Args:
        x: (N, D) rows.
        weights: (N,) weights of the rows.
        linear: Whether random features are left out.
        seed: Random seed of the random features.
    """
    mean, variance = column_moments(x, weights)
    scaled = Standardize(mean, variance.sum().sqrt().expand(len(mean)).clone())
    unit = Standardize(mean, variance.sqrt() * max(1, int((variance > 0).sum())) ** 0.5)
    spread = bool(variance.sum().square() >= ENOUGH_FEATURES * variance.square().sum())
    firsts = {"scaled": scaled} if spread else {STANDARDISED: unit, "scaled": scaled}
    alone = [FeatureMap(name, nn.Sequential(first)) for name, first in firsts.items()]
    if linear or not isinstance(x, Tensor):
        return alone
    few, shares = x[:CHUNK], weights[:CHUNK]
    extended = [_extended(name, first, few, shares, seed) for name, first in firsts.items()]
    return [*alone, *extended] if spread else extended


def _extended(name: str, first: Standardize, x: Tensor, weights: Array, seed: int) -> FeatureMap:
    """A map with random features, which together have a mean square length of one, too."""
    D = x.shape[1]
    raw = nn.Sequential(first, WithRandomFeatures(D, RANDOM_FEATURES, seed=seed))
    features = FeatureMap(name, raw).transform(x)
    assert isinstance(features, Tensor)
    mean, variance = column_moments(features[:, D:], weights)
    scale = variance.sum().sqrt().expand(RANDOM_FEATURES)
    last = Standardize(torch.cat([mean.new_zeros(D), mean]), torch.cat([mean.new_ones(D), scale]))
    return FeatureMap(f"{name}, random features", nn.Sequential(*raw, last))
