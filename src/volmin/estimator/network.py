"""What the training of a network needs besides the method: its layers, the rows held out, options, progress."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable
from typing import Any, Literal

import numpy as np
import torch
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

from volmin import methods, networks
from volmin._typing import Array, Labels
from volmin.exceptions import InputError
from volmin.networks import Standardize
from volmin.progress import PlainProgress
from volmin.ridge import Rows, column_moments
from volmin.training import Recipe, Record

FEWEST_ROWS = 50
"""With fewer rows none are held out: fewer than 5 of them would select an epoch by chance."""


Maker = Callable[[tuple[int, ...], int], nn.Module] | Callable[[], nn.Module]
Network = nn.Module | Maker | Literal["auto", "linear", "mlp"]


def is_own(network: Any) -> bool:
    """Whether the network is one of the classifier's own."""
    return network is None or isinstance(network, str)


def built_network(network: Any, x: Rows, weights: Array, num_classes: int) -> nn.Module:
    """The user's network, or a linear layer or a perceptron on features standardised by their weighted moments."""
    if not is_own(network):
        return given_network(network, tuple(x.shape[1:]), num_classes)
    mean, variance = column_moments(x, weights)
    hidden = () if network == "linear" else (128,)
    return nn.Sequential(Standardize(mean, variance.sqrt()), networks.mlp(x.shape[1], num_classes, hidden))


def given_network(network: Any, shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """A copy of the module that the user gave, or a module from their function."""
    if isinstance(network, nn.Module):
        return copy.deepcopy(network)
    return network(shape, num_classes) if _takes(network, shape, num_classes) else network()


def _takes(function: Callable[..., nn.Module], *arguments: Any) -> bool:
    """Whether a function can be called with these arguments."""
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError:
        return False
    return True


def check_fraction(validation_fraction: float) -> None:
    """Require a share below one."""
    if not 0 <= validation_fraction < 1:
        raise InputError(f"validation_fraction must be in [0, 1), but is {validation_fraction}.")


def split(count: int, validation_fraction: float, seed: int) -> tuple[Labels, Labels]:
    """Rows to train on, and rows that select the epoch."""
    rows = np.arange(count)
    if validation_fraction == 0 or count < FEWEST_ROWS:
        return rows, rows[:0]
    train, held_out = train_test_split(rows, test_size=validation_fraction, random_state=seed)
    return np.asarray(train), np.asarray(held_out)


def annotator_options(name: str, kind: type[methods.Method], annotators: int) -> dict[str, int]:
    """The options of a method for labels of several annotators."""
    if "annotators" not in methods.option_defaults(kind):
        able = [other for other in methods.names() if "annotators" in methods.option_defaults(methods.get(other))]
        raise InputError(
            f"y holds labels of {annotators} annotators, which {name} cannot learn from: aggregate them "
            f"(volmin.audit(y).consensus), or choose one of {', '.join(able)}."
        )
    return {"annotators": annotators}


def reporter(method: methods.Method, name: str, recipe: Recipe) -> Callable[[list[Record]], None]:
    """A function that prints progress after each epoch."""
    progress, epochs = PlainProgress(), sum(phase.epochs for phase in method.phases(recipe))
    return lambda history: progress(name, len(history), epochs)


@torch.inference_mode()
def log_posteriors(method: methods.Method, batches: Iterable[Tensor]) -> Array:
    """(N, C) log posteriors of the clean label for batches of rows."""
    method.eval()
    return torch.cat([method.clean_log_probs(batch).cpu() for batch in batches]).double().numpy()
