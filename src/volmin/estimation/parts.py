"""Part-dependent transition matrices, for ``volmin.methods.ptd``.

A non-negative matrix factorisation of features gives the parts and the weight of each part in an input; anchor points
give the matrices of the parts.
"""

from __future__ import annotations

import torch
from torch import Tensor

from volmin.estimation.anchors import outlier_share

TINY = 1e-12


def factorize(features: Tensor, parts: int, iterations: int) -> Tensor:
    """The basis H, (R, D), of a non-negative factorisation ``features ~ W H`` in which the rows of W sum to one."""
    scale = features.mean().clamp_min(TINY)
    weights = torch.rand(len(features), parts)
    basis = torch.rand(parts, features.shape[1]) * scale
    for _ in range(iterations):
        weights = _updated(weights, features @ basis.T, basis @ basis.T)
        basis = basis * (weights.T @ features) / (weights.T @ weights @ basis).clamp_min(TINY)
    return basis


def part_weights(features: Tensor, basis: Tensor, iterations: int = 20) -> Tensor:
    """Weights (N, R) with rows that sum to one and ``weights @ basis`` close to the features (N, D)."""
    weights = torch.full((len(features), len(basis)), 1 / len(basis), device=features.device)
    along, gram = features @ basis.T, basis @ basis.T
    for _ in range(iterations):
        weights = _updated(weights, along, gram)
    return weights


def _updated(weights: Tensor, along: Tensor, gram: Tensor) -> Tensor:
    """One multiplicative update, given the products of the features (N, R) and of the basis (R, R) with the basis."""
    weights = weights * (along + TINY) / (weights @ gram + TINY)
    return weights / weights.sum(dim=1, keepdim=True)


def anchor_rows(probs: Tensor, count: int) -> Tensor:
    """Row numbers (count, C) of anchor points: for each class, the top row once all, down to a third, of its outliers
    are removed.
    """
    order = probs.argsort(dim=0, descending=True)
    share = outlier_share(probs.shape[1]) * torch.linspace(1, 1 / 3, count)
    return order[(share * len(probs)).round().long()]


def fit_parts(weights: Tensor, columns: Tensor, iterations: int = 30) -> Tensor:
    """Part matrices (R, C, C) whose mixtures approximate the columns of T at anchor points.

    Each class starts from the mean of its columns. As in the authors' code, the fit is stopped early: the anchor points
    of a class carry only noise about a part that has little weight in them.

    Args:
        weights: (K, C, R) part weights of anchor k of class j.
        columns: (K, C, C) noisy posterior of anchor k of class j.
        iterations: Number of multiplicative updates.
    """
    parts = columns.mean(0)[:, None, :].repeat(1, weights.shape[2], 1)
    for _ in range(iterations):
        mixed = torch.einsum("kjr,jri->kji", weights, parts)
        parts = parts * (torch.einsum("kjr,kji->jri", weights, columns / mixed.clamp_min(TINY)) + TINY)
        parts = parts / parts.sum(dim=2, keepdim=True)
    return parts.permute(1, 2, 0)
