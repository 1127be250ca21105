"""Checks of a network before training, and of the loss and T after every epoch."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from volmin.data.loaders import Loader
from volmin.exceptions import DegenerateTransitionWarning, InputError, TrainingDivergedError
from volmin.training.evaluation import Record
from volmin.training.recipe import Selection
from volmin.transition import degeneracy

if TYPE_CHECKING:
    from volmin.methods.base import Method


def check_network(method: Method, train: Loader) -> None:
    """Try the network on two rows in memory, so that an unsuitable one is reported before the first step."""
    if (x := train.example()) is None:
        return
    try:
        with torch.random.fork_rng(), torch.no_grad():
            logits = method.eval()(x)
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, IndexError, TypeError) as error:
        shape, reason = tuple(x.shape[1:]), str(error).split("\n")[0]
        raise InputError(f"The network does not take rows x of shape {shape} and type {x.dtype}: {reason}") from error
    if logits.shape != (len(x), method.num_classes):
        raise InputError(
            f"The network must give {method.num_classes} logits for each row, one for each class, but gives "
            f"{tuple(logits.shape)} for {len(x)} rows."
        )


def check_patience(patience: int | None, rules: Sequence[Selection], val: Loader | None) -> None:
    """Require validation data, and a phase that they select an epoch of, where training may stop early."""
    if patience is None:
        return
    if isinstance(patience, bool) or not isinstance(patience, int) or patience < 1:
        raise InputError(f"patience must be a whole number of at least 1, or None, but is {patience!r}.")
    if val is None:
        raise InputError("patience needs validation data with noisy labels: pass val_loader, or leave patience out.")
    if all(rule == "last" for rule in rules):
        raise InputError(
            "patience has no effect, since every phase keeps its last epoch: leave it out, or pass a recipe with "
            'selection="loss" or "accuracy".'
        )


def raise_if_diverged(record: Record) -> None:
    """Raise a ``TrainingDivergedError`` if a loss is not finite."""
    if not math.isfinite(record["train_loss"]) or not math.isfinite(record.get("val_loss", 0.0)):
        raise TrainingDivergedError(
            f"The loss is not finite in epoch {record['epoch']} ({record['phase']}). Lower the learning rate, and "
            "check the inputs for huge values. The last good epoch is kept in the checkpoint, if there is one."
        )


def has_regular_transition(method: Method) -> bool:
    """Whether the estimate of T, if there is one, is not degenerate."""
    with torch.no_grad():
        T = method.transition()
    return T is None or degeneracy(T) is None


def warn_of_collapse(record: Record) -> None:
    """Warn in the epoch in which T becomes singular, when training can still be stopped."""
    warnings.warn(
        f"The estimated T became nearly singular in epoch {record['epoch']} ({record['phase']}): lower lam, the weight "
        "of the volume, or the learning rate of T. The epoch that does best on noisy validation data is kept.",
        DegenerateTransitionWarning,
        stacklevel=3,
    )
