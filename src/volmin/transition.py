"""The transition matrix T: conventions, validation, trainable matrices, applying it, its volume, its error.

The conventions of the whole package are stated here, once:

- ``T[i, j] = P(noisy label = i | clean label = j)``: **columns sum to one**. Much public research code stores
  the transpose.
- Probabilities are rows, ``(N, C)``, so ``noisy = clean @ T.T``.
- Networks return logits; predictions use the *clean* posterior, never ``T h``.
"""

from __future__ import annotations

import math
import warnings

import numpy as np
import torch
from torch import Tensor, nn

from volmin._typing import Array, Numbers
from volmin.exceptions import DegenerateTransitionWarning, InputError
from volmin.validation import as_matrix, check_tensor, check_transition

VOLUME_FLOOR = 1e-6
"""Added to the eigenvalues of T'T: keeps the log volume of a singular T finite (about -7 per lost dimension)."""

_LARGEST_PARAMETER = 100.0
"""Parameters of a trainable T beyond this saturate the sigmoid in any precision and get no gradient."""

_LARGEST_ENTRY = 1e100
"""Larger entries are not probabilities, and their sums may overflow."""


def validate_transition(T: Numbers, num_classes: int | None = None) -> Array:
    """T as a float64 array, or an ``InputError`` that says why it is not a transition matrix.

    Args:
        T: (C, C) matrix with ``T[i, j] = P(noisy = i | clean = j)``.
        num_classes: Expected C, if any.
    """
    matrix = as_matrix(T)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.shape[0] < 2:
        raise InputError(f"T must be a square matrix for at least 2 classes, but has shape {matrix.shape}.")
    if num_classes is not None and len(matrix) != num_classes:
        raise InputError(f"T is for {len(matrix)} classes, but there are {num_classes}.")
    if not np.isfinite(matrix).all():
        raise InputError("T contains NaN or infinite entries.")
    if matrix.min() < 0:
        raise InputError(f"T contains negative entries (smallest: {matrix.min():.3g}); they are probabilities.")
    sums = matrix.sum(axis=0)
    if not np.allclose(sums, 1, atol=1e-4):
        hint = (
            " Its rows do: pass T.T, since volmin keeps P(noisy = i | clean = j) at T[i, j]."
            if np.allclose(matrix.sum(axis=1), 1, atol=1e-4)
            else ""
        )
        worst = int(np.abs(sums - 1).argmax())
        raise InputError(f"Each column of T must sum to one, but column {worst} sums to {sums[worst]:.4g}.{hint}")
    return matrix


def start_value(num_classes: int, diagonal: float | None = None) -> float:
    """The value of w that starts every ``T[j, j]`` at ``diagonal``.

    The default diagonal is the paper's 0.5, which is ``w = ln(1 / (C - 2))``. For two classes that would be a singular
    matrix, so there the diagonal starts at 0.8.
    """
    if num_classes < 2:
        raise InputError(f"num_classes must be at least 2, but is {num_classes}.")
    diagonal = diagonal if diagonal is not None else (0.5 if num_classes > 2 else 0.8)
    if not 1 / num_classes < diagonal < 1:
        raise InputError(f"A dominant diagonal lies between 1/{num_classes} and 1, but diagonal is {diagonal}.")
    ratio = (1 - diagonal) / ((num_classes - 1) * diagonal)
    return math.log(ratio / (1 - ratio))


def dominant(w: Tensor) -> Tensor:
    """The T of parameters w, (..., C, C): ``A[i, j] = sigmoid(w[i, j])``, ``A[j, j] = 1``, ``T = A / column sums``."""
    diagonal = torch.eye(w.shape[-1], dtype=torch.bool, device=w.device)
    A = torch.sigmoid(w).masked_fill(diagonal, 1)
    return A / A.sum(-2, keepdim=True)


