"""Plain training, the baseline: minimise ``-log h(x)[noisy y]`` as if the noisy labels were correct."""

from __future__ import annotations

from volmin.methods.base import Method
from volmin.training import Phase, Recipe


class CrossEntropy(Method):
    """Trains on the noisy labels as if they were correct.

    Args:
        net: Network that gives logits.
        num_classes: Number of classes C.
    """

    def phases(self, recipe: Recipe) -> list[Phase]:
        return [self.plain_phase("train", recipe)]
