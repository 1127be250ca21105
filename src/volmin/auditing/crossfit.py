"""Cross-fitting: posteriors of each row from models that were not trained on its label."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from joblib import Parallel, cpu_count, delayed
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from threadpoolctl import threadpool_limits

from volmin._typing import AnyArray, Array, Labels, Mask
from volmin.data.folds import assign_folds, first_copies
from volmin.progress import Progress, tracked
from volmin.training import Record, thread_limit

MOST_TRAINED = 200_000
"""Number of rows that a model is fitted to, drawn at random from more; all rows are predicted."""

FEWEST_OF_CLASS = 100
"""Number of rows that such a sample keeps of each class that has as many."""


MOST_LIGHT = 3_000_000
"""Largest number of rows times features times classes that is fitted in this process. Starting worker processes, each
of which imports torch and its compiler, would take longer than they save."""


@dataclass(frozen=True)
class HeldOut:
    """Posteriors of one model for rows that it was not trained on.

    Attributes:
        probs: (R, N, C) posteriors for each of R repetitions of the cross-fitting; zero for rows of folds that were
            left out.
        clean: Whether they are posteriors of the clean label, from a model with its own T.
        histories: Records of a network per epoch, for each fold; empty for other models.
    """

    probs: Array
    clean: bool = False
    histories: list[list[Record]] = field(default_factory=list)

    def with_folds(self, others: HeldOut) -> HeldOut:
        """These posteriors and those of the folds that were left out here."""
        return HeldOut(self.probs + others.probs, self.clean, self.histories + others.histories)


def cross_fit(
    models: Mapping[str, Any],
    x: AnyArray,
    labels: Labels,
    num_classes: int,
    *,
    folds: int,
    parts: Sequence[int] | None = None,
    repeats: int = 1,
    random_state: int,
    threads: int = 1,
    progress: Progress | None = None,
) -> dict[str, HeldOut]:
    """Fit a copy of every model for each fold on the other folds, and predict the fold with it.

    All models use the same folds. The fits run on all cores, each with ``threads`` threads, unless they are small. A
    fold of a model gives the same posteriors whatever other folds and models are fitted.

    Args:
        models: scikit-learn classifiers by name. One with a ``transition_matrix_`` predicts the *clean* label.
        x: (N, ...) features.
        labels: (N,) labels in ``0 .. num_classes - 1``; -1 for rows without one, which are only predicted.
        num_classes: Number of classes C.
        folds: Number of folds, at least 2.
        parts: Folds that are predicted, in ``0 .. folds - 1``; all by default.
        repeats: Number of repetitions, each with folds of its own.
        random_state: Random seed of the folds and of every model whose ``random_state`` is None.
        threads: Number of threads of each fit.
        progress: Callback that is called after each fit.
    """
    flat = np.ascontiguousarray(x).reshape(len(x), -1)
    generator = np.random.default_rng(random_state)
    copy_of = first_copies(flat)
    fold = np.stack([assign_folds(labels, copy_of, folds, generator) for _ in range(repeats)])
    tasks = [
        (repeat, k, name, _seed(random_state, repeat, k, *name.encode()))
        for repeat in range(repeats)
        for k in (range(folds) if parts is None else parts)
        for name in models
    ]
    workers = 1 if flat.size * num_classes <= MOST_LIGHT else max(1, cpu_count() // threads)

    def fit_one(repeat: int, k: int, name: str, seed: int) -> tuple[Array, bool, list[Record]]:
        # scikit-learn accepts matrices only; a user's network may need the original shape.
        shaped = flat if isinstance(getattr(_last_step(models[name]), "network", None), str | None) else x
        return _fit_and_predict(models[name], shaped, labels, fold[repeat] == k, num_classes, seed, threads)

    probs = {name: np.zeros((repeats, len(labels), num_classes)) for name in models}
    clean, histories = dict.fromkeys(models, False), {name: list[list[Record]]() for name in models}
    results = _run(fit_one, tasks, workers)
    found = zip(tasks, results, strict=True)
    with warnings.catch_warnings():
        # joblib replaces workers whose memory has grown, and loses nothing.
        warnings.filterwarnings("ignore", "A worker stopped while some jobs")
        for (repeat, k, name, _), (predicted, is_clean, history) in tracked(
            found, "cross-fitting", len(tasks), progress
        ):
            probs[name][repeat, fold[repeat] == k] = predicted
            clean[name] = is_clean
            if history:
                histories[name].append(history)
    return {name: HeldOut(probs[name], clean[name], histories[name]) for name in models}


def _seed(*key: int) -> int:
    return int(np.random.default_rng(key).integers(2**31))


def _run(function: Any, tasks: list[tuple[Any, ...]], workers: int) -> Iterator[Any]:
    """Results in the order of the tasks, as they become ready; in this process if there is one worker."""
    if workers == 1:
        return (function(*task) for task in tasks)
    return iter(Parallel(n_jobs=workers, return_as="generator")(delayed(function)(*task) for task in tasks))


def _fit_and_predict(
    model: Any, x: AnyArray, labels: Labels, held_out: Mask, num_classes: int, seed: int, threads: int
) -> tuple[Array, bool, list[Record]]:
    """Posteriors of the held-out rows, whether they are of the clean label, and the history of a network."""
    with thread_limit(threads), threadpool_limits(threads), warnings.catch_warnings():
        # A model that has not converged is judged by its held-out likelihood like any other.
        warnings.filterwarnings("ignore", "lbfgs failed to converge|.*did not converge")
        rows = training_rows(~held_out & (labels >= 0), labels, np.random.default_rng(seed))
        fitted = _seeded(clone(model), seed).fit(x[rows], labels[rows])
        last = _last_step(fitted)
        probs = np.zeros((int(held_out.sum()), num_classes))
        probs[:, last.classes_] = np.asarray(fitted.predict_proba(x[held_out]), dtype=np.float64)
    return probs, getattr(last, "transition_matrix_", None) is not None, getattr(last, "history_", [])


def training_rows(rows: Mask, labels: Labels, generator: np.random.Generator) -> Labels:
    """Rows that a model is fitted to: at most about ``MOST_TRAINED``, with the same share of each frequent class.

    Args:
        rows: (N,) mask of the rows that may be used.
        labels: (N,) labels.
        generator: Random generator of the sample.
    """
    found = np.flatnonzero(rows)
    if len(found) <= MOST_TRAINED:
        return found
    drawn = generator.permutation(found)
    drawn = drawn[labels[drawn].argsort(kind="stable")]
    sizes = np.bincount(labels[drawn])
    kept = np.maximum(np.ceil(sizes * MOST_TRAINED / len(found)), FEWEST_OF_CLASS)
    place = np.arange(len(drawn)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return np.sort(drawn[place < np.repeat(kept, sizes)])


def _seeded(model: Any, seed: int) -> Any:
    """The model with ``seed`` in place of every ``random_state`` of None."""
    parts = {name: value for name, value in model.get_params().items() if name.split("__")[-1] == "random_state"}
    return model.set_params(**{name: seed for name, value in parts.items() if value is None})


def _last_step(model: Any) -> Any:
    return model[-1] if isinstance(model, Pipeline) else model
