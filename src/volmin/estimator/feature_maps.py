"""Fixed maps of rows to the inputs of a linear head: scaling, standardisation, random features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import scipy.sparse
import torch
from torch import Tensor, nn

from volmin._typing import Array
from volmin.networks import RandomFeatures, Standardize
from volmin.softmax_regression import CHUNK, Rows, column_moments

RANDOM_FEATURES = 512


@dataclass(frozen=True)
class FeatureMap:
    """A map with the penalties that compete on it.

    Attributes:
        name: What the head sees.
        layers: The map; the first layer standardises.
        penalties: Values of C, the inverse of the ridge penalty.
    """

    name: str
    layers: nn.Sequential
    penalties: Sequence[float]

    def transform(self, x: Rows) -> Rows:
        """The mapped rows; sparse rows are only scaled, and stay sparse."""
        if isinstance(x, Tensor):
            with torch.no_grad():
                return torch.cat([self.layers(part) for part in x.split(CHUNK)])
        scale = self.layers.get_buffer("0.scale").numpy()
        return scipy.sparse.csr_matrix(x.multiply(1 / scale), dtype=x.dtype)

    def network(self, coefficients: Tensor, factor: float) -> nn.Sequential:
        """The map followed by a linear layer with ``factor`` times the (D + 1, C) coefficients."""
        layer = nn.Linear(len(coefficients) - 1, coefficients.shape[1], dtype=coefficients.dtype)
        with torch.no_grad():
            layer.weight.copy_(factor * coefficients[:-1].T)
            layer.bias.copy_(factor * coefficients[-1])
        return nn.Sequential(*self.layers, layer)


def feature_maps(x: Rows, weights: Array, *, linear: bool, seed: int) -> list[FeatureMap]:
    """The maps that suit the rows: standardised, scaled to unit mean square and, of dense rows, random features.

    Args:
        x: (N, D) rows.
        weights: (N,) weights of the rows.
        linear: Whether random features are left out.
        seed: Random seed of the random features.
    """
    mean, variance = column_moments(x, weights)
    standard = Standardize(mean, variance.sqrt())
    total = variance.sum().sqrt().expand(len(mean)).clone()
    scaled = Standardize(mean, total)
    maps = [
        FeatureMap("standardised", nn.Sequential(standard), (1e-3, 1e-2, 1e-1)),
        FeatureMap("scaled", nn.Sequential(scaled), (0.1, 1.0, 10.0, 100.0)),
    ]
    if linear or not isinstance(x, Tensor):
        return maps
    used = int((variance > 0).sum())
    unit = Standardize(mean, variance.sqrt() * max(1, used) ** 0.5)
    for name, first in (("random features, standardised", unit), ("random features, scaled", scaled)):
        raw = nn.Sequential(first, RandomFeatures(x.shape[1], RANDOM_FEATURES, seed=seed))
        features = FeatureMap(name, raw, ()).transform(x[:CHUNK])
        assert isinstance(features, Tensor)
        mean_of, variance_of = column_moments(features, weights[:CHUNK])
        last = Standardize(mean_of, variance_of.sum().sqrt().expand(RANDOM_FEATURES).clone())
        maps.append(FeatureMap(name, nn.Sequential(*raw, last), (0.1, 0.3, 1.0, 3.0)))
    return maps
