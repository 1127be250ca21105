"""Trainable matrices for several annotators, their volume, and the likelihood of incomplete answers."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from volmin.exceptions import InputError
from volmin.transition import DominantTransition, log_volume
from volmin.validation import check_tensor, raise_label_range


class Deviations(nn.Module):
    """Trainable deviations D of M annotators from a pooled T; calling it with (R, C) gives (M, R, C):

        T[m] = softmax over answers of (log T_pooled + D[m]).

    D starts at zero. ``penalty`` keeps it small, so that the matrix of an annotator with few answers stays close to the
    pooled one. A deviating matrix need not be dominant, so that it can describe an annotator who always gives the same
    answer.

    Args:
        num_classes: C, at least 2.
        num_annotators: M, at least 2: a single annotator has the pooled T.
        num_labels: R, the number of different answers; C by default.
    """

    def __init__(self, num_classes: int, num_annotators: int, num_labels: int | None = None) -> None:
        super().__init__()
        if num_annotators < 2:
            raise InputError(f"num_annotators must be at least 2, but is {num_annotators}.")
        self.values = nn.Parameter(torch.zeros(num_annotators, num_labels or num_classes, num_classes))

    def forward(self, pooled: Tensor) -> Tensor:
        return (pooled.log() + self.values).softmax(dim=1)

    def penalty(self) -> Tensor:
        """``1/2 |D|^2``: the negative log density of a Gaussian prior of unit variance."""
        return 0.5 * self.values.square().sum()


class AnnotatorTransitions(nn.Module):
    """A trainable T for each annotator; calling it gives (M, R, C), with R = C, or C + 1 with abstentions.

    All share one dominant T, the pooled one, from which each of several deviates. The matrix of a single annotator is
    the pooled one.

    Args:
        num_classes: C, at least 2.
        num_annotators: M, at least 1.
        abstains: Whether an additional last row holds the probability of an abstention.
    """

    deviations: Deviations | None
    abstention: nn.Parameter | None

    def __init__(self, num_classes: int, num_annotators: int, *, abstains: bool = False) -> None:
        super().__init__()
        if num_annotators < 1:
            raise InputError(f"num_annotators must be at least 1, but is {num_annotators}.")
        self.pooled = DominantTransition(num_classes)
        rows = num_classes + abstains
        self.deviations = Deviations(num_classes, num_annotators, rows) if num_annotators > 1 else None
        # Logarithm of an abstention's share relative to all answers: at first about one in three.
        self.abstention = nn.Parameter(torch.full((1, num_classes), -0.7)) if abstains else None

    def forward(self) -> Tensor:
        T = self.pooled()
        if self.abstention is not None:
            T = torch.cat([T, self.abstention.exp()])
            T = T / T.sum(0)
        return T[None] if self.deviations is None else self.deviations(T)

    def penalty(self) -> Tensor:
        """The penalty of the deviations."""
        return torch.zeros(()) if self.deviations is None else self.deviations.penalty()


def stacked(T: Tensor) -> Tensor:
    """The matrices of all annotators below each other, (M, R, C) to (M R, C), scaled by ``1 / sqrt(M)``.

    The log volume of the stack, ``1/2 log det(mean of T[m]' T[m])``, is that of T where all are equal.
    """
    check_tensor(T, "T", 3)
    return T.flatten(0, 1) / math.sqrt(len(T))


def posterior_log_volume(probs: Tensor) -> Tensor:
    """``-1/2 log det(C H'H / N)`` of posteriors H, (N, C): zero for certain and balanced ones, larger for others.

    The answers determine the product of the stacked matrices and the posteriors, so that spreading the posteriors
    shrinks the matrices: this is the volume of the stack up to a constant, without an O(M C^2) term (GeoCrowdNet-F).
    """
    check_tensor(probs, "probs", 2)
    return -log_volume(probs * math.sqrt(probs.shape[1] / max(1, len(probs))))


def answers_nll(logits: Tensor, T: Tensor, y: Tensor, weight: float = 0.0) -> Tensor:
    """Mean over all given answers of ``-log sum_k h_k T[m, y_m, k] (product of the others' T[m', y_m', k]) ** w``.

    With weight w = 0 the answers are independent given x: ``-log (T[m] h(x))[y]``. With weight 1 they are about one
    clean label, and each answer counts the likelihood of all answers to its item.

    Args:
        logits: (N, C) clean logits.
        T: (M, R, C) matrices.
        y: (N, M) answers, negative where an annotator gave none.
        weight: Weight of the other answers to the same item.
    """
    check_tensor(logits, "logits", 2)
    check_tensor(T, "T", 3)
    if y.shape != (len(logits), len(T)) or T.shape[2] != logits.shape[1]:
        raise InputError(
            f"logits {tuple(logits.shape)}, T {tuple(T.shape)} and y {tuple(y.shape)} do not fit each other: they must"
            " be (N, C), (M, R, C) and (N, M)."
        )
    if y.numel() and int(y.max()) >= T.shape[1]:
        raise_label_range(y, T.shape[1])
    row, annotator = torch.nonzero(y >= 0, as_tuple=True)
    return votes_nll(logits, T, row, annotator, y[row, annotator], weight)


def votes_nll(logits: Tensor, T: Tensor, item: Tensor, annotator: Tensor, label: Tensor, weight: float = 0.0) -> Tensor:
    """``answers_nll`` of answers in a list: (A,) items, annotators and labels."""
    if len(item) == 0:
        return logits.sum() * 0
    own = T[annotator, label].clamp_min(torch.finfo(T.dtype).tiny).log()
    log_likelihood = logits.log_softmax(dim=1)[item] + own
    if weight:
        total = torch.zeros_like(logits).index_add(0, item, own)
        log_likelihood = log_likelihood + weight * (total[item] - own)
    return -log_likelihood.logsumexp(1).mean()


def annotators_log_probs(logits: Tensor, T: Tensor) -> Tensor:
    """(N, M, R) log-probabilities of each annotator's answer, ``log (T[m] h(x))``."""
    noisy = torch.einsum("mrc,nc->nmr", T, logits.softmax(1))
    return noisy.clamp_min(torch.finfo(noisy.dtype).tiny).log()
