"""Evaluation of a method: scores on noisy labels, posteriors of the clean label, the selected epoch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from volmin.data.loaders import Batch
from volmin.training.recipe import Selection

if TYPE_CHECKING:
    from volmin.methods.base import Method

Record = dict[str, Any]
"""One epoch: phase, epoch, train_loss, val_loss, val_accuracy, seconds and further measurements."""


@torch.inference_mode()
def noisy_scores(method: Method, batches: Iterable[Batch], *, plain: bool = False) -> dict[str, float]:
    """Mean cross-entropy of ``T h`` on noisy labels, without the volume term, and its accuracy; of h if ``plain``."""
    method.eval()
    posteriors = method.clean_log_probs if plain else method.noisy_log_probs
    loss, hits, count = torch.zeros(()), torch.zeros(()), 0
    for batch in batches:
        log_probs, y = _answered(posteriors(batch.x), batch.y)
        loss = loss - log_probs.gather(1, y[:, None]).sum()
        hits = hits + (log_probs.argmax(1) == y).sum()
        count += len(y)
    return {"val_loss": loss.item() / max(1, count), "val_accuracy": hits.item() / max(1, count)}


def _answered(log_probs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """(A, C) log posteriors and (A,) labels of the answers that (B, M) labels hold; (B,) labels stay as they are."""
    if y.ndim == 1:
        return log_probs, y
    if log_probs.ndim == 2:
        log_probs = log_probs[:, None].expand(-1, y.shape[1], -1)
    return log_probs[y >= 0], y[y >= 0]


@torch.inference_mode()
def clean_probs(method: Method, inputs: Iterable[Tensor]) -> Tensor:
    """(N, C) posteriors of the clean label for batches of inputs, on the CPU."""
    method.eval()
    return torch.cat([method(x).softmax(1).cpu() for x in inputs])


def score(record: Record, selection: Selection) -> float:
    """The quantity that selection minimises; without validation data, later epochs are better."""
    if selection == "last" or "val_loss" not in record:
        return -record["epoch"]
    return record["val_loss"] if selection == "loss" else -record["val_accuracy"]


def selected(history: Sequence[Record], selection: Selection) -> Record:
    """The record of the epoch that a rule selects in the last phase."""
    last_phase = [record for record in history if record["phase"] == history[-1]["phase"]]
    return min(last_phase, key=lambda record: score(record, selection))
