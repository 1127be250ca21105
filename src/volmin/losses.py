"""Losses on logits, a transition matrix and noisy labels."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def forward_nll(logits: Tensor, T: Tensor, y: Tensor) -> Tensor:
    """Mean of ``-log (T h(x))[y]``: cross-entropy of the noisy label under the corrected prediction.

    Only row y of T enters, so this costs O(N C) and not O(N C^2); in the log domain no probability underflows.

    Args:
        logits: (N, C) clean logits.
        T: (C, C), or (N, C, C) where it depends on x.
        y: (N,) noisy labels.
    """
    # An embedding look-up is indexing whose gradient is summed deterministically and fast.
    rows = F.embedding(y, T) if T.ndim == 2 else T[torch.arange(len(y), device=y.device), y]
    log_rows = rows.clamp_min(torch.finfo(rows.dtype).tiny).log()
    return -torch.logsumexp(F.log_softmax(logits, dim=1) + log_rows, dim=1).mean()
