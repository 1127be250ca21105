"""Out-of-fold posteriors: every row is judged by a model that has not seen its label."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from volmin import networks
from volmin.cli.progress import tracked
from volmin.estimator import NoisyLabelClassifier
from volmin.exceptions import InputError
from volmin.training import Record

Array = NDArray[np.float64]
Codes = NDArray[np.int64]

STEPS = 1300
"""Steps of optimisation that a network's number of epochs aims at."""


SMALLEST_IMAGE = 16
"""Images with a shorter side are judged by their pixels as they are: there is nothing left to pool."""


def network(num_rows: int) -> NoisyLabelClassifier:
    """VolMinNet on a small network, trained in larger and fewer steps than the estimator's own: five are needed."""
    batch_size = min(1024, max(16, num_rows // 25))
    epochs = min(100, max(10, STEPS * batch_size // num_rows))
    return NoisyLabelClassifier(batch_size=batch_size, epochs=epochs, lr=0.1)


def image_network(num_rows: int) -> NoisyLabelClassifier:
    """VolMinNet on a small convolutional network, for (N, channels, height, width) numbers of unit scale."""

    def build(shape: tuple[int, ...], num_classes: int) -> nn.Module:
        return networks.fast_cnn(num_classes, shape[0], widths=(16, 32, 64))

    batch_size = min(256, max(16, num_rows // 25))
    epochs = min(15, max(5, STEPS * batch_size // num_rows))
    return NoisyLabelClassifier(network=build, batch_size=batch_size, epochs=epochs, lr=0.05)


MODELS: dict[str, Callable[[int], Any]] = {
    "network": network,
    "logistic": lambda _: make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=1000)),
    "forest": lambda _: RandomForestClassifier(300, min_samples_leaf=3),
    "boosting": lambda _: HistGradientBoostingClassifier(learning_rate=0.05, max_iter=60, max_leaf_nodes=15),
}
"""Models by name, for a number of rows. All are held back: what can memorise single labels believes the wrong ones."""


@dataclass(frozen=True)
class CrossFit:
    """What the models of all folds say together.

    Attributes:
        probs: (N, C) posteriors of the *noisy* label, each row by a model that has not seen it.
        histories: a network's records per epoch, for each fold; empty for other models.
    """

    probs: Array
    histories: list[list[Record]] = field(default_factory=list)


def named_model(model: Any, x: NDArray[Any]) -> Any:
    """The model that a name stands for, to judge (N, ...) features, or the given model if it can tell probabilities."""
    num_rows = len(x)
    if model is None or isinstance(model, str):
        name = model or "network"
        if name == "network" and x.ndim == 4 and min(x.shape[2:]) >= SMALLEST_IMAGE:
            return image_network(num_rows)
        if name not in MODELS:
            raise InputError(f"There is no model {name!r}. Choose one of: {', '.join(MODELS)}.")
        return MODELS[name](num_rows)
    if not hasattr(model, "fit") or not hasattr(model, "predict_proba"):
        raise InputError(
            f"model must be a scikit-learn classifier with fit and predict_proba, but is {type(model).__name__};"
            " wrap it in CalibratedClassifierCV if it only decides."
        )
    return model


def cross_fit(
    model: Any, x: NDArray[Any], codes: Codes, num_classes: int, *, folds: int, seed: int, quiet: bool
) -> CrossFit:
    """Fit copies of ``model`` to all folds but one, and ask each for the rows of that one.

    Args:
        model: a classifier of scikit-learn's kind. One with a ``transition_matrix_`` predicts the *clean* label.
        x: (N, ...) features.
        codes: (N,) labels in ``0 .. num_classes - 1``.
        num_classes: C.
        folds: at least 2.
        seed: of the folds and of every model that has a ``random_state`` of None.
        quiet: show no progress.
    """
    flat = np.ascontiguousarray(x).reshape(len(x), -1)
    # scikit-learn knows rows of numbers only; a network of one's own takes them in any shape.
    x = x if getattr(_last_step(model), "network", None) is not None else flat
    generator = np.random.default_rng(seed)
    fold = deal(codes, repeated_rows(flat), folds, generator)
    probs = np.zeros((len(codes), num_classes))
    histories: list[list[Record]] = []
    for k in tracked(range(folds), "judging labels", folds, Console(stderr=True, quiet=quiet)):
        held_out = fold == k
        fitted = _seeded(clone(model), int(generator.integers(2**31)))
        fitted.fit(x[~held_out], codes[~held_out])
        probs[held_out] = noisy_posteriors(fitted, x[held_out], num_classes)
        histories += [_last_step(fitted).history_] if hasattr(_last_step(fitted), "history_") else []
    return CrossFit(probs, histories)


def noisy_posteriors(fitted: Any, x: NDArray[Any], num_classes: int) -> Array:
    """(N, C) posteriors of the noisy label; classes that the model never saw get none."""
    last = _last_step(fitted)
    probs = np.zeros((len(x), num_classes))
    found = np.asarray(fitted.predict_proba(x), dtype=np.float64)
    T = getattr(last, "transition_matrix_", None)
    probs[:, last.classes_] = found if T is None else found @ T.T
    return probs


def deal(codes: Codes, row: Codes, folds: int, generator: np.random.Generator) -> Codes:
    """The fold of each row, (N,): every class is spread evenly, and rows that repeat each other stay together.

    Args:
        codes: (N,) labels.
        row: (N,) the first row that each row repeats, itself as a rule.
        folds: number of folds.
        generator: of the order within a class.
    """
    originals = np.unique(row)
    order = generator.permutation(originals)
    order = order[codes[order].argsort(kind="stable")]
    fold = np.empty(len(codes), dtype=np.int64)
    fold[order] = np.arange(len(order)) % folds
    return fold[row]


def repeated_rows(x: NDArray[Any]) -> Codes:
    """The first row that each row repeats exactly, (N,).

    A copy of a row in the training folds would give its label away. Where most rows are copies, as with a few
    categories for features, they are no copies of one example, and every row counts as itself.
    """
    keys = x.view(np.dtype((np.void, x.dtype.itemsize * x.shape[1])))[:, 0]
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    return first[inverse] if len(first) >= len(x) / 2 else np.arange(len(x))


def _seeded(model: Any, seed: int) -> Any:
    """The model with a seed wherever it has none."""
    parts = {name: value for name, value in model.get_params().items() if name.split("__")[-1] == "random_state"}
    return model.set_params(**{name: seed for name, value in parts.items() if value is None})


def _last_step(fitted: Any) -> Any:
    return fitted[-1] if isinstance(fitted, Pipeline) else fitted
