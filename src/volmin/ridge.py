"""Ridge regression of label distributions, for many targets and any folds left out, from one matrix decomposition.

The scores ``x W + b`` that minimise ``mean_n w_n |targets[n] - scores[n]|^2 + penalty * |W|^2`` estimate the posterior
of the label that the targets hold. Unlike softmax regression the solution is closed: the folds of a cross-validation
share their Gram matrices, and other targets for the same rows cost one product and one triangular solution. Dense rows
are first projected to their principal components, beyond which a ridge leaves next to nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from volmin._typing import Array

SparseRows = Any
"""A ``scipy.sparse.csr_matrix``, whose stubs lack most of its interface."""
Rows = Tensor | SparseRows
"""(N, D) rows: a tensor, or a sparse matrix, which is never made dense."""

CHUNK = 65_536
"""Rows of which temporary copies are made at a time."""

ROUNDING = 1e-12
"""A feature whose variance is below this share of its squared mean is constant up to rounding."""

NEGLIGIBLE = 3e-4
"""Principal components with less than this share of the total variance are left out."""
LARGEST_GRAM = 3000
"""Largest number of features or rows of a Gram matrix that is decomposed; beyond, conjugate gradients take over."""
GRADIENT_STEPS = 50
GRADIENT_TOLERANCE = 3e-2
"""Limit of the steps of conjugate gradients, and the relative residual at which they end."""
SMALLEST = 1e-30
"""What steps are divided by at least, once a residual is zero."""
LARGEST_GROUP = 20_000_000
"""Numbers of coefficients or of scores that are held at a time."""
CACHED = 24
"""Triangular factors that are kept, one for each set of folds and penalty."""


@dataclass(frozen=True)
class Task:
    """A fit without some folds, and the fold whose rows it gives scores for.

    Attributes:
        targets: Place of its targets among those of all tasks.
        left_out: Folds whose rows it is not fitted to.
        scored: Fold of the rows that are scored.
    """

    targets: int
    left_out: tuple[int, ...]
    scored: int


class FoldRidge:
    """Ridge regressions on the same rows, each without some of the folds.

    Args:
        x: (N, D) rows; their scale is that of the penalties.
        weights: (N,) weights of the rows.
        fold: (N,) fold of each row.
    """

    def __init__(self, x: Rows, weights: Tensor, fold: Tensor) -> None:
        self.weights, self.folds = weights, [fold == k for k in range(int(fold.max()) + 1)]
        self.basis = _components(x, weights) if isinstance(x, Tensor) and min(x.shape) <= LARGEST_GRAM else None
        self.x: Rows = x if self.basis is None else x @ self.basis
        self.parts: list[Rows] = [self.x[np.flatnonzero(own)] for own in self.folds]
        self.variance = _mean_square(self.x, weights)
        self._factors: dict[tuple[tuple[int, ...], float], Tensor] = {}
        if self.basis is not None:
            weighted = [part * weights[own, None] for part, own in zip(self.parts, self.folds, strict=True)]
            self._grams = torch.stack([a.T @ b for a, b in zip(self.parts, weighted, strict=True)])
            self._sums = torch.stack([own.sum(dim=0) for own in weighted])

    def fit(self, targets: Tensor, penalty: float) -> Tensor:
        """(D + 1, C) coefficients of the fit to all rows, the intercepts in the last one.

        Args:
            targets: (N, C) label distributions.
            penalty: Ridge penalty, relative to the mean squared length of a row.
        """
        coefficients = self._solve(targets[None], [Task(0, (), 0)], penalty)[0]
        return coefficients if self.basis is None else torch.cat([self.basis @ coefficients[:-1], coefficients[-1:]])

    def fitted(self, targets: Tensor, penalty: float) -> Tensor:
        """(L, N, C) scores of all rows, from fits to all rows, one for each of (L, N, C) sets of targets."""
        tasks = [Task(place, (), 0) for place in range(len(targets))]
        return torch.stack([scores(self.x, found) for found in self._solve(targets, tasks, penalty)])

    def cross_fitted(self, targets: Tensor, tasks: Sequence[Task], penalty: float) -> list[Tensor]:
        """For each task, the scores of the rows of its fold, (n, C).

        Args:
            targets: (L, N, C) label distributions.
            tasks: Fits without the fold that they score, and perhaps others.
            penalty: Ridge penalty, relative to the mean squared length of a row.
        """
        size = max(1, LARGEST_GROUP // (max(self.x.shape) * targets.shape[2]))
        groups = [tasks[start : start + size] for start in range(0, len(tasks), size)]
        found = [self._solve(targets, group, penalty) for group in groups]
        pairs = zip(tasks, torch.cat(found), strict=True)
        return [scores(self.parts[task.scored], coefficients) for task, coefficients in pairs]

    def _solve(self, targets: Tensor, tasks: Sequence[Task], penalty: float) -> Tensor:
        """(M, D + 1, C) coefficients of M tasks."""
        return (self._by_gradients if self.basis is None else self._by_factors)(targets, tasks, penalty)

    def _by_factors(self, targets: Tensor, tasks: Sequence[Task], penalty: float) -> Tensor:
        level, _, C = targets.shape
        weighted = (targets * self.weights[:, None]).transpose(0, 1)
        own = [weighted[rows].reshape(-1, level * C) for rows in self.folds]
        products = torch.stack([_transposed(x, part) for x, part in zip(self.parts, own, strict=True)])
        products = products.view(len(own), -1, level, C)
        sums = torch.stack([part.sum(dim=0) for part in own]).view(len(own), level, C)
        totals = torch.stack([self.weights[rows].sum() for rows in self.folds])
        found = []
        for task in tasks:
            kept = [k for k in range(len(own)) if k not in task.left_out]
            total = totals[kept].sum()
            mean, mean_target = self._sums[kept].sum(dim=0) / total, sums[kept, task.targets].sum(dim=0) / total
            right = products[kept, :, task.targets].sum(dim=0) / total - torch.outer(mean, mean_target)
            W = torch.cholesky_solve(right, self._factor(task.left_out, penalty, mean, total))
            found.append(torch.cat([W, (mean_target - mean @ W)[None]]))
        return torch.stack(found)

    def _factor(self, left_out: tuple[int, ...], penalty: float, mean: Tensor, total: Tensor) -> Tensor:
        key = left_out, penalty
        factor = self._factors.get(key)  # another thread may empty the dictionary at any time
        if factor is None:
            kept = [k for k in range(len(self._grams)) if k not in left_out]
            gram = self._grams[kept].sum(dim=0) / total - torch.outer(mean, mean)
            gram.diagonal().add_(penalty * self.variance)
            factor = torch.linalg.cholesky(gram)
            if len(self._factors) >= CACHED:
                self._factors.clear()
            self._factors[key] = factor
        return factor

    def _by_gradients(self, targets: Tensor, tasks: Sequence[Task], penalty: float) -> Tensor:
        """The same by conjugate gradients for all tasks at once, without any matrix of features by features."""
        (count, C), D = (len(tasks), targets.shape[2]), self.x.shape[1]
        shares = self.weights.repeat(count, 1)
        for share, task in zip(shares, tasks, strict=True):
            for k in task.left_out:
                share[self.folds[k]] = 0
        shares = (shares / shares.sum(dim=1, keepdim=True)).T.contiguous()[:, :, None]
        own = targets[[task.targets for task in tasks]].transpose(0, 1).contiguous()
        mean_target = (shares * own).sum(dim=0)

        means = _transposed(self.x, shares[:, :, 0])[:, :, None]

        def transposed(values: Tensor) -> Tensor:
            return _transposed(self.x, values.view(-1, count * C)).view(D, count, C)

        def weighted_scores(W: Tensor) -> Tensor:
            return _product(self.x, W.view(D, -1)).view(-1, count, C).mul_(shares)

        residual = transposed((own - mean_target).mul_(shares))
        W, direction = torch.zeros_like(residual), residual.clone()
        size = residual.square().sum(dim=0)
        enough = GRADIENT_TOLERANCE**2 * size
        for _ in range(GRADIENT_STEPS):
            if (size <= enough).all():
                break
            weighted = weighted_scores(direction)
            image = transposed(weighted).addcmul_(means, weighted.sum(dim=0), value=-1)
            image.add_(direction, alpha=penalty * self.variance)
            step = size / (direction * image).sum(dim=0).clamp_min(SMALLEST)
            W.addcmul_(step, direction)
            residual.addcmul_(step, image, value=-1)
            previous, size = size, residual.square().sum(dim=0)
            direction.mul_(size / previous.clamp_min(SMALLEST)).add_(residual)
        return torch.cat([W, (mean_target - weighted_scores(W).sum(dim=0))[None]]).transpose(0, 1)


def fit_in_parts(parts: Iterable[tuple[Rows, Tensor, Tensor]], penalty: float) -> Tensor:
    """(D + 1, C) coefficients of the fit to rows that come in parts; only sparse or wide ones are held at once.

    Args:
        parts: (n, D) rows, (n, C) targets and (n,) weights of each part.
        penalty: Ridge penalty, relative to the mean squared length of a row.
    """
    parts = iter(parts)
    first = next(parts)
    if not isinstance(first[0], Tensor) or first[0].shape[1] >= LARGEST_GRAM:
        rows, *others = zip(*[first, *parts], strict=True)
        together = torch.cat(rows) if isinstance(first[0], Tensor) else scipy.sparse.vstack(rows, format="csr")
        targets, weights = (torch.cat(other) for other in others)
        ridge = FoldRidge(together, weights, torch.zeros(len(weights), dtype=torch.int64))
        return ridge.fit(targets, penalty)
    features, num_classes = first[0].shape[1], first[1].shape[1]
    gram = torch.zeros(features + 1, features + 1, dtype=torch.float64)
    right = torch.zeros(features + 1, num_classes, dtype=torch.float64)
    for x, targets, weights in chain([first], parts):
        extended = torch.cat([x, x.new_ones(len(x), 1)], dim=1)
        weighted = extended * weights[:, None]
        gram += weighted.T @ extended
        right += weighted.T @ targets
    total, squares = gram[-1, -1].clone(), gram.diagonal()
    squares[:-1] += penalty * squares[:-1].sum()
    return torch.linalg.solve(gram / total, right / total).to(first[0].dtype)


def scores(x: Rows, coefficients: Tensor) -> Tensor:
    """(N, C) scores of (N, D) rows."""
    return _product(x, coefficients[:-1]) + coefficients[-1]


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


def _components(x: Tensor, weights: Tensor) -> Tensor:
    """(D, r) directions of the principal components, from the smaller of the two Gram matrices."""
    root = (weights / weights.sum()).sqrt()[:, None]
    scaled = root * (x - (root.square() * x).sum(dim=0))
    wide = x.shape[1] > x.shape[0]
    values, vectors = torch.linalg.eigh(scaled @ scaled.T if wide else scaled.T @ scaled)
    kept = values > NEGLIGIBLE * values.clamp_min(0).sum()
    if not wide:
        return vectors[:, kept]
    return scaled.T @ (vectors[:, kept] / values[kept].sqrt())


def _mean_square(x: Rows, weights: Tensor) -> float:
    """Weighted mean of the squared lengths of the rows."""
    lengths = x.square().sum(dim=1) if isinstance(x, Tensor) else torch.from_numpy(_squared_lengths(x)).to(weights)
    return float(weights @ lengths / weights.sum())


def _squared_lengths(x: SparseRows) -> Array:
    return np.asarray(x.multiply(x).sum(axis=1)).ravel()


def _product(x: Rows, W: Tensor) -> Tensor:
    return x @ W if isinstance(x, Tensor) else torch.from_numpy(x @ W.numpy())


def _transposed(x: Rows, values: Tensor) -> Tensor:
    return x.T @ values if isinstance(x, Tensor) else torch.from_numpy(x.T @ values.numpy())
