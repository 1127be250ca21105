"""Losses on logits, a transition matrix and noisy labels, and the selection of examples by their loss."""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from volmin.exceptions import InputError
from volmin.transition import log_volume
from volmin.validation import check_batch, check_tensor, check_transition, raise_label_range

SMALLEST_LIKELIHOOD = 1e-12
_SMALLEST = 1e-30
"""Added to a likelihood before its logarithm."""

Curriculum = Literal["small_loss", "self_paced", "linear", "focal", "hard", "predefined"]
"""How examples are weighted by their losses: see ``volmin.methods.mentornet``."""


def cross_entropies(logits: Tensor, y: Tensor) -> Tensor:
    """``-log h(x)[y]`` of each example, (N,)."""
    check_batch(logits, y)
    try:
        return F.cross_entropy(logits, y, reduction="none")
    except IndexError:
        raise_label_range(y, logits.shape[1])


def forward_nll(logits: Tensor, T: Tensor, y: Tensor) -> Tensor:
    """Mean of ``-log (T h(x))[y]``: cross-entropy of the noisy label under the corrected prediction.

    Only row y of T is needed, so this costs O(N C) instead of O(N C^2). It stays finite where a label is impossible.

    Args:
        logits: (N, C) clean logits.
        T: (C, C) matrix, or (N, C, C) where it depends on x.
        y: (N,) noisy labels.
    """
    return -(_likelihood(logits, T, y) + _SMALLEST).log().mean()


def backward_nll(logits: Tensor, T: Tensor, y: Tensor, clip: float | None = None) -> Tensor:
    """Mean of ``-sum_k (T^-1)[k, y] log h_k(x)``: unbiased for the clean cross-entropy, and unbounded below.

    Args:
        logits: (N, C) clean logits.
        T: (C, C) matrix; its pseudo-inverse is used where it is singular.
        y: (N,) noisy labels.
        clip: Lower bound of the probabilities in the logarithm, which bounds the loss on both sides.
    """
    check_batch(logits, y)
    check_transition(T, logits, "logits")
    if not torch.isfinite(T).all():
        raise InputError("T holds NaN or infinite entries.")
    log_probs = F.log_softmax(logits, dim=1)
    if clip is not None:
        log_probs = log_probs.clamp_min(math.log(clip))
    return -(_label_rows(torch.linalg.pinv(T).mT, y) * log_probs).sum(1).mean()


def noisy_likelihood(logits: Tensor, T: Tensor, y: Tensor) -> Tensor:
    """``(T h(x))[y]``, (N,), at least 1e-12. T, (C, C) or (N, C, C), need not be stochastic: it may include a slack."""
    return _likelihood(logits, T, y).clamp_min(SMALLEST_LIKELIHOOD)


def importance(logits: Tensor, T: Tensor, y: Tensor) -> Tensor:
    """Weights ``h_y(x) / (T h(x))_y``, (N,), that make a noisy example count as a clean one."""
    noisy = noisy_likelihood(logits, T, y)
    return logits.softmax(dim=1).gather(1, y[:, None]).squeeze(1) / noisy


def reweighted_nll(logits: Tensor, T: Tensor, y: Tensor) -> Tensor:
    """Cross-entropy weighted by ``importance``, with constant weights: their gradient would change the objective."""
    return (importance(logits, T, y).detach() * cross_entropies(logits, y)).mean()


def revised_nll(logits: Tensor, T: Tensor, y: Tensor) -> Tensor:
    """Cross-entropy weighted by ``importance`` with gradients through the weights, which is how T is trained."""
    return (importance(logits, T, y) * cross_entropies(logits, y)).mean()


def joint_matrix(logits: Tensor, y: Tensor) -> Tensor:
    """Joint distribution in the batch of noisy label i and predicted class k, (C, C)."""
    check_batch(logits, y)
    one_hot = _label_rows(torch.eye(logits.shape[1], dtype=logits.dtype, device=logits.device), y)
    return one_hot.T @ logits.softmax(dim=1) / len(y)


