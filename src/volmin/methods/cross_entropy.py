"""Plain cross-entropy on the noisy labels, as if they were right: what every other method must beat."""

from __future__ import annotations

from volmin.methods.base import Method
from volmin.training import Phase, Recipe


class CrossEntropy(Method):
    """Trains on the noisy labels as if they were right."""

    def phases(self, recipe: Recipe) -> list[Phase]:
        return [self.network_phase("train", recipe, self.cross_entropy)]
