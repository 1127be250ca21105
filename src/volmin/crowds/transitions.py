"""Trainable matrices for several annotators, their volume, and the likelihood of incomplete answers."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from volmin.exceptions import InputError
from volmin.transition import DominantTransition, log_volume
from volmin.validation import check_tensor, raise_label_range


class AnnotatorTransitions(nn.Module):
    """A trainable T for each annotator; calling it gives (M, R, C), with R = C, or C + 1 with abstentions.

    The annotators share one dominant T, the pooled one, and each deviates from it:

        T[m] = softmax over answers of (log T_pooled + D[m]).

    D starts at zero. ``penalty`` keeps it small, so that the matrix of an annotator with few answers stays close to the
    pooled one. A single annotator has no D: its matrix is the pooled one. A deviating matrix need not be dominant, so
    that it can describe an annotator who always gives the same answer.

    Args:
        num_classes: C, at least 2.
        num_annotators: M, at least 1.
        init: Start value of the parameters of the pooled T.
        shared_level: As in ``DominantTransition``.
        abstains: Whether an additional last row holds the probability of an abstention.
    """

    deviations: nn.Parameter | None
    abstention: nn.Parameter | None

    def __init__(
        self,
        num_classes: int,
        num_annotators: int,
        init: float | None = None,
        *,
        shared_level: bool = False,
        abstains: bool = False,
    ) -> None:
        super().__init__()
        if num_annotators < 1:
            raise InputError(f"num_annotators must be at least 1, but is {num_annotators}.")
        self.pooled = DominantTransition(num_classes, init, shared_level=shared_level)
        rows = num_classes + abstains
        several = num_annotators > 1
        self.deviations = nn.Parameter(torch.zeros(num_annotators, rows, num_classes)) if several else None
        # Log-odds of an abstention before normalisation: at first about one answer in three.
        self.abstention = nn.Parameter(torch.full((1, num_classes), -0.7)) if abstains else None

    def forward(self) -> Tensor:
        T = self.pooled()
        if self.abstention is not None:
            T = torch.cat([T, self.abstention.exp()])
            T = T / T.sum(0)
        if self.deviations is None:
            return T[None]
        return (T.log() + self.deviations).softmax(dim=1)

    def penalty(self) -> Tensor:
        """``1/2 |D|^2``: the negative log density of a Gaussian prior of unit variance."""
        if self.deviations is None:
            return torch.zeros(())
        return 0.5 * self.deviations.square().sum()


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


def answers_nll(logits: Tensor, T: Tensor, y: Tensor) -> Tensor:
    """Mean over all given answers of ``-log (T[m] h(x))[y]``.

    Args:
        logits: (N, C) clean logits.
        T: (M, R, C) matrices.
        y: (N, M) answers, negative where an annotator gave none.
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
    if len(row) == 0:
        return logits.sum() * 0
    h = logits.softmax(dim=1)
    likelihood = (T[annotator, y[row, annotator]] * h[row]).sum(1)
    return -(likelihood + torch.finfo(likelihood.dtype).tiny).log().mean()
