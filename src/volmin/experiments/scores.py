"""Figures of a method on the test part, and of its T."""

from __future__ import annotations

from statistics import fmean

import torch
from torch import Tensor

from volmin._typing import Array
from volmin.data.loaders import Loader
from volmin.methods.base import Method
from volmin.transition import log_volume, transition_error


def held_out_figures(method: Method, test: Loader, T: Array | None) -> dict[str, float]:
    """The accuracy, and the figures of the estimate of T."""
    predicted, labels = _predictions(method, test)
    return {"accuracy": (predicted == labels).double().mean().item(), **transition_figures(method, T)}


@torch.no_grad()
def transition_figures(method: Method, T: Array | None) -> dict[str, float]:
    """The log volume of the estimate of T, and its error where T is known."""
    if (estimate := method.transition()) is None:
        return {}
    error = {} if T is None else {"transition_error": transition_error(T, estimate)}
    return error | {"log_volume": log_volume(estimate).item()}


def class_size_figures(method: Method, train: Loader, test: Loader) -> dict[str, float]:
    """For data whose classes may be of any size: the balanced accuracy, and the majority baseline.

    The baseline is the accuracy of always predicting the label that is most frequent in training.
    """
    predicted, labels = _predictions(method, test)
    recalls = [(predicted[labels == label] == label).double().mean().item() for label in labels.unique()]
    majority = torch.cat([batch.y.cpu() for batch in train]).mode().values
    return {
        "balanced_accuracy": fmean(recalls),
        "majority_baseline": (labels == majority).double().mean().item(),
    }


@torch.inference_mode()
def _predictions(method: Method, test: Loader) -> tuple[Tensor, Tensor]:
    """(N,) predicted and (N,) given labels; both from the batches, which leave out images that cannot be read."""
    method.eval()
    pairs = [(method(batch.x).softmax(1).argmax(1).cpu(), batch.y.cpu()) for batch in test]
    predicted, labels = zip(*pairs, strict=True)
    return torch.cat(predicted), torch.cat(labels)
