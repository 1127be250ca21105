"""Forward correction: train so that T h, not h, explains the noisy labels.

Plain training gives noisy posteriors, from which T is estimated; then a new network minimises

    -log (T h(x))[noisy y],

whose minimiser h is the clean posterior when T is right.

Reference: Patrini, Rozza, Menon, Nock, Qu, "Making Deep Neural Networks Robust to Label Noise: a Loss Correction
Approach", CVPR 2017.

Deviations from the authors' code: the optimiser and its schedule are those of the data set; T is estimated on the
training part alone, without the validation part.
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
    """Estimates T after plain training, and trains anew so that T h explains the noisy labels.

    Args:
        net: network that gives logits.
        num_classes: C.
        estimator: how T is found from posteriors: see ``volmin.estimate_transition``.
        T: a known T, (C, C) with columns that sum to one, or the path of a ``.npy`` file; no plain training then.
        warm_up: length of the plain training, as a share of the epochs.
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
        # The identity until T is estimated: plain training is judged by h itself.
        self.register_buffer("T", torch.eye(num_classes) if T is None else _given(T, num_classes))

    def transition(self, x: Tensor | None = None) -> Tensor:
        return self.T

    def loss(self, batch: Batch, epoch: int) -> Tensor:
        return forward_nll(self(batch.x), self.T, batch.y)

    def estimate(self, batches: Iterable[Batch]) -> None:
        self.T.copy_(self.estimate_from_posteriors(batches, self.estimator))

    def prepare(self, batches: Iterable[Batch]) -> None:
        """What happens between plain and corrected training."""
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
        raise InputError(f"T is given as the file {T}, which does not exist.")
    matrix = validate_transition(read_array(T) if isinstance(T, str) else T, num_classes)
    return torch.as_tensor(matrix, dtype=torch.float32)
