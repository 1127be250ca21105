"""Simulated crowds with known matrices."""

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from volmin._typing import Array, Labels


@dataclass(frozen=True)
class Crowd:
    matrix: Labels  # (N, M) answers, -1 where there is none
    x: Array
    clean: Labels
    T: Array  # (M, C, C)


def draw(probs: Array, generator: np.random.Generator) -> Labels:
    """A class of each row of (N, C) distributions."""
    return (generator.random((len(probs), 1)) > probs.cumsum(axis=1)[:, :-1]).sum(axis=1)


def random_transition(C: int, generator: np.random.Generator) -> Array:
    """A matrix with diagonal entries between 0.45 and 0.85."""
    T = generator.dirichlet(np.full(C, 0.7), size=C).T
    T[np.arange(C), np.arange(C)] = 0
    diagonal = generator.uniform(0.45, 0.85, size=C)
    return T / T.sum(axis=0) * (1 - diagonal) + np.diag(diagonal)


def simulate(
    num_items=1500, C=3, num_annotators=5, per_item=2, spammers=0, independent=False, separation=1.0, seed=0
) -> Crowd:
    """A crowd without anchor points: no posterior of the clean label exceeds 0.8.

    With ``independent``, each answer starts from a label of its own, as where items may rightly carry several labels.
    """
    generator = np.random.default_rng(seed)
    weights = separation * generator.normal(size=(6, C))
    x = generator.normal(size=(20 * num_items, 6))
    h = np.exp(x @ weights)
    h /= h.sum(axis=1, keepdims=True)
    kept = np.flatnonzero(h.max(axis=1) < 0.8)[:num_items]
    x, h = x[kept], h[kept]
    T = np.stack([random_transition(C, generator) for _ in range(num_annotators)])
    T[:spammers] = generator.dirichlet(np.ones(C), size=spammers)[:, :, None]
    clean = draw(h, generator)
    matrix = np.full((len(x), num_annotators), -1)
    asked: NDArray[np.int64] = generator.random(matrix.shape).argsort(axis=1)[:, :per_item]
    for place in range(per_item):
        seen = draw(h, generator) if independent else clean
        annotator = asked[:, place]
        matrix[np.arange(len(x)), annotator] = draw(T[annotator, :, seen], generator)
    return Crowd(matrix, x, clean, T)


@pytest.fixture(scope="session")
def crowd():
    """The function that simulates a crowd."""
    return simulate
