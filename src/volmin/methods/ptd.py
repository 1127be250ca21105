"""PTD: a transition matrix for each input, mixed from the matrices of its parts.

Images that share parts share their confusions, so with part weights a(x) from a non-negative factorisation of deep
features,

    T(x) = sum_r a_r(x) T_r,

where the T_r are fitted to the noisy posteriors at several anchor points of each class. Then come reweighting and
revision, with one slack for all x, as in T-Revision.

Reference: Xia, Liu, Han, Wang, Gong, Liu, Niu, Tao, Sugiyama, "Part-dependent Label Noise: Towards Instance-dependent
Label Noise", NeurIPS 2020.

Deviations from the authors' code: a(x) is solved from the features of the plainly trained network, which is kept, so
that T(x) is a function of x and the order of the data does not matter; the T_r are fitted by multiplicative updates of
the Kullback-Leibler divergence, which stay distributions, instead of Adam on squares; revision hands on its best epoch.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from volmin.data.batches import Batch
from volmin.estimation.anchors import outlier_share
from volmin.methods.base import collect
from volmin.methods.t_revision import TRevision
from volmin.networks import features_and_logits, last_linear

TINY = 1e-12


class PTD(TRevision):
    """Estimates a T for each input as a mixture of part matrices, reweights by it, and then revises it.

    Args:
        net: network that gives logits by a last linear layer; what that layer sees, rectified, are the features.
        num_classes: C.
        parts: number of parts.
        iterations: of the factorisation.
        warm_up: length of the plain training, as a share of the epochs.
        revise: length of the revision, as a share of the epochs.
        revision_lr: learning rate of Adam in the revision.
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
        """T(x), (B, C, C); without x its average over each class, (C, C)."""
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
        # The average over a class: column j counts an input by how surely it is of class j.
        of_class = probs.T @ weights / probs.sum(0)[:, None]
        self.T.copy_(torch.einsum("jr,rij->ij", of_class, parts))


def factorize(features: Tensor, parts: int, iterations: int) -> Tensor:
    """The basis H, (R, D), of a non-negative factorisation ``features ~ W H`` whose rows of W sum to one."""
    scale = features.mean().clamp_min(TINY)
    weights = torch.rand(len(features), parts)
    basis = torch.rand(parts, features.shape[1]) * scale
    for _ in range(iterations):
        weights = _updated(weights, features, basis)
        basis = basis * (weights.T @ features) / (weights.T @ weights @ basis).clamp_min(TINY)
    return basis


def part_weights(features: Tensor, basis: Tensor, iterations: int = 20) -> Tensor:
    """Weights (N, R), rows that sum to one, with ``weights @ basis`` near the features (N, D)."""
    weights = torch.full((len(features), len(basis)), 1 / len(basis), device=features.device)
    for _ in range(iterations):
        weights = _updated(weights, features, basis)
    return weights


def _updated(weights: Tensor, features: Tensor, basis: Tensor) -> Tensor:
    weights = weights * (features @ basis.T + TINY) / (weights @ basis @ basis.T + TINY)
    return weights / weights.sum(dim=1, keepdim=True)


def anchor_rows(probs: Tensor, count: int) -> Tensor:
    """Rows (count, C) that serve as anchor points: for each class, a third up to all of its outliers are dropped."""
    order = probs.argsort(dim=0, descending=True)
    share = outlier_share(probs.shape[1]) * torch.linspace(1, 1 / 3, count)
    return order[(share * len(probs)).round().long()]


def fit_parts(weights: Tensor, columns: Tensor, iterations: int = 30) -> Tensor:
    """Part matrices (R, C, C) whose mixtures come near to the columns of T at anchor points.

    Each class starts from the mean of its columns. The fit is stopped early, as the authors' is: what the anchor points
    of a class say of a part that they hardly have is noise.

    Args:
        weights: (K, C, R) part weights of anchor k of class j.
        columns: (K, C, C) noisy posterior of that anchor.
        iterations: of the multiplicative updates.
    """
    parts = columns.mean(0)[:, None, :].repeat(1, weights.shape[2], 1)
    for _ in range(iterations):
        mixed = torch.einsum("kjr,jri->kji", weights, parts)
        parts = parts * (torch.einsum("kjr,kji->jri", weights, columns / mixed.clamp_min(TINY)) + TINY)
        parts = parts / parts.sum(dim=2, keepdim=True)
    return parts.permute(1, 2, 0)
