"""Losses on logits, a transition matrix and noisy labels, and the choice of examples to trust."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, Literal, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from volmin.accelerated.compilation import numba_is_here
from volmin.arguments import named
from volmin.transition import (
    VOLUME_FLOOR,
    ClosedForm,
    dominant_parts,
    dominant_slope,
    log_volume,
    log_volume_and_slope,
)

SMALLEST_LIKELIHOOD = 1e-12
Curriculum = Literal["small_loss", "self_paced", "linear", "focal", "hard", "predefined"]
"""How examples are weighed by their losses: see ``volmin.methods.mentornet``."""


@named
def cross_entropies(logits: Tensor, y: Tensor) -> Tensor:
    """``-log h(x)[y]`` of each example, (N,)."""
    return F.cross_entropy(logits, y, reduction="none")


@named
def forward_nll(logits: Tensor, T: Tensor, y: Tensor) -> Tensor:
    """Mean of ``-log (T h(x))[y]``: cross-entropy of the noisy label under the corrected prediction.

    Only row y of T enters, so this costs O(N C) and not O(N C^2); in the log domain no probability underflows.

    Args:
        logits: (N, C) clean logits.
        T: (C, C), or (N, C, C) where it depends on x.
        y: (N,) noisy labels.
    """
    if T.ndim == 2:
        return cast("Tensor", ClosedForm.apply(forward_nll_and_slopes, logits, T, y))
    return -_log_likelihood(F.log_softmax(logits, dim=1), _rows(T, y, logits)).mean()


def forward_nll_and_slopes(logits: Tensor, T: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
    """``forward_nll`` for one T, and its gradients for the logits, T and (none) y."""
    if _can_be_compiled(logits, T, y):
        return _compiled("forward_nll", logits, T, y)
    log_probs, rows = F.log_softmax(logits, dim=1), T.index_select(0, y)
    log_likelihood = _log_likelihood(log_probs, rows)
    # h / (T h)[y]: its product with row y of T is the posterior of the clean label given x and the noisy one.
    ratio = (log_probs - log_likelihood[:, None]).exp_()
    for_logits = log_probs.exp_().addcmul_(ratio, rows, value=-1).div_(len(y))
    # The gradient of a look-up: the same sum as index_add, but in the same order on every device.
    for_T = torch.ops.aten.embedding_dense_backward(ratio.div_(-len(y)), y, len(T), -1, False)
    return -log_likelihood.mean(), for_logits, for_T, None


def dominant_nll_and_slopes(
    logits: Tensor, w: Tensor, y: Tensor, *, tilt: Tensor | None = None, lam: float = 0.0
) -> tuple[Tensor, Tensor, Tensor, None]:
    """``forward_nll`` at ``T = dominant(w)`` plus further terms, and its gradients for the logits, w and (none) y.

    Args:
        logits: (N, C) clean logits.
        w: (C, C) parameters of T.
        y: (N,) noisy labels.
        tilt: (C, C), for ``sum(tilt * T)``.
        lam: for ``lam * log_volume(T)``.
    """
    if _can_be_compiled(logits, w, y):
        given = np.zeros(w.shape, np.float32) if tilt is None else tilt
        return _compiled("dominant_nll", logits, w, y, given, lam, VOLUME_FLOOR)
    T, A, sums = dominant_parts(w)
    value, for_logits, for_T, _ = forward_nll_and_slopes(logits, T, y)
    if tilt is not None:
        value, for_T = value + tilt.flatten() @ T.flatten(), for_T.add_(tilt)
    if lam > 0:
        volume, slope = log_volume_and_slope(T)
        value, for_T = value + lam * volume, for_T.add_(slope, alpha=lam)
    return value, for_logits, dominant_slope(for_T, T, A, sums), None


def _can_be_compiled(logits: Tensor, T: Tensor, y: Tensor) -> bool:
    if not (logits.is_cpu and logits.dtype == T.dtype == torch.float32 and y.dtype == torch.int64 and numba_is_here()):
        return False
    count, num_classes = logits.shape if logits.ndim == 2 else (0, 0)
    fits = count > 0 and y.shape == (count,) and T.shape == (num_classes, num_classes)
    # Beyond so many classes torch, whose exponentials are vectors, is faster.
    return fits and num_classes <= 250


def _compiled(name: str, *given: Any) -> tuple[Tensor, Tensor, Tensor, None]:
    """What a kernel of that name gives for logits, T, y and further arguments, with its gradients for the first two."""
    given = tuple([each.detach().contiguous().numpy() if isinstance(each, Tensor) else each for each in given])
    value, for_logits, for_T = _kernel(name)(*given)
    return torch.scalar_tensor(value), torch.from_numpy(for_logits), torch.from_numpy(for_T), None


@cache
def _kernel(name: str) -> Callable[..., tuple[float, Any, Any]]:
    from volmin import kernels

    return getattr(kernels, name)


def _log_likelihood(log_probs: Tensor, rows: Tensor) -> Tensor:
    """``log sum_j rows[j] h[j]`` of each example, (N,)."""
    return torch.logsumexp(rows.clamp_min(torch.finfo(rows.dtype).tiny).log() + log_probs, dim=1)


@named
def backward_nll(logits: Tensor, T: Tensor, y: Tensor, clip: float | None = None) -> Tensor:
    """Mean of ``-sum_k (T^-1)[k, y] log h_k(x)``: unbiased for the clean cross-entropy, and unbounded below.

    Args:
        logits: (N, C) clean logits.
        T: (C, C); where it is singular, the pseudo-inverse stands in for its inverse.
        y: (N,) noisy labels.
        clip: smallest probability that counts, which bounds the loss on both sides.
    """
    log_probs = F.log_softmax(logits, dim=1)
    if clip is not None:
        log_probs = log_probs.clamp_min(math.log(clip))
    return -(_rows(torch.linalg.pinv(T).T, y, logits) * log_probs).sum(1).mean()


@named
def noisy_likelihood(logits: Tensor, T: Tensor, y: Tensor) -> Tensor:
    """``(T h(x))[y]``, (N,), at least 1e-12. T, (C, C) or (N, C, C), need not be stochastic: it may hold a slack."""
    return (_rows(T, y, logits) * logits.softmax(dim=1)).sum(1).clamp_min(SMALLEST_LIKELIHOOD)


@named
def importance(logits: Tensor, T: Tensor, y: Tensor) -> Tensor:
    """Weights ``h_y(x) / (T h(x))_y``, (N,), that make a noisy example count as a clean one."""
    clean = logits.softmax(dim=1).gather(1, y[:, None]).squeeze(1)
    return clean / noisy_likelihood(logits, T, y)


@named
def reweighted_nll(logits: Tensor, T: Tensor, y: Tensor) -> Tensor:
    """Cross-entropy weighted by ``importance``; the weights are constants, since their gradient changes the aim."""
    return (importance(logits, T, y).detach() * cross_entropies(logits, y)).mean()


@named
def revised_nll(logits: Tensor, T: Tensor, y: Tensor) -> Tensor:
    """Cross-entropy weighted by ``importance`` with gradients through the weights, the only way to T."""
    return (importance(logits, T, y) * cross_entropies(logits, y)).mean()


@named
def joint_matrix(logits: Tensor, y: Tensor) -> Tensor:
    """Joint distribution in the batch of noisy label i and predicted class k, (C, C)."""
    labels = F.one_hot(y, logits.shape[1]).to(logits.dtype)
    return labels.T @ logits.softmax(dim=1) / len(y)


@named
def dmi_loss(joint: Tensor) -> Tensor:
    """``-log |det U|`` of a joint matrix U, (C, C), kept finite where classes are absent.

    A class that labels nothing in a batch leaves a row of zeros and a determinant of zero, without a gradient; beyond
    some 30 classes that is nearly every batch. The floor of ``log_volume`` makes such a row a constant, so that the
    volume spanned by the labels that are there is what counts.
    """
    num_classes = len(joint)
    # Times C, a perfect prediction of balanced classes is the identity: the floor means the same for any C.
    return num_classes * math.log(num_classes) - log_volume(num_classes * joint)


@named
def generalized_cross_entropy(log_prob: Tensor, q: float) -> Tensor:
    """``(1 - p^q) / q`` of log-probabilities p of the label: cross-entropy for small q, ``1 - p`` for q = 1."""
    return -torch.expm1(q * log_prob) / q


@named
def total_variation(probs: Tensor, others: Tensor) -> Tensor:
    """Half the L1 distance of distributions, (..., C) to (...)."""
    return 0.5 * (probs - others).abs().sum(-1)


@named
def smallest(losses: Tensor, keep: Tensor | float, among: Tensor | None = None) -> Tensor:
    """Weights, one for the share ``keep`` of smallest losses and zero for the rest, (N,). Carries no gradient.

    Args:
        losses: (N,) losses.
        keep: share to keep, rounded down, but at least one example; a tensor stays on its device.
        among: (N,) true where an example may be kept at all; everywhere by default.
    """
    losses = losses.detach()
    count: Tensor | int = len(losses)
    if among is not None:
        losses, count = losses.masked_fill(~among, math.inf), among.sum()
    rank = losses.argsort(stable=True).argsort()
    # A share such as 0.7 is a little less than that in binary, which must not cost an example.
    kept = rank < torch.as_tensor(keep * count + 1e-4, device=losses.device).floor().clamp_min(1)
    return (kept if among is None else kept & among).to(losses.dtype)


def curriculum_weights(name: Curriculum, losses: Tensor, excess: Tensor, done: float, gamma: float) -> Tensor:
    """Weights of examples, (N,), by their losses, the excess over a threshold and the share of training done."""
    if name == "predefined":
        name = "self_paced" if done < 0.9 else "linear"
        if done <= 0.18:
            return torch.ones_like(losses)
    if name == "self_paced":
        return (excess <= 0).to(losses.dtype)
    if name == "linear":
        return (1 - excess / gamma).clamp(0, 1)
    if name == "focal":
        return (-torch.expm1(-losses)) ** gamma
    return (excess >= 0).to(losses.dtype)


@named
def weighted_mean(losses: Tensor, weights: Tensor, least: float = 1.0) -> Tensor:
    """``sum w l / sum w``; where the weights sum to less than ``least``, that is the divisor."""
    return (weights * losses).sum() / weights.sum().clamp_min(least)


def _rows(T: Tensor, y: Tensor, logits: Tensor) -> Tensor:
    """Row y of T for each row of logits, (N, C): the probabilities of its noisy label given each clean class."""
    if len(y) != len(logits):  # a single row would be taken for all
        raise IndexError(f"{len(y)} labels for {len(logits)} rows of logits")
    # An embedding look-up is indexing whose gradient is summed deterministically and fast.
    return F.embedding(y, T) if T.ndim == 2 else T[torch.arange(len(y), device=y.device), y]
