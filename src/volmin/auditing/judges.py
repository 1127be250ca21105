"""Out-of-fold posteriors: those of each row come from a model that was not trained on its label."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from volmin import networks
from volmin._typing import AnyArray, Array, Labels
from volmin.estimator import NoisyLabelClassifier
from volmin.exceptions import InputError
from volmin.progress import Progress, tracked
from volmin.training import Record

STEPS = 1300
"""Optimisation steps that the number of epochs of a network aims at."""

SMALLEST_IMAGE = 16
"""Images with a shorter side are too small for a convolutional network and are used as plain pixels."""


def network(num_rows: int) -> NoisyLabelClassifier:
    """VolMinNet with a small network, trained in fewer and larger steps than by default, since each fold needs one."""
    batch_size = min(1024, max(16, num_rows // 25))
    epochs = min(100, max(10, STEPS * batch_size // num_rows))
    return NoisyLabelClassifier(batch_size=batch_size, epochs=epochs, lr=0.1)


def image_network(num_rows: int) -> NoisyLabelClassifier:
    """VolMinNet with a small convolutional network, for (N, channels, height, width) images of unit scale."""

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
"""Models by name, as functions of the number of rows; regularised, since overfitting reproduces wrong labels."""


@dataclass(frozen=True)
class CrossFit:
    """Out-of-fold posteriors.

    Attributes:
        probs: (N, C) posteriors of the *noisy* label, each row by a model that was not trained on it.
        histories: Records of a network per epoch, for each fold; empty for other models.
    """

    probs: Array
    histories: list[list[Record]] = field(default_factory=list)


def resolve_model(model: Any, x: AnyArray) -> Any:
    """The classifier that ``model`` names, chosen for (N, ...) features ``x``; or ``model`` itself, checked."""
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
            " wrap a classifier without predict_proba in CalibratedClassifierCV."
        )
    return model


def cross_fit(
    model: Any,
    x: AnyArray,
    labels: Labels,
    num_classes: int,
    *,
    folds: int,
    random_state: int,
    progress: Progress | None = None,
) -> CrossFit:
    """Fit a copy of ``model`` for each fold on the other folds, and predict the fold with it.

    Args:
        model: A scikit-learn classifier. One with a ``transition_matrix_`` predicts the *clean* label.
        x: (N, ...) features.
        labels: (N,) labels in ``0 .. num_classes - 1``.
        num_classes: Number of classes C.
        folds: Number of folds, at least 2.
        random_state: Random seed of the folds and of every model whose ``random_state`` is None.
        progress: Callback that is called after each fold.
    """
    flat = np.ascontiguousarray(x).reshape(len(x), -1)
    # scikit-learn accepts matrices only; a user's network may need the original shape.
    x = x if getattr(_last_step(model), "network", None) is not None else flat
    generator = np.random.default_rng(random_state)
    fold = assign_folds(labels, first_copies(flat), folds, generator)
    probs = np.zeros((len(labels), num_classes))
    histories: list[list[Record]] = []
    for k in tracked(range(folds), "cross-fitting", folds, progress):
        held_out = fold == k
        fitted = _seeded(clone(model), int(generator.integers(2**31)))
        fitted.fit(x[~held_out], labels[~held_out])
        probs[held_out] = noisy_posteriors(fitted, x[held_out], num_classes)
        histories += [_last_step(fitted).history_] if hasattr(_last_step(fitted), "history_") else []
    return CrossFit(probs, histories)


def noisy_posteriors(fitted: Any, x: AnyArray, num_classes: int) -> Array:
    """(N, C) posteriors of the noisy label; zero for classes without training rows."""
    last = _last_step(fitted)
    probs = np.zeros((len(x), num_classes))
    predicted = np.asarray(fitted.predict_proba(x), dtype=np.float64)
    T = getattr(last, "transition_matrix_", None)
    probs[:, last.classes_] = predicted if T is None else predicted @ T.T
    return probs


def assign_folds(labels: Labels, copy_of: Labels, folds: int, generator: np.random.Generator) -> Labels:
    """(N,) fold of each row, such that classes are spread evenly and identical rows are in one fold.

    Args:
        labels: (N,) labels.
        copy_of: (N,) first row that is identical to each row, usually the row itself.
        folds: Number of folds.
        generator: Random generator of the order within a class.
    """
    originals = np.unique(copy_of)
    order = generator.permutation(originals)
    order = order[labels[order].argsort(kind="stable")]
    fold = np.empty(len(labels), dtype=np.int64)
    fold[order] = np.arange(len(order)) % folds
    return fold[copy_of]


def first_copies(x: AnyArray) -> Labels:
    """(N,) first row that is identical to each row.

    A copy of a row in the training folds would reveal its label. Where most rows are repeated, as with a few
    categorical features, they are different examples with the same features, and each row counts as its own original.
    """
    keys = x.view(np.dtype((np.void, x.dtype.itemsize * x.shape[1])))[:, 0]
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    return first[inverse] if len(first) >= len(x) / 2 else np.arange(len(x))


def _seeded(model: Any, seed: int) -> Any:
    """The model with ``seed`` in place of every ``random_state`` of None."""
    parts = {name: value for name, value in model.get_params().items() if name.split("__")[-1] == "random_state"}
    return model.set_params(**{name: seed for name, value in parts.items() if value is None})


def _last_step(model: Any) -> Any:
    return model[-1] if isinstance(model, Pipeline) else model