def dmi_loss(joint: Tensor) -> Tensor:
    """``-log |det U|`` of a joint matrix U, (C, C), kept finite where classes are absent.

    A class without a label in the batch leaves a row of zeros, a determinant of zero and no gradient; beyond about 30
    classes that is nearly every batch. The floor of ``log_volume`` makes such a row contribute a constant, so that only
    the volume spanned by the labels that occur is maximised.
    """
    check_tensor(joint, "joint", 2)
    num_classes = len(joint)
    # Times C, a perfect prediction of balanced classes is the identity: the floor means the same for any C.
    return num_classes * math.log(num_classes) - log_volume(num_classes * joint)


def generalized_cross_entropy(log_prob: Tensor, q: float) -> Tensor:
    """``(1 - p^q) / q`` of log-probabilities p of the label: cross-entropy for small q, ``1 - p`` for q = 1."""
    return -torch.expm1(q * log_prob) / q


def total_variation(probs: Tensor, others: Tensor) -> Tensor:
    """Half the L1 distance of distributions, (..., C) to (...)."""
    _check_broadcast(probs, others, "probs", "others")
    return 0.5 * (probs - others).abs().sum(-1)


def smallest(losses: Tensor, keep: Tensor | float, among: Tensor | None = None) -> Tensor:
    """Weights, one for the share ``keep`` of smallest losses and zero for the rest, (N,). Carries no gradient.

    Args:
        losses: (N,) losses.
        keep: Share to keep, rounded down, but at least one example; a tensor stays on its device.
        among: (N,) mask of the examples that may be kept; all by default.
    """
    check_tensor(losses, "losses", 1)
    losses = losses.detach()
    count: Tensor | int = len(losses)
    if among is not None:
        losses, count = losses.masked_fill(~among, math.inf), among.sum()
    rank = losses.argsort(stable=True).argsort()
    # A share such as 0.7 is slightly smaller in binary; the tolerance keeps it from losing an example.
    kept = rank < torch.as_tensor(keep * count + 1e-4, device=losses.device).floor().clamp_min(1)
    return (kept if among is None else kept & among).to(losses.dtype)


def curriculum_weights(name: Curriculum, losses: Tensor, excess: Tensor, done: float, gamma: float) -> Tensor:
    """Weights of examples, (N,), from their losses, their excess over a threshold and the share of training done."""
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


def weighted_mean(losses: Tensor, weights: Tensor, least: float = 1.0) -> Tensor:
    """``sum w l / sum w``, with a divisor of at least ``least``."""
    _check_broadcast(losses, weights, "losses", "weights")
    return (weights * losses).sum() / weights.sum().clamp_min(least)


def _likelihood(logits: Tensor, T: Tensor, y: Tensor) -> Tensor:
    """``(T h(x))[y]``, (N,), in the wider of both types: T is sensitive to rounding."""
    check_batch(logits, y)
    check_transition(T, logits, "logits")
    h = logits.to(torch.promote_types(logits.dtype, T.dtype)).softmax(dim=1)
    return (_label_rows(T, y) * h).sum(1)


def _label_rows(T: Tensor, y: Tensor) -> Tensor:
    """Row y of T for each example, (N, C): the probabilities of its noisy label given each clean class."""
    if T.ndim == 3:
        return T[torch.arange(len(y), device=y.device), y]
    try:
        # An embedding look-up is indexing whose gradient is summed deterministically and fast.
        return F.embedding(y, T)
    except IndexError:
        raise_label_range(y, len(T))


def _check_broadcast(first: Tensor, second: Tensor, name: str, other: str) -> None:
    """Require two floating-point tensors whose shapes broadcast."""
    check_tensor(first, name)
    check_tensor(second, other)
    sizes = zip(reversed(first.shape), reversed(second.shape), strict=False)
    if not all(a == b or 1 in (a, b) for a, b in sizes):
        raise InputError(
            f"The shapes of {name} {tuple(first.shape)} and {other} {tuple(second.shape)} do not fit each other."
        )
