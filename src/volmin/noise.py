"""Simulated label noise: transition matrices, and labels corrupted with them."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from volmin._typing import Array, Labels, Numbers
from volmin.exceptions import InputError
from volmin.io.arrays import read_array
from volmin.transition import validate_transition
from volmin.validation import validate_labels


def symmetric(num_classes: int, rate: float) -> Array:
    """Symmetric noise: with probability ``rate`` a label becomes one of the *other* classes, each equally likely."""
    _check(num_classes, rate)
    T = np.full((num_classes, num_classes), rate / (num_classes - 1))
    np.fill_diagonal(T, 1 - rate)
    return T


def pair(num_classes: int, rate: float) -> Array:
    """Pair noise: with probability ``rate`` a label j becomes the next class, ``T[(j + 1) % C, j] = rate``."""
    _check(num_classes, rate)
    T = (1 - rate) * np.eye(num_classes)
    T[(np.arange(num_classes) + 1) % num_classes, np.arange(num_classes)] += rate
    return T


def asymmetric(num_classes: int, rate: float, seed: int = 0) -> Array:
    """Asymmetric noise: with probability ``rate`` a label becomes another class, with random shares in each column.

    The shares of the other classes are proportional to draws from U(0.1, 1), as in the authors' code.

    Args:
        num_classes: Number of classes C.
        rate: Probability that a label is changed.
        seed: Random seed of the shares.
    """
    _check(num_classes, rate)
    shares = np.random.default_rng(seed).uniform(0.1, 1, (num_classes, num_classes))
    np.fill_diagonal(shares, 0)
    T = rate * shares / shares.sum(axis=0)
    np.fill_diagonal(T, 1 - rate)
    return T


def measured(noisy: Numbers, clean: Numbers, num_classes: int) -> Array:
    """The empirical transition matrix of pairs of labels, (C, C); a class without rows gets column ``e_j``.

    Args:
        noisy: (N,) noisy labels in ``0 .. C-1``.
        clean: (N,) clean labels of the same rows.
        num_classes: Number of classes C.
    """
    noisy, clean = (
        validate_labels(labels, num_classes=num_classes, name=name)
        for name, labels in (("noisy", noisy), ("clean", clean))
    )
    if len(noisy) != len(clean):
        raise InputError(f"noisy and clean must have equal length, but have {len(noisy)} and {len(clean)} labels.")
    joint = np.zeros((num_classes, num_classes))
    np.add.at(joint, (noisy, clean), 1)
    absent = joint.sum(axis=0) == 0
    joint[absent, absent] = 1
    return joint / joint.sum(axis=0)


def parse(text: str, num_classes: int, seed: int = 0) -> Array:
    """The matrix that a noise specification describes.

    Args:
        text: ``clean``, ``symmetric:0.2`` (or ``sym:0.2``), ``pair:0.45``, ``asymmetric:0.3`` (or ``asym:0.3``), or the
            path of an ``.npy`` file with a (C, C) matrix whose columns sum to one.
        num_classes: Number of classes C.
        seed: Random seed of asymmetric noise.
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
    "clean": "no noise (alias: none)",
    "symmetric:RATE": "any other class, equally likely (short: sym:RATE)",
    "pair:RATE": "the next class",
    "asymmetric:RATE": "any other class, with random shares (short: asym:RATE)",
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
    labels: Numbers, T: Numbers, seed: int = 0, *, draw: Literal["vectorised", "authors"] = "vectorised"
) -> Labels:
    """Noisy labels drawn from the columns of T.

    Args:
        labels: (N,) clean labels in ``0 .. C-1``.
        T: (C, C) transition matrix.
        seed: Random seed of the draw.
        draw: ``"authors"`` draws one label at a time with NumPy's legacy generator, which reproduces the labels of the
            VolMinNet code for the same seed; ``"vectorised"`` has the same distribution and is a hundred times faster.
    """
    T = validate_transition(T)
    y = validate_labels(labels, num_classes=len(T))
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


def _check(num_classes: int, rate: float) -> None:
    if not isinstance(num_classes, int | np.integer) or num_classes < 2:
        raise InputError(f"Label noise needs at least 2 classes, a whole number, but num_classes is {num_classes!r}.")
    if not isinstance(rate, int | float | np.integer | np.floating) or not 0 <= rate < 1:
        raise InputError(f"The noise rate must be a number of at least 0 and below 1, but is {rate!r}.")


def _from_file(path: Path, num_classes: int) -> Array:
    if not path.is_file():
        raise InputError(f"There is no transition matrix at {path}.")
    return validate_transition(read_array(path), num_classes)
