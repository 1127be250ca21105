"""Crowds with known clean labels: two files of real answers, and simulated ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from volmin._typing import Array, Labels


@dataclass(frozen=True)
class Crowd:
    """Answers with the truth, which no tool sees.

    Attributes:
        answers: (N, M) answers, -1 where there is none.
        x: (N, D) features.
        clean: (N,) clean labels.
        T: (M, C, C) true matrices; None if only counts are known.
        x_test: Features of test items; None without any.
        clean_test: Clean labels of test items.
        spammers: Numbers of the annotators who answer without looking.
        posteriors: (N, C) probabilities of the clean label given the features; None if they are not known.
    """

    answers: Labels
    x: Array
    clean: Labels
    T: Array | None = None
    x_test: Array | None = None
    clean_test: Labels | None = None
    spammers: tuple[int, ...] = ()
    posteriors: Array | None = None

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return int(max(self.answers.max(), self.clean.max())) + 1


def simulated(
    per_item: int, annotators: int, spammers: int, C: int, num_items: int, seed: int, copies: bool = False
) -> Crowd:
    """A crowd without anchor points: no posterior of the clean label exceeds 0.8.

    Diagonal entries of T lie between 0.45 and 0.85; spammers answer alike whatever the class. With ``copies``, the
    first annotator copies the answers of the last one wherever both answer.
    """
    generator = np.random.default_rng(seed)
    weights = generator.normal(size=(6, C))
    x = generator.normal(size=(20 * num_items, 6))
    h = np.exp(x @ weights)
    h /= h.sum(axis=1, keepdims=True)
    kept = np.flatnonzero(h.max(axis=1) < 0.8)[:num_items]
    x, h = x[kept], h[kept]
    T = np.stack([_transition(C, generator) for _ in range(annotators)])
    T[:spammers] = generator.dirichlet(np.ones(C), size=spammers)[:, :, None]
    clean = _draw(h, generator)
    answers = np.full((len(x), annotators), -1)
    asked = generator.random(answers.shape).argsort(axis=1)[:, :per_item]
    for annotator in asked.T:
        answers[np.arange(len(x)), annotator] = _draw(T[annotator, :, clean], generator)
    if copies:
        both = (answers[:, 0] >= 0) & (answers[:, -1] >= 0)
        answers[both, 0] = answers[both, -1]
    return Crowd(answers, x, clean, None if copies else T, spammers=tuple(range(spammers)), posteriors=h)


def kinds(num_items: int, seed: int, spammers: int = 0) -> Crowd:
    """Items of 40 kinds that the features name, with one answer each, by 5 annotators who confuse all classes.

    A classifier of kinds can fit any T equally well, and no entry of a T is close to zero, so that the likelihood does
    not determine T; the volume does. Spammers answer alike whatever the class.
    """
    C, generator = 3, np.random.default_rng(seed)
    h = generator.dirichlet(np.full(C, 0.5), size=4000)
    h = h[h.max(axis=1) < 0.8][:40]
    T = []
    for _ in range(5):
        diagonal, wrong = generator.uniform(0.45, 0.65, size=C), generator.dirichlet(np.full(C, 20), size=C).T
        np.fill_diagonal(wrong, 0)
        T.append(wrong / wrong.sum(axis=0) * (1 - diagonal) + np.diag(diagonal))
    for m in range(spammers):
        T[m] = np.tile(generator.dirichlet(np.full(C, 5))[:, None], C)
    kind = np.arange(num_items) % len(h)
    clean, annotator = _draw(h[kind], generator), generator.integers(5, size=num_items)
    answers = np.full((num_items, 5), -1)
    answers[np.arange(num_items), annotator] = _draw(np.stack(T)[annotator, :, clean], generator)
    return Crowd(answers, np.eye(len(h))[kind], clean, np.stack(T), spammers=tuple(range(spammers)), posteriors=h[kind])


def _transition(C: int, generator: np.random.Generator) -> Array:
    T = generator.dirichlet(np.full(C, 0.7), size=C).T
    T[np.arange(C), np.arange(C)] = 0
    diagonal = generator.uniform(0.45, 0.85, size=C)
    return T / T.sum(axis=0) * (1 - diagonal) + np.diag(diagonal)


def _draw(probs: Array, generator: np.random.Generator) -> Labels:
    return (generator.random((len(probs), 1)) > probs.cumsum(axis=1)[:, :-1]).sum(axis=1)


def _labelme(folder: Path, seed: int) -> Crowd:
    with np.load(folder / "annotators-labelme.npz") as content:
        data = {name: content[name] for name in content.files}
    names = ("answers", "x_train", "clean_train", "x_test", "clean_test")
    answers, x, clean, x_test, clean_test = (data[name] for name in names)
    return Crowd(answers.astype(np.int64), x, clean.astype(np.int64), None, x_test, clean_test.astype(np.int64))


def _cifar(folder: Path, seed: int) -> Crowd:
    with np.load(folder / "embeddings-cifar10n.npz") as content:
        answers = np.stack([content[f"random_label{k}"] for k in (1, 2, 3)], axis=1).astype(np.int64)
        clean, x = content["clean_label"].astype(np.int64), content["x"].astype(np.float32)
        return Crowd(answers, x, clean, None, content["x_test"].astype(np.float32), content["y_test"].astype(np.int64))


Load = Callable[[Path, int], Crowd]
"""Function from the folder of the files and a seed to a crowd."""


def _made(
    per_item: int, annotators: int, spammers: int = 0, C: int = 3, num_items: int = 2000, copies: bool = False
) -> Load:
    return lambda folder, seed: simulated(per_item, annotators, spammers, C, num_items, seed, copies)


SETS: dict[str, Load] = {
    "labelme": partial(_labelme),
    "cifar10n": partial(_cifar),
    "made-5-annotators-1-answer": _made(1, 5),
    "made-5-annotators-2-answers": _made(2, 5),
    "made-5-annotators-2-answers-spammer": _made(2, 5, 1),
    "made-5-annotators-3-answers-copy": _made(3, 5, copies=True),
    "made-40-kinds-1-answer": lambda folder, seed: kinds(20_000, seed),
    "made-40-kinds-1-answer-spammer": lambda folder, seed: kinds(20_000, seed, spammers=1),
    "made-20-annotators-3-answers-spammers": _made(3, 20, 4, C=4),
    "made-50-annotators-5-answers": _made(5, 50, 5, C=4),
}

REAL = ("labelme", "cifar10n")
"""Sets that are the same for every seed."""
