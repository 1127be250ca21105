"""Softmax regression with a ridge penalty: many weightings of the rows and many penalties at once, by L-BFGS.

Each problem is convex. The folds of a cross-validation and the values of a penalty share one product with the rows per
step, which is several times faster than one fit after the other. Targets are probabilities, so that posteriors of
uncertain labels can be learned.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from volmin._typing import Array
from volmin.lbfgs import minimise_rows

SparseRows = Any
"""A ``scipy.sparse.csr_matrix``, whose stubs lack most of its interface."""
Rows = Tensor | SparseRows
"""(N, D) rows: a tensor, or a sparse matrix, which is never made dense."""

CHUNK = 65_536
"""Rows of which temporary copies are made at a time."""

ROUNDING = 1e-12
"""A feature whose variance is below this share of its squared mean is constant up to rounding."""

LARGEST_LOGITS = 30_000_000
LARGEST_COEFFICIENTS = 2_000_000
"""Numbers of logits and of coefficients held at a time; problems beyond them are solved one group after the other."""


def fit_softmax(
    x: Rows, targets: Tensor, weights: Tensor, penalties: Tensor, *, max_iterations: int, tolerance: float = 1e-6
) -> Tensor:
    """(B, D + 1, C) coefficients of B problems, the intercepts in the last row.

    Problem b minimises ``mean_n cross-entropy(targets[n], softmax(x[n] W + intercept)) + penalties[b] / 2 * |W|^2``.

    Args:
        x: (N, D) rows.
        targets: (N, C) label distributions, or (B, N, C) where they differ between the problems.
        weights: (B, N) weight of each row in each problem; zero leaves it out.
        penalties: (B,) ridge penalties.
        max_iterations: Limit of iterations; fewer than convergence needs act as a further penalty.
        tolerance: Largest entry of the gradient at convergence.
    """
    problems = len(penalties)
    num_classes = targets.shape[-1]
    group = min(
        LARGEST_LOGITS // (len(weights[0]) * num_classes), LARGEST_COEFFICIENTS // ((x.shape[1] + 1) * num_classes)
    )
    group = max(1, group)
    every = targets if targets.ndim == 3 else targets.expand(problems, -1, -1)
    parts = zip(every.split(group), weights.split(group), penalties.split(group), strict=True)
    return torch.cat([_fit_group(x, *part, max_iterations, tolerance) for part in parts])


def _fit_group(
    x: Rows, targets: Tensor, weights: Tensor, penalties: Tensor, max_iterations: int, tolerance: float
) -> Tensor:
    features, num_classes, problems = x.shape[1], targets.shape[2], len(penalties)
    shares = weights / weights.sum(dim=1, keepdim=True)

    def loss(parameters: Tensor) -> Tensor:
        W = parameters.view(problems, features + 1, num_classes)
        logits = all_logits(x, W)
        losses = logits.logsumexp(dim=2) - (logits * targets).sum(dim=2)
        return (losses * shares).sum(dim=1) + penalties / 2 * W[:, :-1].square().sum(dim=(1, 2))

    start = targets.new_zeros(problems, (features + 1) * num_classes)
    found = minimise_rows(loss, start, max_iterations, tolerance=tolerance)
    return found.view(problems, features + 1, num_classes)


def all_logits(x: Rows, coefficients: Tensor) -> Tensor:
    """(B, N, C) logits of the rows under each problem's (D + 1, C) coefficients."""
    problems, width, num_classes = coefficients.shape
    stacked = coefficients[:, :-1].permute(1, 0, 2).reshape(width - 1, problems * num_classes)
    product = x @ stacked if isinstance(x, Tensor) else _SparseProduct.apply(x, stacked)
    return product.view(x.shape[0], problems, num_classes).transpose(0, 1) + coefficients[:, -1:]


def column_moments(x: Rows, weights: Array) -> tuple[Tensor, Tensor]:
    """(D,) weighted means, given as zero for sparse rows so that these stay sparse, and (D,) variances.

    Args:
        x: (N, D) rows.
        weights: (N,) weights of the rows.
    """
    shares = weights / weights.sum()
    if not isinstance(x, Tensor):
        squares, means = x.multiply(x).T @ shares, x.T @ shares
        variances = torch.from_numpy(np.maximum(squares - means**2, 0).astype(x.dtype))
        return torch.zeros_like(variances), variances
    shares = torch.from_numpy(shares).to(x.dtype)
    mean = shares @ x
    chunks = zip(x.split(CHUNK), shares.split(CHUNK), strict=True)
    variance = torch.stack([part @ (rows - mean).square() for rows, part in chunks]).sum(dim=0)
    return mean, torch.where(variance <= ROUNDING * mean.square(), 0.0, variance)


class _SparseProduct(torch.autograd.Function):
    """A constant sparse matrix times a dense one."""

    @staticmethod
    def forward(ctx: Any, x: SparseRows, dense: Tensor) -> Tensor:
        ctx.x = x
        return torch.from_numpy(x @ dense.detach().numpy())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor]:
        return None, torch.from_numpy(ctx.x.T @ gradients[0].numpy())
