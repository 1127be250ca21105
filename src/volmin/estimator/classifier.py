"""The estimator: one ``fit`` for linear heads that compete and for networks that a method trains."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from volmin import methods
from volmin._typing import Array
from volmin.crowds import encode_answers, is_long_table, several_annotators
from volmin.estimator import storage
from volmin.estimator.cross_fitting import Candidate
from volmin.estimator.heads import choose_head
from volmin.estimator.labels import class_weights, single_labels
from volmin.estimator.loader import dense_batches, loader
from volmin.estimator.network import (
    Network,
    annotator_options,
    built_network,
    check_fraction,
    is_own,
    log_posteriors,
    reporter,
    split,
)
from volmin.exceptions import InputError
from volmin.methods import VolMinNet
from volmin.ridge import Rows
from volmin.training import OneDevice, PrecisionName, Recipe, Selection, fit

PREDICTION_BATCH = 4096
"""Rows that are predicted at a time, which bounds the memory that prediction needs."""
_OPTION = "options__"
_TRAINING = ("epochs", "batch_size", "lr", "weight_decay", "options", "selection", "precision", "patience")
"""Settings of the training of a network; with any of them, no heads compete."""


class NoisyLabelClassifier(ClassifierMixin, BaseEstimator):
    """A classifier of the clean label that is trained on noisy labels.

    By default linear heads compete for rows of numbers: on scaled rows, and on random features. The one under which
    held-out noisy labels are most likely is kept, together with T. With a network, or settings of the training, a
    method trains a network.

    Args:
        method: Name of a method, see ``volmin.methods.names()``.
        network: What gives the logits. "auto" and None: for volminnet, linear heads that compete by the likelihood of
            held-out noisy labels; with another method, several annotators, or any of epochs, batch_size, lr,
            weight_decay, options, selection, precision and patience, it is "mlp". "linear": the same without random
            features. "mlp": a perceptron with one hidden layer of 128 units on standardised features. An ``nn.Module``
            (a copy is trained, starting from its weights), or a function that makes a module from (shape of one row,
            number of classes) or without arguments; X may then have any number of dimensions.
        epochs: Number of passes over the data; None for about 3,000 steps, between 5 and 200 epochs.
        batch_size: Rows of a step; None for a hundredth of the rows, between 16 and 1024.
        lr: Learning rate of the network; None for that of the method's authors, or else 0.05.
        weight_decay: Weight decay of the network; None for that of the method's authors, or else 1e-3. Transition
            matrices have none.
        options: Options of the method, such as ``{"lam": 1e-3}``; a search may name them ``options__lam``.
        selection: Which epoch is kept: the best "loss" or "accuracy" on noisy validation data, or the "last"; None for
            the rule of the method's authors, or else the loss.
        validation_fraction: Share of the rows held out to select the epoch; 0 for none. Below 50 rows there is none.
        class_weight: Weights of the given labels: a dictionary by label, "balanced", or None for equal ones.
        unlabelled: Label, such as -1, of the rows without one; None and NaN always mean that there is none. These rows
            are left out of training.
        n_jobs: Number of threads that fit competing heads, as in joblib.
        precision: "32", "bf16-mixed" or "16-mixed", the arithmetic in which the network is trained; None for "32".
        patience: Number of epochs without a better score on the rows held out after which training ends; None: never.
        device: "auto", "cpu", "cuda" or "mps"; heads compete on the CPU.
        random_state: Random seed of weights, split and order; pass an int for the same result every time.
        verbose: Print progress to standard error.

    Attributes:
        classes_: (C,) labels, in the order of the columns of ``predict_proba``.
        transition_matrix_: (C, C) ``T[i, j] = P(noisy = classes_[i] | clean = classes_[j])``, or None for a method
            without one. The identity where heads compete for fewer than 50 rows: these tell nothing of T.
        transition_matrices_: (M, C, C) the T of each annotator, or None for a method without them.
        candidates_: The heads that competed, the likeliest first; empty if a method trained a network.
        n_features_in_: Number of columns of X.
        feature_names_in_: Names of the columns of X, if it had names.
        history_: A record per epoch; empty if heads competed, which are not trained in epochs.
        method_: The trained ``volmin.methods.Method``.
    """

    def __init__(
        self,
        method: str = "volminnet",
        network: Network | None = "auto",
        *,
        epochs: int | None = None,
        batch_size: int | None = None,
        lr: float | None = None,
        weight_decay: float | None = None,
        options: Mapping[str, Any] | None = None,
        selection: Selection | None = None,
        validation_fraction: float = 0.1,
        class_weight: Mapping[Any, float] | str | None = None,
        unlabelled: Any = None,
        n_jobs: int | None = None,
        precision: PrecisionName | None = None,
        patience: int | None = None,
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
        self.class_weight = class_weight
        self.unlabelled = unlabelled
        self.n_jobs = n_jobs
        self.precision: PrecisionName | None = precision
        self.patience = patience
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> NoisyLabelClassifier:
        """Train on rows X, (N, ...), and their noisy labels y, (N,), of any type.

        X may be sparse; it is made dense one batch at a time. Rows without a label (None, NaN, or ``unlabelled``) are
        left out. With several annotators, y is (N, M) or a table with a column for each, with None, NaN or -1 where one
        gave no label; the method must be one that learns a T for each of them, such as volminnet.
        """
        x, codes, weights = self._encoded(X, y, sample_weight)
        if len(self.classes_) < 2:
            raise InputError(f"y holds one class only ({self.classes_[0]!r}); a classifier needs at least two classes.")
        kind = methods.get(self.method)
        options = dict(self.options or {})
        if codes.ndim == 2:
            options |= annotator_options(self.method, kind, codes.shape[1])
        methods.check_options(kind, options)
        check_fraction(self.validation_fraction)
        OneDevice(self.device)  # an unusable device is an error, also where heads compete on the CPU
        seed = int(check_random_state(self.random_state).randint(2**31))
        self.shape_ = tuple(x.shape[1:])
        self.candidates_: tuple[Candidate, ...] = ()
        if self._heads_compete(kind, codes):
            return self._fit_heads(x, codes, weights, seed)
        return self._train(kind, options, x, torch.from_numpy(codes.astype(np.int64)), weights, seed)

    def _fit_heads(self, x: Rows, codes: NDArray[np.int64], weights: Array, seed: int) -> NoisyLabelClassifier:
        linear, C = self.network == "linear", len(self.classes_)
        chosen = choose_head(x, codes, weights, C, linear=linear, seed=seed, n_jobs=self.n_jobs)
        self.method_ = VolMinNet(chosen.network, C).double().eval()
        self.method_.T.start_at(chosen.transition, softness=1e-6)
        self.candidates_, self.history_, self.n_iter_ = chosen.candidates, [], max(1, len(chosen.candidates))
        return self.keep_transitions(chosen.transition)

    def _train(
        self, kind: type[methods.Method], options: dict[str, Any], x: Rows, noisy: Tensor, weights: Array, seed: int
    ) -> NoisyLabelClassifier:
        """Train a network by a method, in the training loop."""
        train, held_out = split(len(noisy), self.validation_fraction, seed)
        recipe = self._recipe(kind, len(train))
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            C = len(self.classes_)
            self.method_ = kind(built_network(self.network, x[train], weights[train], C), C, **options)
        device = OneDevice(self.device)
        self.history_ = fit(
            self.method_,
            loader(x[train], noisy[train], recipe.batch_size, weights[train]),
            loader(x[held_out], noisy[held_out], PREDICTION_BATCH) if len(held_out) else None,
            recipe,
            seed=seed,
            precision=self.precision or "32",
            patience=self.patience,
            fabric=device,
            on_epoch=reporter(self.method_, self.method, recipe) if self.verbose else None,
        )
        if self._own_network() and device.device.type == "cpu":
            # In double precision a row's probabilities do not depend on the rows it is predicted with.
            self.method_.double()
        self.n_iter_ = len(self.history_)
        with torch.no_grad():
            T = self.method_.transition()
        return self.keep_transitions(None if T is None else T.cpu().double().numpy())

    def keep_transitions(self, T: Array | None) -> NoisyLabelClassifier:
        """Keep T, and the trained method's matrices of several annotators, as attributes."""
        with torch.no_grad():
            matrices = self.method_.transitions()
        self.transition_matrix_ = T
        self.transition_matrices_ = None if matrices is None else matrices.cpu().double().numpy()
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """(N, C) posteriors of the clean label."""
        return np.exp(self._log_probs(X))

    def predict(self, X: Any) -> NDArray[Any]:
        """(N,) most probable clean labels."""
        most_probable = self._log_probs(X).argmax(axis=1)
        return self.classes_[most_probable]

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """(N, C) log posteriors of the clean label; for two classes, the (N,) log odds of the second."""
        log_probs = self._log_probs(X)
        return log_probs[:, 1] - log_probs[:, 0] if len(self.classes_) == 2 else log_probs

    def save(self, folder: str | Path) -> None:
        """Write the trained classifier to a folder, as JSON and safetensors."""
        check_is_fitted(self, "method_")
        storage.save(self, folder)

    @classmethod
    def load(cls, folder: str | Path, network: Any = None) -> NoisyLabelClassifier:
        """The classifier that ``save`` wrote to a folder. No code in the files is executed.

        Args:
            folder: Folder of the classifier.
            network: The module or function that it was trained with, if ``network`` was one of these.
        """
        return storage.restore(cls(), folder, network)

    def _log_probs(self, X: Any) -> NDArray[np.float64]:
        check_is_fitted(self, "method_")
        rows = self._rows(self._validated(X, dtype=np.float64, reset=False))
        own = next(self.method_.parameters())
        batches = (batch.to(own) for batch in dense_batches(rows, PREDICTION_BATCH))
        return log_posteriors(self.method_, batches)

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
        given: list[Any] = [part.detach().cpu() if isinstance(part, Tensor) else part for part in (X, *y)]
        return validate_data(self, *given, allow_nd=not self._own_network(), accept_sparse="csr", **settings)

    def _rows(self, rows: Any) -> Rows:
        if scipy.sparse.issparse(rows):
            return scipy.sparse.csr_matrix(rows)
        return torch.from_numpy(np.ascontiguousarray(rows))

    def _encoded(self, X: Any, y: Any, sample_weight: Any) -> tuple[Rows, NDArray[np.int64], Array]:
        """The rows with a label; their labels as class numbers, (N,), or (N, M) with -1 for none; their weights."""
        if is_long_table(y) or (several_annotators(y) and np.shape(y)[1] > 1):
            if sample_weight is not None or self.class_weight is not None:
                raise InputError("Weights need one label for each row, but y holds labels of several annotators.")
            rows = self._validated(X, dtype=np.float32)
            found = encode_answers(y, num_items=rows.shape[0])
            if rows.shape[0] != found.answers.num_items:
                raise InputError(f"X has {rows.shape[0]} rows, but y has {found.answers.num_items}.")
            self.classes_, codes = found.classes, found.answers.matrix()
            answered = (codes >= 0).any(axis=1)
            return self._rows(rows[answered]), codes[answered], np.ones(int(answered.sum()))
        found = single_labels(X, y, sample_weight, self.unlabelled, self._validated)
        self.classes_ = found.classes
        return self._rows(found.x), found.codes, found.weights * class_weights(self.class_weight, found)

    def _own_network(self) -> bool:
        return is_own(self.network)

    def _heads_compete(self, kind: type[methods.Method], codes: NDArray[np.int64]) -> bool:
        if isinstance(self.network, str) and self.network not in ("auto", "linear", "mlp"):
            raise InputError(
                f'network must be "auto", "linear", "mlp", a module or a function, but is {self.network!r}.'
            )
        untouched = all(getattr(self, name) is None for name in _TRAINING)
        return self.network in (None, "auto", "linear") and kind is VolMinNet and codes.ndim == 1 and untouched

    def _recipe(self, kind: type[methods.Method], count: int) -> Recipe:
        names = ("epochs", "batch_size", "lr", "weight_decay", "selection")
        given = {name: value for name in names if (value := getattr(self, name)) is not None}
        return Recipe.for_rows(count, **kind.author_settings(lengths=False) | given)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.random_state is None
        tags.input_tags.sparse = True
        return tags
