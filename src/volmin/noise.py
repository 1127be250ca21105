"""Label noise to order: transition matrices, and labels corrupted with them."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from volmin.exceptions import InputError
from volmin.io.arrays import read_array
from volmin.transition import validate_transition

Matrix = NDArray[np.float64]


def symmetric(num_classes: int, rate: float) -> Matrix:
    """A label stays with probability ``1 - rate`` and else becomes any of the *other* classes alike."""
    _check(num_classes, rate)
    T = np.full((num_classes, num_classes), rate / (num_classes - 1))
    np.fill_diagonal(T, 1 - rate)
    return T


def pair(num_classes: int, rate: float) -> Matrix:
    """A label j becomes its neighbour ``(j + 1) % C`` with probability ``rate``: ``T[(j + 1) % C, j] = rate``."""
    _check(num_classes, rate)
    T = (1 - rate) * np.eye(num_classes)
    T[(np.arange(num_classes) + 1) % num_classes, np.arange(num_classes)] += rate
    return T


def asymmetric(num_classes: int, rate: float, seed: int = 0) -> Matrix:
    """A label stays with probability ``1 - rate``; where else it goes is drawn, column by column, from ``seed``.

    The shares of the other classes are proportional to draws from U(0.1, 1), as in the authors' code.
    """
    _check(num_classes, rate)
    shares = np.random.default_rng(seed).uniform(0.1, 1, (num_classes, num_classes))
    np.fill_diagonal(shares, 0)
    T = rate * shares / shares.sum(axis=0)
    np.fill_diagonal(T, 1 - rate)
    return T


def measured(noisy: ArrayLike, clean: ArrayLike, num_classes: int) -> Matrix:
    """The matrix that pairs of labels show: the share of each noisy label among the rows of a clean class.

    A class without rows keeps its label.
    """
    noisy, clean = _checked_labels(noisy, num_classes, "noisy"), _checked_labels(clean, num_classes, "clean")
    if len(noisy) != len(clean):
        raise InputError(f"noisy and clean must be pairs of labels, but hold {len(noisy)} and {len(clean)}.")
    joint = np.zeros((num_classes, num_classes))
    np.add.at(joint, (noisy, clean), 1)
    absent = joint.sum(axis=0) == 0
    joint[absent, absent] = 1
    return joint / joint.sum(axis=0)


def parse(text: str, num_classes: int, seed: int = 0) -> Matrix:
    """The matrix that a noise specification describes.

    ``clean``, ``symmetric:0.2`` (or ``sym:0.2``), ``pair:0.45``, ``asymmetric:0.3`` (or ``asym:0.3``), or the path of
    an ``.npy`` file with a (C, C) matrix whose columns sum to one.
    """
    if text.endswith(".npy"):
        return _from_file(Path(text), num_classes)
    kind, _, rate_text = text.partition(":")
    if text in NONE:
        return np.eye(num_classes)
    try:
        rate = float(rate_text)
    except ValueError:
        rate = np.nan
    if kind not in _KINDS or np.isnan(rate):
        raise InputError(f"Unknown noise {text!r}. Give one of: {', '.join(SPECIFICATIONS)}.")
    if kind in ("asymmetric", "asym"):
        return asymmetric(num_classes, rate, seed)
    return _KINDS[kind](num_classes, rate)


NONE = ("clean", "none")
SPECIFICATIONS = {
    "clean": "labels stay as they are (or: none)",
    "symmetric:RATE": "to any other class alike (short: sym:RATE)",
    "pair:RATE": "to the next class",
    "asymmetric:RATE": "to other classes by shares drawn from the seed (short: asym:RATE)",
    "FILE.npy": "any (C, C) matrix T[i, j] = P(noisy = i | clean = j)",
}
_KINDS = {
    "symmetric": symmetric,
    "sym": symmetric,
    "pair": pair,
    "asymmetric": asymmetric,
    "asym": asymmetric,
}


def corrupt(
    labels: ArrayLike, T: ArrayLike, seed: int = 0, *, draw: Literal["vectorised", "authors"] = "vectorised"
) -> NDArray[np.int64]:
    """Noisy labels drawn from the columns of T.

    Args:
        labels: (N,) clean labels in ``0 .. C-1``.
        T: (C, C) transition matrix.
        seed: of the draw.
        draw: ``"authors"`` draws label after label with NumPy's legacy generator, which gives the very labels of the
            VolMinNet code for the same seed; ``"vectorised"`` has the same law and is a hundred times faster.
    """
    T = validate_transition(T)
    y = _checked_labels(labels, len(T), "labels")
    if draw == "authors":
        generator = np.random.RandomState(seed)
        return np.array([generator.multinomial(1, T[:, clean]).argmax() for clean in y], dtype=np.int64)
    if draw != "vectorised":
        raise InputError(f'draw must be "vectorised" or "authors", but is {draw!r}.')
    uniform = np.random.default_rng(seed).random(len(y))
    noisy = np.empty_like(y)
    for clean in range(len(T)):
        here = y == clean
        noisy[here] = np.searchsorted(T[:, clean].cumsum()[:-1], uniform[here], side="right")
    return noisy


def _checked_labels(labels: ArrayLike, num_classes: int, name: str) -> NDArray[np.int64]:
    y = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if y.ndim != 1 or not (np.issubdtype(y.dtype, np.integer) or y.dtype == bool or not y.size):
        raise InputError(f"{name} must be a vector of integers, but have shape {y.shape} and type {y.dtype}.")
    if len(y) and not (y.min() >= 0 and y.max() < num_classes):
        raise InputError(f"{name} must lie in 0..{num_classes - 1}, but span {y.min()}..{y.max()}.")
    return y.astype(np.int64)


def _check(num_classes: int, rate: float) -> None:
    if num_classes < 2:
        raise InputError(f"Label noise needs at least 2 classes, but num_classes is {num_classes}.")
    if not 0 <= rate < 1:
        raise InputError(f"The noise rate must be at least 0 and below 1, but is {rate:g}.")


def _from_file(path: Path, num_classes: int) -> Matrix:
    if not path.is_file():
        raise InputError(f"There is no transition matrix at {path}.")
    return validate_transition(read_array(path), num_classes)
