"""Forward correction: training so that T h, not h, explains the noisy labels.

Plain training gives noisy posteriors, from which T is estimated; then a reset network minimises

    -log (T h(x))[noisy y],

whose minimiser h is the clean posterior if T is correct.

Reference: Patrini, Rozza, Menon, Nock, Qu, "Making Deep Neural Networks Robust to Label Noise: a Loss Correction
Approach", CVPR 2017.

Deviations from the authors' code: the optimiser and its schedule are those of the data set; T is estimated from the
training data alone, without the validation data.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import get_args

import torch
from torch import Tensor, nn

from volmin import estimation
from volmin.data.loaders import Batch
from volmin.exceptions import InputError
from volmin.io.arrays import read_array
from volmin.losses import forward_nll
from volmin.methods.base import Method
from volmin.networks import reset_parameters
from volmin.training import Phase, Recipe
from volmin.transition import validate_transition


class Forward(Method):
    """Estimates T by plain training, resets the network and trains it so that T h explains the noisy labels.

    Args:
        net: Network that gives logits.
        num_classes: Number of classes C.
        estimator: Estimator of T from posteriors: see ``volmin.estimate_transition``.
        T: Known (C, C) T with columns that sum to one, or the path of its ``.npy`` file; replaces the plain training.
        warm_up: Length of the plain training as a share of the epochs.
    """

    estimates_transition = True
    needs = "noisy labels only, or T"
    T: Tensor

    def __init__(
        self,
        net: nn.Module,
        num_classes: int,
        *,
        estimator: estimation.EstimatorName = "percentile",
        T: Sequence[Sequence[float]] | str | None = None,
        warm_up: float = 1.0,
    ) -> None:
        super().__init__(net, num_classes)
        if estimator not in (choices := get_args(estimation.EstimatorName)):
            raise InputError(f"estimator must be one of {', '.join(choices)}, but is {estimator!r}.")
        self.estimator: estimation.EstimatorName = estimator
        self.warm_up, self.known = warm_up, T is not None
        # The identity until T is estimated, so that validation data scores h during plain training.
        self.register_buffer("T", torch.eye(num_classes) if T is None else _given(T, num_classes))

    def transition(self, x: Tensor | None = None) -> Tensor:
        return self.T

    def loss(self, batch: Batch, epoch: int) -> Tensor:
        return forward_nll(self(batch.x), self.T, batch.y)

    def estimate(self, batches: Iterable[Batch]) -> None:
        self.T.copy_(self.estimate_from_posteriors(batches, self.estimator))

    def prepare(self, batches: Iterable[Batch]) -> None:
        """Estimate T and reset the network, between plain and corrected training."""
        self.estimate(batches)
        reset_parameters(self.net)

    def phases(self, recipe: Recipe) -> list[Phase]:
        if self.known:
            return [self.network_phase("train", recipe, self.loss)]
        return [
            self.warm_up_phase(recipe, self.warm_up),
            self.network_phase("train", recipe, self.loss, prepare=self.prepare),
        ]


def _given(T: Sequence[Sequence[float]] | str, num_classes: int) -> Tensor:
    if isinstance(T, str) and not Path(T).is_file():
        raise InputError(f"The file of T, {T}, does not exist.")
    matrix = validate_transition(read_array(T) if isinstance(T, str) else T, num_classes)
    return torch.as_tensor(matrix, dtype=torch.float32)
