"""Plain cross-entropy on the noisy labels, as if they were right: what every other method must beat."""

from __future__ import annotations

from volmin.methods.base import Method
from volmin.training import Phase, Recipe


class CrossEntropy(Method):
    """Trains on the noisy labels as if they were right."""

    def phases(self, recipe: Recipe) -> list[Phase]:
        optimizer = recipe.network_optimizer(self.net)
        return [Phase("train", recipe.epochs, self.cross_entropy, [optimizer], recipe.learning_rate_schedule())]
