"""The scikit-learn interface: a classifier that is trained on noisy labels and predicts clean ones."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import nn

from volmin import methods, networks
from volmin.crowds import encode_matrix, several_annotators
from volmin.data.loaders import TensorLoader
from volmin.exceptions import InputError
from volmin.progress import PlainProgress
from volmin.training import OneDevice, Recipe, Record, Selection, clean_probs, fit

PREDICTION_BATCH = 4096
"""Rows that are predicted at a time, which bounds the memory that prediction needs."""
_OPTION = "options__"


class NoisyLabelClassifier(ClassifierMixin, BaseEstimator):
    """A classifier of the clean label that is trained on noisy labels.

    Args:
        method: Name of a method, see ``volmin.methods.names()``.
        network: The network that gives logits: None for a perceptron with one hidden layer of 128 units on standardised
            features, an ``nn.Module`` (a copy is trained, starting from its weights), or a function from (shape of one
            row, number of classes) to a module. With a network, X may have any number of dimensions.
        epochs: Number of passes over the data; None for about 3,000 steps, between 5 and 200 epochs.
        batch_size: Rows of a step; None for a hundredth of the rows, between 16 and 1024.
        lr: Learning rate of the network; None for that of the method's authors, or else 0.05.
        weight_decay: Weight decay of the network; None for that of the method's authors, or else 1e-3. Transition
            matrices have none.
        options: Options of the method, such as ``{"lam": 1e-3}``; a search may name them ``options__lam``.
        selection: Which epoch is kept: the best "loss" or "accuracy" on noisy validation data, or the "last"; None for
            the rule of the method's authors, or else the loss.
        validation_fraction: Share of the rows held out to select the epoch; 0 for none. Below 50 rows there is none.
        device: "auto", "cpu", "cuda" or "mps".
        random_state: Random seed of weights, split and order; pass an int for the same result every time.
        verbose: Print progress to standard error.

    Attributes:
        classes_: (C,) labels, in the order of the columns of ``predict_proba``.
        transition_matrix_: (C, C) ``T[i, j] = P(noisy = classes_[i] | clean = classes_[j])``, or None for a method
            without one.
        transition_matrices_: (M, C, C) the T of each annotator, or None for a method without them.
        n_features_in_: Number of columns of X.
        history_: A record per epoch.
        method_: The trained ``volmin.methods.Method``.
    """

    def __init__(
        self,
        method: str = "volminnet",
        network: nn.Module | Callable[[tuple[int, ...], int], nn.Module] | None = None,
        *,
        epochs: int | None = None,
        batch_size: int | None = None,
        lr: float | None = None,
        weight_decay: float | None = None,
        options: Mapping[str, Any] | None = None,
        selection: Selection | None = None,
        validation_fraction: float = 0.1,
        device: str = "auto",
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
    ) -> None:
        self.method = method
        self.network = network
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.weight_decay = weight_decay
        self.options = options
        self.selection: Selection | None = selection
        self.validation_fraction = validation_fraction
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: ArrayLike, y: ArrayLike) -> NoisyLabelClassifier:
        """Train on rows X, (N, ...), and their noisy labels y, (N,), of any type.

        With several annotators, y is (N, M) or a table with a column for each, with None, NaN or -1 where one gave no
        label; the method must be one that learns a T for each of them, such as volminnet.
        """
        rows, codes = self._encoded(X, y)
        if len(self.classes_) < 2:
            raise InputError(f"y holds one class only ({self.classes_[0]!r}); a classifier needs at least two classes.")
        kind = methods.get(self.method)
        options = dict(self.options or {})
        if codes.ndim == 2:
            options |= self._annotator_options(kind, codes.shape[1])
        methods.check_options(kind, options)
        seed = int(check_random_state(self.random_state).randint(2**31))
        train, held_out = self._split(codes, seed)
        recipe = self._recipe(kind, len(train))

        x, noisy = torch.from_numpy(np.ascontiguousarray(rows)), torch.from_numpy(codes.astype(np.int64))
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.method_ = kind(self._network(x[train]), len(self.classes_), **options)
        train_loader = TensorLoader(x[train], noisy[train], recipe.batch_size)
        val_loader = TensorLoader(x[held_out], noisy[held_out], PREDICTION_BATCH) if len(held_out) else None
        epochs = sum(phase.epochs for phase in self.method_.phases(recipe))
        device = OneDevice(self.device)
        progress = PlainProgress() if self.verbose else None

        def on_epoch(history: list[Record]) -> None:
            if progress is not None:
                progress(self.method, len(history), epochs)

        self.history_ = fit(self.method_, train_loader, val_loader, recipe, seed=seed, fabric=device, on_epoch=on_epoch)
        if self.network is None and device.device.type == "cpu":
            # In double precision a row's probabilities do not depend on the rows it is predicted with.
            self.method_.double()
        with torch.no_grad():
            T = self.method_.transition()
            matrices = self.method_.transitions()
        self.transition_matrix_ = None if T is None else T.cpu().double().numpy()
        self.transition_matrices_ = None if matrices is None else matrices.cpu().double().numpy()
        self.n_iter_ = len(self.history_)
        return self

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """(N, C) posteriors of the clean label."""
        check_is_fitted(self, "method_")
        rows = self._validated(X, dtype=np.float64, reset=False)
        parameter = next(self.method_.parameters())
        x = torch.from_numpy(np.ascontiguousarray(rows)).to(parameter)
        return clean_probs(self.method_, x.split(PREDICTION_BATCH)).double().numpy()

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """(N,) most probable clean labels."""
        most_probable = self.predict_proba(X).argmax(axis=1)
        return self.classes_[most_probable]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters of the estimator; with ``deep``, also its options as ``options__<name>``."""
        own = super().get_params(deep)
        if deep and isinstance(self.options, Mapping):
            own |= {f"{_OPTION}{name}": value for name, value in self.options.items()}
        return own

    def set_params(self, **params: Any) -> NoisyLabelClassifier:
        """Set parameters; ``options__<name>`` sets one option of the method and keeps the others."""
        nested = {name.removeprefix(_OPTION): params.pop(name) for name in list(params) if name.startswith(_OPTION)}
        super().set_params(**params)
        if nested:
            self.options = {**(self.options or {}), **nested}
        return self

    def _validated(self, X: Any, *y: Any, **settings: Any) -> Any:
        given: list[Any] = [part.detach().cpu() if isinstance(part, torch.Tensor) else part for part in (X, *y)]
        features, labels = given[0], given[1:]
        return validate_data(self, features, *labels, allow_nd=self.network is not None, **settings)

    def _encoded(self, X: Any, y: Any) -> tuple[Any, NDArray[np.int64]]:
        """The rows, and their labels as class numbers: (N,), or (N, M) with -1 where an annotator gave none."""
        if several_annotators(y) and np.shape(y)[1] > 1:
            rows, found = self._validated(X, dtype=np.float32), encode_matrix(y)
            if len(rows) != found.answers.num_items:
                raise InputError(f"X has {len(rows)} rows, but y has {found.answers.num_items}.")
            self.classes_, codes = found.classes, found.answers.matrix()
            answered = (codes >= 0).any(axis=1)
            return rows[answered], codes[answered]
        rows, labels = self._validated(X, y, dtype=np.float32)
        check_classification_targets(labels)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        return rows, codes

    def _annotator_options(self, kind: type[methods.Method], annotators: int) -> dict[str, int]:
        if "annotators" not in methods.option_defaults(kind):
            able = [name for name in methods.names() if "annotators" in methods.option_defaults(methods.get(name))]
            raise InputError(
                f"y holds labels of {annotators} annotators, which {self.method} cannot learn from: aggregate them "
                f"(volmin.audit(y).consensus), or choose one of {', '.join(able)}."
            )
        return {"annotators": annotators}

    def _network(self, x: torch.Tensor) -> nn.Module:
        shape, num_classes = tuple(x.shape[1:]), len(self.classes_)
        if self.network is None:
            std, mean = torch.std_mean(x, dim=0, correction=0)
            return nn.Sequential(networks.Standardize(mean, std), networks.mlp(shape[0], num_classes))
        if isinstance(self.network, nn.Module):
            return copy.deepcopy(self.network)
        return self.network(shape, num_classes)

    def _recipe(self, kind: type[methods.Method], count: int) -> Recipe:
        names = ("epochs", "batch_size", "lr", "weight_decay", "selection")
        given = {name: value for name in names if (value := getattr(self, name)) is not None}
        return Recipe.for_rows(count, **kind.author_settings(lengths=False) | given)

    def _split(self, codes: NDArray[np.int64], seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows to train on, and rows that select the epoch; fewer than 5 of the latter would select by chance."""
        if not 0 <= self.validation_fraction < 1:
            raise InputError(f"validation_fraction must be in [0, 1), but is {self.validation_fraction}.")
        rows = np.arange(len(codes))
        if self.validation_fraction == 0 or len(codes) < 50:
            return rows, rows[:0]
        train, held_out = train_test_split(rows, test_size=self.validation_fraction, random_state=seed)
        return np.asarray(train), np.asarray(held_out)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.random_state is None
        return tags
