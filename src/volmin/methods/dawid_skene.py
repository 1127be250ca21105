"""Dawid and Skene: training on the posteriors of the clean label that the answers of several annotators give.

EM on the answers alone estimates a T for each annotator and the class priors; the targets of training are

    q_i(k)  proportional to  prior_k * product over annotators of T[m, y_im, k].

With one label per item the answers do not determine T, and this is nearly plain training.

Reference: Dawid, Skene, "Maximum Likelihood Estimation of Observer Error-Rates Using the EM Algorithm", 1979.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from volmin.crowds import Answers, dawid_skene
from volmin.data.loaders import Batch
from volmin.methods.base import Method
from volmin.training import Phase, Recipe

PSEUDO_COUNT = 0.01
"""Answers added to each entry of a matrix."""


class DawidSkene(Method):
    """Trains on the posteriors of the clean label by the model of Dawid and Skene.

    Args:
        net: Network that gives logits.
        num_classes: Number of classes C.
        annotators: Number of annotators; labels of several are (B, annotators), negative where there is no answer.
    """

    needs = "noisy labels only, best of several annotators"
    log_matrices: Tensor
    log_prior: Tensor

    def __init__(self, net: nn.Module, num_classes: int, *, annotators: int = 1) -> None:
        super().__init__(net, num_classes)
        self.annotators = annotators
        matrices = torch.eye(num_classes).clamp_min(1e-6).log()
        self.register_buffer("log_matrices", matrices.repeat(annotators, 1, 1))
        self.register_buffer("log_prior", torch.zeros(num_classes))

    def transitions(self) -> Tensor:
        return self.log_matrices.exp()

    def targets(self, y: Tensor) -> Tensor:
        """(B, C) posteriors of the clean label, given (B,) or (B, M) answers."""
        y = y[:, None] if y.ndim == 1 else y
        rows = self.log_matrices[torch.arange(y.shape[1], device=y.device), y.clamp_min(0)]
        return ((rows * (y >= 0)[..., None]).sum(1) + self.log_prior).softmax(1)

    def loss(self, batch: Batch, epoch: int) -> Tensor:
        return F.cross_entropy(self(batch.x), self.targets(batch.y))

    def estimate(self, batches: Iterable[Batch]) -> None:
        """EM on the answers of the training set."""
        y = torch.cat([batch.y.cpu() for batch in batches]).numpy()
        answers = Answers.from_matrix(y.reshape(len(y), -1), self.num_classes)
        _, T, prior = dawid_skene(answers, pseudo_count=PSEUDO_COUNT)
        self.log_matrices.copy_(torch.as_tensor(np.log(T)))
        self.log_prior.copy_(torch.as_tensor(np.log(prior + 1e-12)))

    def phases(self, recipe: Recipe) -> list[Phase]:
        return [self.network_phase("train", recipe, self.loss, prepare=self.estimate)]