class DominantTransition(nn.Module):
    """A trainable T whose diagonal entry is the largest of its column; calling it gives the (C, C) tensor.

    ``A[j, j] = 1``, ``A[i, j] = sigmoid(w[i, j])`` and ``T = A / column sums``: columns sum to one, all entries are
    positive, and ``T[j, j] > T[i, j]``. Give its parameters no weight decay (it would pull T towards more noise) and
    prefer Adam: for many classes plain SGD hardly moves them.

    Args:
        num_classes: C, at least 2.
        init: Start value of all ``w``; ``start_value(C)`` by default.
        shared_level: Use ``sigmoid(b[j] + w[i, j])``, so that one parameter per column carries the level of noise.
            The same matrices can be reached, faster when there are many classes.
    """

    w: nn.Parameter
    level: nn.Parameter | None

    def __init__(self, num_classes: int, init: float | None = None, *, shared_level: bool = False) -> None:
        super().__init__()
        init = start_value(num_classes) if init is None else float(init)
        if num_classes < 2 or not abs(init) <= _LARGEST_PARAMETER:
            raise InputError(
                f"num_classes must be at least 2 and init within ±{_LARGEST_PARAMETER:g}, but are {num_classes} and "
                f"{init:g}."
            )
        self.w = nn.Parameter(torch.full((num_classes, num_classes), 0.0 if shared_level else init))
        self.level = nn.Parameter(torch.full((num_classes,), init)) if shared_level else None

    def start_at(self, T: Numbers, softness: float = 0.01) -> None:
        """Set the parameters so that the matrix is T, or as close to it as a dominant diagonal allows.

        The ratio of an entry to its diagonal is kept between ``softness`` and ``1 - softness``, where the sigmoid still
        has a gradient.
        """
        ratio = torch.as_tensor(as_matrix(T) / np.diagonal(as_matrix(T)))
        w = torch.logit(ratio.clamp(softness, 1 - softness)).to(self.w)
        with torch.no_grad():
            self.w.copy_(w if self.level is None else w - self.level)

    def forward(self) -> Tensor:
        return dominant(self.w if self.level is None else self.w + self.level)

    def extra_repr(self) -> str:
        return f"num_classes={len(self.w)}, shared_level={self.level is not None}"


class SoftmaxTransition(nn.Module):
    """A trainable T whose only constraint is that its columns are distributions: a softmax of each column.

    Args:
        num_classes: C, at least 2.
        diagonal: Start value of every ``T[j, j]``; 0.5 by default, or 0.8 for two classes.
    """

    def __init__(self, num_classes: int, diagonal: float | None = None) -> None:
        super().__init__()
        start_value(num_classes, diagonal)  # raises for invalid values
        diagonal = diagonal if diagonal is not None else (0.5 if num_classes > 2 else 0.8)
        T = torch.full((num_classes, num_classes), (1 - diagonal) / (num_classes - 1))
        self.logits = nn.Parameter(T.fill_diagonal_(diagonal).log())

    def forward(self) -> Tensor:
        return self.logits.softmax(dim=0)

    @torch.no_grad()
    def start_at(self, T: Tensor, smallest: float = 1e-8) -> None:
        """Set T; entries below ``smallest`` are raised to it, since a softmax never reaches zero."""
        self.logits.copy_(T.clamp_min(smallest).log())


def apply_transition(clean: Tensor, T: Tensor) -> Tensor:
    """Noisy posteriors ``T h`` of clean posteriors, both (N, C); T is (C, C), or (N, C, C) where it depends on x."""
    check_tensor(clean, "clean", 2)
    check_transition(T, clean, "clean")
    if T.dtype != clean.dtype:
        raise InputError(f"T and clean must be of one type, but are {T.dtype} and {clean.dtype}.")
    if T.ndim == 2:
        return clean @ T.T
    return torch.einsum("nij,nj->ni", T, clean)


