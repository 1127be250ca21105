"""What a transition matrix is: conventions, validation, a trainable T, applying it, its volume, its error.

The conventions of the whole package are stated here, once:

- ``T[i, j] = P(noisy label = i | clean label = j)``: **columns sum to one**. Much public research code stores
  the transpose.
- Probabilities are rows, ``(N, C)``, so ``noisy = clean @ T.T``.
- Networks return logits; predictions use the *clean* posterior, never ``T h``.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from volmin.accelerated.compilation import numba_is_here
from volmin.arguments import named
from volmin.exceptions import DegenerateTransitionWarning, InputError

VOLUME_FLOOR = 1e-6
"""Added to the eigenvalues of T'T: keeps the log volume of a singular T finite (about -7 per lost dimension)."""


MANY_CLASSES = 40
"""From so many on the volume, which costs C^3, is worth avoiding."""
_FARTHEST = 100.0
"""Parameters of a trainable T beyond this are zeros and ones to any precision, and would not learn."""


def as_matrix(T: ArrayLike | Tensor) -> NDArray[np.float64]:
    """T as a float64 array, detached from any graph or device, whatever its columns sum to."""
    if isinstance(T, Tensor):
        T = T.detach().cpu().numpy()
    return np.array(T, dtype=np.float64)


def validate_transition(T: ArrayLike | Tensor, num_classes: int | None = None) -> NDArray[np.float64]:
    """T as a float64 array, or a ``ValueError`` that says why it is not a transition matrix.

    Args:
        T: (C, C) matrix with ``T[i, j] = P(noisy = i | clean = j)``.
        num_classes: the C that is expected, if any.
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
    return cast("Tensor", _Dominant.apply(w))


def dominant_parts(w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """T, A and the column sums of A; carries no gradient: see ``dominant_slope``."""
    A = torch.sigmoid(w)
    A.diagonal(dim1=-2, dim2=-1).fill_(1)
    sums = A.sum(-2, keepdim=True)
    return A / sums, A, sums


def dominant_slope(for_T: Tensor, T: Tensor, A: Tensor, sums: Tensor) -> Tensor:
    """The gradient for w from the gradient for T."""
    for_A = (for_T - (for_T * T).sum(-2, keepdim=True)).div_(sums)
    # The slope of a sigmoid at 1 is 0, which is what the fixed diagonal needs.
    return torch.ops.aten.sigmoid_backward(for_A, A)


class _Dominant(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, w: Tensor) -> Tensor:
        T, A, sums = dominant_parts(w)
        ctx.save_for_backward(T, A, sums)
        return T

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return dominant_slope(grad, *ctx.saved_tensors)


class ClosedForm(torch.autograd.Function):
    """Values, (...), whose gradients are computed along with them.

    Apply it to a function and tensors; the function gives the values and then a gradient, or None, for each tensor.
    Autograd would spend longer on the bookkeeping of a small T than on its arithmetic.
    """

    @staticmethod
    def forward(ctx: Any, function: Callable[..., tuple[Tensor | None, ...]], *inputs: Tensor) -> Tensor:
        value, *slopes = function(*inputs)
        ctx.slopes = slopes  # neither inputs nor outputs, so this makes no cycle
        return cast("Tensor", value)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return None, *(None if slope is None else slope * _spread(grad, slope) for slope in ctx.slopes)


def _spread(grad: Tensor, slope: Tensor) -> Tensor:
    """A gradient per value, (...), in as many dimensions as the slopes, (..., C, C), have."""
    return grad if grad.ndim == 0 else grad.view(*grad.shape, *(1,) * (slope.ndim - grad.ndim))


class DominantTransition(nn.Module):
    """A trainable T whose diagonal entry is the largest of its column; calling it gives the (C, C) tensor.

    ``A[j, j] = 1``, ``A[i, j] = sigmoid(w[i, j])`` and ``T = A / column sums``: columns sum to one, all entries are
    positive, and ``T[j, j] > T[i, j]``. Give its parameters no weight decay (it would pull T towards more noise) and
    prefer Adam: for many classes plain SGD hardly moves them.

    Args:
        num_classes: C, at least 2.
        init: start value of all ``w``; ``start_value(C)`` by default.
        shared_level: use ``sigmoid(b[j] + w[i, j])``, so that one parameter per column carries the level of noise.
            The same matrices can be reached, faster when there are many classes.
    """

    w: nn.Parameter
    level: nn.Parameter | None

    def __init__(self, num_classes: int, init: float | None = None, *, shared_level: bool = False) -> None:
        super().__init__()
        init = start_value(num_classes) if init is None else float(init)
        if num_classes < 2 or not abs(init) <= _FARTHEST:
            raise InputError(
                f"num_classes must be at least 2 and init within ±{_FARTHEST:g}, but are {num_classes} and {init:g}."
            )
        self.w = nn.Parameter(torch.full((num_classes, num_classes), 0.0 if shared_level else init))
        self.level = nn.Parameter(torch.full((num_classes,), init)) if shared_level else None

    def start_at(self, T: ArrayLike | Tensor, softness: float = 0.01) -> None:
        """Go to a given T, or as near as a dominant diagonal allows.

        Entries stay above ``softness`` of their diagonal and as far below it, where they can still learn.
        """
        ratio = torch.as_tensor(as_matrix(T) / np.diagonal(as_matrix(T)))
        w = torch.logit(ratio.clamp(softness, 1 - softness)).to(self.w)
        with torch.no_grad():
            self.w.copy_(w if self.level is None else w - self.level)

    def parameter_matrix(self) -> Tensor:
        """The (C, C) parameters that ``dominant`` makes T of."""
        return self.w if self.level is None else self.w + self.level

    def forward(self) -> Tensor:
        return dominant(self.parameter_matrix())

    def extra_repr(self) -> str:
        return f"num_classes={len(self.w)}, shared_level={self.level is not None}"


class SoftmaxTransition(nn.Module):
    """A trainable T without any constraint but that its columns are distributions: a softmax of each.

    Args:
        num_classes: C, at least 2.
        diagonal: start value of every ``T[j, j]``; 0.5 by default, or 0.8 for two classes.
    """

    def __init__(self, num_classes: int, diagonal: float | None = None) -> None:
        super().__init__()
        start_value(num_classes, diagonal)  # refuses what is no start
        diagonal = diagonal if diagonal is not None else (0.5 if num_classes > 2 else 0.8)
        T = torch.full((num_classes, num_classes), (1 - diagonal) / (num_classes - 1))
        self.logits = nn.Parameter(T.fill_diagonal_(diagonal).log())

    def forward(self) -> Tensor:
        return self.logits.softmax(dim=0)

    @torch.no_grad()
    def start_at(self, T: Tensor, smallest: float = 1e-8) -> None:
        """Set T; entries below ``smallest`` are raised to it, since a softmax never reaches zero."""
        self.logits.copy_(T.clamp_min(smallest).log())


@named
def apply_transition(clean: Tensor, T: Tensor) -> Tensor:
    """Noisy posteriors ``T h`` of clean posteriors, both (N, C); T is (C, C), or (N, C, C) where it depends on x."""
    if T.ndim == 2:
        return clean @ T.T
    return torch.einsum("nij,nj->ni", T, clean)


@named
def log_volume(T: Tensor, floor: float = VOLUME_FLOOR) -> Tensor:
    """Log |det T|, kept finite where T is singular; zero for the identity. (..., R, C) with R >= C to (...).

    A diagonally dominant column does not make T regular: log |det T| is unbounded below on the paper's own parameter
    set. So this is ``1/2 log det(T'T + floor I)``, shifted to be zero at I, which agrees with ``log |det T|`` up to
    ``floor`` over the squared smallest singular value. It is computed in double precision, where ``floor`` is well
    above the rounding error.
    """
    return cast("Tensor", ClosedForm.apply(lambda T: log_volume_and_slope(T, floor), T))


def log_volume_and_slope(T: Tensor, floor: float = VOLUME_FLOOR) -> tuple[Tensor, Tensor]:
    """``log_volume`` and its gradient, ``T (T'T + floor I)^-1``, as plain numbers from one elimination."""
    if T.ndim == 2 and 0 < T.shape[1] < MANY_CLASSES and T.device.type == "cpu" and numba_is_here():
        return _compiled_log_volume(T, floor)
    wide = T.double()
    gram = wide.mT @ wide
    gram.diagonal(dim1=-2, dim2=-1).add_(floor)
    factor = torch.linalg.cholesky_ex(gram)[0]
    volume = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1).sub_(T.shape[-1] / 2 * math.log1p(floor))
    return volume.to(T.dtype), (wide @ torch.cholesky_inverse(factor)).to(T.dtype)


def _compiled_log_volume(T: Tensor, floor: float) -> tuple[Tensor, Tensor]:
    from volmin import kernels

    wide = T.detach().double().contiguous()
    slope = torch.empty_like(wide)
    volume = kernels.log_volume(wide.numpy(), floor, slope.numpy())
    return T.new_tensor(volume), slope.to(T.dtype)


class VolumeTangent:
    """The log volume of a T in training, as its tangent at the T of a few calls ago.

    The volume of C classes costs C^3, and beyond some 50 classes more than the rest of a step. T moves little from one
    step to the next, so its tangent is renewed only every C // 20 calls.

    Args:
        num_classes: C.
    """

    def __init__(self, num_classes: int) -> None:
        self.every = max(1, num_classes // 20)
        self.forget()

    def forget(self) -> None:
        """Renew the tangent at the next call: an epoch must not depend on whether it follows another or a restart."""
        self.left = 0

    def line(self, T: Callable[[], Tensor]) -> tuple[Tensor, Tensor]:
        """Offset and slope, (C, C), of the tangent; T is asked for only where it is renewed."""
        if self.left == 0:
            here = T()
            volume, self.slope = log_volume_and_slope(here)
            self.offset = volume - self.slope.flatten() @ here.flatten()
            self.left = self.every
        self.left -= 1
        return self.offset, self.slope


def transition_error(T: ArrayLike | Tensor, T_hat: ArrayLike | Tensor) -> float:
    """The paper's error of an estimate: ``sum |T - T_hat| / sum |T|``, between 0 and 2 for stochastic columns."""
    truth, estimate = as_matrix(T), as_matrix(T_hat)
    if truth.shape != estimate.shape or truth.ndim != 2:
        raise InputError(f"T and T_hat must be matrices of one shape, but are {truth.shape} and {estimate.shape}.")
    if not (np.isfinite(truth).all() and np.isfinite(estimate).all()):
        raise InputError("T and T_hat must not contain NaN or infinite entries.")
    if not 0 < np.abs(truth).max(initial=0) < _HUGE or np.abs(estimate).max(initial=0) > _HUGE:
        raise InputError("T must hold something else than zeros, and T and T_hat nothing huge: they are probabilities.")
    return float(np.abs(truth - estimate).sum() / np.abs(truth).sum())


_HUGE = 1e100
"""Nothing that was a probability once; its sums would not stay finite."""


def degeneracy(T: ArrayLike | Tensor, smallest: float = 1e-2) -> str | None:
    """What is wrong with an estimate that has a negative determinant or a singular value below ``smallest``."""
    matrix: NDArray[Any] = as_matrix(T)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not matrix.size:
        raise InputError(f"T must be a square matrix, but has shape {matrix.shape}.")
    if not np.isfinite(matrix).all():
        return "contains NaN"
    weakest = float(np.linalg.svd(matrix, compute_uv=False)[-1])
    if np.linalg.det(matrix) < 0:
        return "has a negative determinant: it passed through a singular matrix on the way"
    return f"is nearly singular (smallest singular value {weakest:.1e})" if weakest < smallest else None


def warn_if_degenerate(T: ArrayLike | Tensor, smallest: float = 1e-2) -> None:
    """Warn when T has a negative determinant or a singular value below ``smallest``."""
    if problem := degeneracy(T, smallest):
        warnings.warn(
            f"The estimated T {problem}. The noise estimate cannot be trusted; lower lam, the weight of the volume, "
            "or merge classes that the noisy labels do not tell apart.",
            DegenerateTransitionWarning,
            stacklevel=2,
        )
