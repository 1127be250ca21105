"""PTD: a transition matrix for each input, mixed from the matrices of its parts.

Images that share parts are confused alike. With part weights a(x) from a non-negative factorisation of deep features,

    T(x) = sum_r a_r(x) T_r,

where the T_r are fitted to the noisy posteriors at several anchor points of each class. Reweighting and revision, with
one slack for all x, follow as in T-Revision.

Reference: Xia, Liu, Han, Wang, Gong, Liu, Niu, Tao, Sugiyama, "Part-dependent Label Noise: Towards Instance-dependent
Label Noise", NeurIPS 2020.

Deviations from the authors' code: a(x) is computed from the features of the network after plain training, of which a
copy is kept, so that T(x) is a function of x and does not depend on the order of the data; the T_r are fitted by
multiplicative updates of the Kullback-Leibler divergence, which keep them stochastic, instead of Adam on squares;
revision ends with its best epoch.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from volmin.data.loaders import Batch
from volmin.estimation.parts import anchor_rows, factorize, fit_parts, part_weights
from volmin.methods.base import collect
from volmin.methods.t_revision import TRevision
from volmin.networks import features_and_logits, last_linear


class PTD(TRevision):
    """Reweights examples by a T for each input, mixed from the matrices of its parts, then corrects it by a slack.

    Args:
        net: Network that gives logits by a last linear layer, whose rectified inputs are the features.
        num_classes: Number of classes C.
        parts: Number of parts.
        iterations: Number of iterations of the factorisation.
        warm_up: Length of the plain training as a share of the epochs.
        revise: Length of the revision as a share of the epochs.
        revision_lr: Learning rate of Adam in the revision.
    """

    needs = "a last linear layer"
    recipe_changes: ClassVar[Mapping[str, Any]] = {"epochs": 19, "milestones": (), "selection": "accuracy"}
    basis: Tensor
    matrices: Tensor

    def __init__(
        self,
        net: nn.Module,
        num_classes: int,
        *,
        parts: int = 10,
        iterations: int = 20,
        warm_up: float = 0.2,
        revise: float = 2.5,
        revision_lr: float = 5e-7,
    ) -> None:
        super().__init__(net, num_classes, warm_up=warm_up, revise=revise, revision_lr=revision_lr, project=True)
        self.iterations = iterations
        self.reference = copy.deepcopy(net)
        self.register_buffer("basis", torch.ones(parts, last_linear(net).in_features))
        self.register_buffer("matrices", torch.eye(num_classes).repeat(parts, 1, 1))

    def transition(self, x: Tensor | None = None) -> Tensor:
        """T(x), (B, C, C); without x its mean over the inputs of each class, (C, C)."""
        if x is None:
            return self.revised(self.T)
        with torch.no_grad():
            features, _ = features_and_logits(self.reference.eval(), x)
            T = torch.einsum("br,rij->bij", part_weights(features.float().relu(), self.basis), self.matrices)
        return self.revised(T)

    def estimate(self, batches: Iterable[Batch]) -> None:
        self.reference.load_state_dict(self.net.state_dict())
        width = self.basis.shape[1]
        outputs, _ = collect(batches, lambda x: torch.cat(features_and_logits(self.net, x), dim=1))
        features, probs = outputs[:, :width].relu(), outputs[:, width:].softmax(1)
        basis = factorize(features, len(self.basis), self.iterations)
        weights = part_weights(features, basis)
        anchors = anchor_rows(probs, len(basis))
        parts = fit_parts(weights[anchors], probs[anchors])
        self.basis.copy_(basis)
        self.matrices.copy_(parts)
        # The mean over each class: in column j an input is weighted by its posterior of class j.
        class_weights = probs.T @ weights / probs.sum(0)[:, None]
        self.T.copy_(torch.einsum("jr,rij->ij", class_weights, parts))
