"""Recalibration: a trained T and classifier, adjusted to noisy labels that training did not use.

A network that begins to memorise wrong labels leaves less for T to explain, so the trained T contains too little noise,
and single entries absorb the network's own confusions. Held-out labels show both. Three numbers are fitted to them,

    T' = dominant(centre + level + contrast (w - centre)),    h' = softmax(scale log h),    loss = -mean log (T' h')_y,

where T = dominant(w) is the trained T and ``centre`` the w of its mean off-diagonal ratio. Level 0 and contrast 1 leave
T as it is; contrast 0 makes all off-diagonal entries equal, as with symmetric noise. The contrast is never raised: what
a network absorbs makes entries differ more, and for pair noise the gain would be entries nearer to zero, which matter
little, at the price of a level from few labels. The held-out part, a tenth of the data, could not determine single
entries better than training did. T is changed only where these labels reject the trained T by a likelihood-ratio test.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy
import torch
from torch import Tensor

from volmin._typing import Array, Numbers
from volmin.estimation.label_fit import with_gradient
from volmin.exceptions import InputError
from volmin.losses import noisy_likelihood
from volmin.transition import dominant, validate_transition
from volmin.validation import validate_labels, validate_posteriors

CRITICAL_VALUE = 5.99
"""Chi-squared quantile at 5 % for the two numbers that change T."""

_SMALLEST = 1e-12
"""Smallest posterior, and smallest distance of a ratio of entries from 0 and 1."""

_START = (0.0, 0.0, 1.0)
_BOUNDS = ((-2.5, 2.5), (-5.0, 5.0), (0.0, 1.0))
"""Of the logarithm of the scale, of the level and of the contrast."""


@dataclass(frozen=True)
class Recalibration:
    """What held-out noisy labels say about a trained T and classifier.

    Attributes:
        transition: (C, C) adjusted T; the trained one where the labels do not reject it.
        scale: Factor of the log posteriors of the clean label.
        statistic: Likelihood-ratio statistic of the trained T against the adjusted one.
    """

    transition: Array
    scale: float
    statistic: float

    @property
    def rejects(self) -> bool:
        """Whether the labels reject the trained T."""
        return self.statistic > CRITICAL_VALUE


def recalibrate(T: Numbers, probs: Numbers, labels: Numbers) -> Recalibration:
    """Adjust the level and the contrast of T, and the scale of the log posteriors, to held-out noisy labels.

    Args:
        T: (C, C) trained matrix with ``T[i, j] = P(noisy = i | clean = j)``, whose diagonal entry is the largest of its
            column.
        probs: (N, C) posteriors of the *clean* label.
        labels: (N,) noisy labels of rows that neither T nor the classifier was trained on.
    """
    clean = validate_posteriors(probs)
    trained = validate_transition(T, clean.shape[1])
    if (trained.diagonal() < trained.max(axis=0)).any():
        raise InputError("T is not dominant: the diagonal entry of every column must be the largest one.")
    y = torch.from_numpy(validate_labels(labels, *clean.shape))
    log_probs = torch.from_numpy(np.log(clean.clip(min=_SMALLEST)))
    w = torch.logit(torch.from_numpy(trained / trained.diagonal()).clamp(_SMALLEST, 1 - _SMALLEST))

    def loss(theta: Tensor) -> Tensor:
        return -noisy_likelihood(theta[0].exp() * log_probs, dominant(_adjusted(w, theta)), y).log().sum()

    def fitted(bounds: Sequence[tuple[float, float]]) -> Tensor:
        fit = scipy.optimize.minimize(with_gradient(loss), np.array(_START), jac=True, method="L-BFGS-B", bounds=bounds)
        return torch.as_tensor(fit.x)

    scale_alone, all_three = fitted((_BOUNDS[0], (0.0, 0.0), (1.0, 1.0))), fitted(_BOUNDS)
    statistic = 2 * (loss(scale_alone) - loss(all_three)).item()
    if statistic <= CRITICAL_VALUE:
        return Recalibration(trained, scale_alone[0].exp().item(), statistic)
    return Recalibration(dominant(_adjusted(w, all_three)).numpy(), all_three[0].exp().item(), statistic)


def _adjusted(w: Tensor, theta: Tensor) -> Tensor:
    others = ~torch.eye(len(w), dtype=torch.bool)
    centre = torch.logit(torch.sigmoid(w)[others].mean())
    return centre + theta[1] + theta[2] * (w - centre)