def log_volume(T: Tensor, floor: float = VOLUME_FLOOR) -> Tensor:
    """Log |det T|, kept finite where T is singular; zero for the identity. (..., R, C) with R >= C to (...).

    A diagonally dominant column does not make T regular: log |det T| is unbounded below on the paper's own parameter
    set. So this is ``1/2 log det(T'T + floor I)``, shifted to be zero at I, which agrees with ``log |det T|`` up to
    ``floor`` over the squared smallest singular value. It is computed in double precision, where ``floor`` is well
    above the rounding error.
    """
    check_tensor(T, "T")
    if T.ndim < 2:
        raise InputError(f"T must be a matrix, but has shape {tuple(T.shape)}.")
    wide, C = T.double(), T.shape[-1]
    gram = wide.mT @ wide + floor * torch.eye(C, dtype=torch.double, device=T.device)
    return (0.5 * torch.linalg.slogdet(gram).logabsdet - 0.5 * C * math.log1p(floor)).to(T.dtype)


class TangentLogVolume:
    """The log volume of a T in training, evaluated on its tangent at the T of a few calls before.

    The volume costs O(C^3), with many classes more than the rest of a step. T moves little from one step to the next,
    so the exact volume and its gradient are computed only every 10 calls (every C // 20 with very many classes).

    Args:
        num_classes: C.
    """

    def __init__(self, num_classes: int) -> None:
        self.every = max(10, num_classes // 20)
        self.reset()

    def reset(self) -> None:
        """Renew the tangent at the next call, so that an epoch does not depend on the one before it."""
        self.calls_left = 0

    def __call__(self, T: Tensor) -> Tensor:
        if self.calls_left == 0:
            point = T.detach().requires_grad_()
            volume = log_volume(point)
            (self.slope,) = torch.autograd.grad(volume, point)
            self.offset = volume.detach() - (self.slope * point.detach()).sum()
            self.calls_left = self.every
        self.calls_left -= 1
        return self.offset + (self.slope * T).sum()


def transition_error(T: Numbers, T_hat: Numbers) -> float:
    """The paper's error of an estimate: ``sum |T - T_hat| / sum |T|``, between 0 and 2 for stochastic columns."""
    truth, estimate = as_matrix(T), as_matrix(T_hat)
    if truth.shape != estimate.shape or truth.ndim != 2:
        raise InputError(f"T and T_hat must be matrices of one shape, but are {truth.shape} and {estimate.shape}.")
    if not (np.isfinite(truth).all() and np.isfinite(estimate).all()):
        raise InputError("T and T_hat must not contain NaN or infinite entries.")
    if not 0 < np.abs(truth).max(initial=0) < _LARGEST_ENTRY or np.abs(estimate).max(initial=0) > _LARGEST_ENTRY:
        raise InputError("T must not be all zeros, and T and T_hat must not hold huge entries: they are probabilities.")
    return float(np.abs(truth - estimate).sum() / np.abs(truth).sum())


def degeneracy(T: Numbers, smallest: float = 1e-2) -> str | None:
    """What is wrong with an estimate that has a negative determinant or a singular value below ``smallest``."""
    matrix = as_matrix(T)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not matrix.size:
        raise InputError(f"T must be a square matrix, but has shape {matrix.shape}.")
    if not np.isfinite(matrix).all():
        return "contains NaN"
    weakest = float(np.linalg.svd(matrix, compute_uv=False)[-1])
    if np.linalg.det(matrix) < 0:
        return "has a negative determinant: it passed through a singular matrix during training"
    return f"is nearly singular (smallest singular value {weakest:.1e})" if weakest < smallest else None


def warn_if_degenerate(T: Numbers, smallest: float = 1e-2) -> None:
    """Warn when T has a negative determinant or a singular value below ``smallest``."""
    if problem := degeneracy(T, smallest):
        warnings.warn(
            f"The estimated T {problem}. The noise estimate cannot be trusted; lower lam, the weight of the volume, "
            "or merge classes that the noisy labels do not distinguish.",
            DegenerateTransitionWarning,
            stacklevel=2,
        )
