"""T-Revision: a learned slack that corrects an estimate of T.

Without anchor points the estimate of T is biased. After reweighting, the network and a free (C, C) slack D are trained
together on

    beta(x) * -log h(x)[noisy y],    beta(x) = h(x)[noisy y] / ((T + D) h(x))[noisy y],

now with gradients through beta, the only term that contains D.

Reference: Xia, Liu, Wang, Han, Gong, Niu, Sugiyama, "Are Anchor Points Really Indispensable in Label-Noise
Learning?", NeurIPS 2019.

Deviations from the authors' code: the slack is added once (there, once more for each example of the batch); revision
also ends with its best epoch by noisy-validation accuracy.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.optim import Adam, Optimizer

from volmin import estimation
from volmin.data.loaders import Batch
from volmin.losses import revised_nll
from volmin.methods.base import epochs_of
from volmin.methods.reweight import Reweight
from volmin.training import Phase, Recipe


class TRevision(Reweight):
    """Reweights examples by an estimate of T, then corrects T by a slack that is learned with the network.

    Args:
        net: Network that gives logits.
        num_classes: Number of classes C.
        estimator: Estimator of T from posteriors: see ``volmin.estimate_transition``.
        T: Known (C, C) T with columns that sum to one, or the path of its ``.npy`` file; replaces the plain training.
        warm_up: Length of the plain training as a share of the epochs.
        revise: Length of the revision as a share of the epochs.
        revision_lr: Learning rate of Adam in the revision.
        project: Whether the columns of ``T + slack`` are made distributions; not in the authors' code.
    """

    def __init__(
        self,
        net: nn.Module,
        num_classes: int,
        *,
        estimator: estimation.EstimatorName = "percentile",
        T: Sequence[Sequence[float]] | str | None = None,
        warm_up: float = 0.2,
        revise: float = 2.0,
        revision_lr: float = 5e-7,
        project: bool = False,
    ) -> None:
        super().__init__(net, num_classes, estimator=estimator, T=T, warm_up=warm_up)
        self.slack = nn.Parameter(torch.zeros(num_classes, num_classes))
        self.revise, self.revision_lr, self.project = revise, revision_lr, project

    def transition(self, x: Tensor | None = None) -> Tensor:
        return self.revised(self.T)

    def revised(self, T: Tensor) -> Tensor:
        """T with the slack, (..., C, C)."""
        T = T + self.slack
        return T.abs() / T.abs().sum(dim=-2, keepdim=True) if self.project else T

    def revision_loss(self, batch: Batch, epoch: int) -> Tensor:
        return revised_nll(self(batch.x), self.transition(batch.x), batch.y)

    def phases(self, recipe: Recipe) -> list[Phase]:
        def optimizers() -> list[Optimizer]:
            parameters = [*self.net.parameters(), self.slack]
            return [Adam(parameters, self.revision_lr, weight_decay=recipe.weight_decay)]

        revision = Phase("revise", epochs_of(self.revise, recipe), self.revision_loss, optimizers)
        return [*super().phases(recipe), revision]
