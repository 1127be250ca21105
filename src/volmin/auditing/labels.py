"""Labels of any hashable kind as numbers, and back."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmin.exceptions import InputError

Codes = NDArray[np.int64]


@dataclass(frozen=True)
class Encoded:
    """Labels as positions in ``classes``: ``classes[codes]`` are the labels."""

    classes: NDArray[Any]
    codes: Codes


def encode(labels: Any, classes: Any = None, num_columns: int | None = None) -> Encoded:
    """Number the labels in the sorted order of the classes.

    Args:
        labels: (N,) labels of any hashable type: a list, an array, a tensor or a series.
        classes: (C,) all classes in their order; by default those that occur, sorted.
        num_columns: how many classes there must be, because probabilities have so many columns. Whole numbers in
            ``0 .. num_columns - 1`` then name columns, so that a class may lack labels.
    """
    values = vector(labels)
    if len(values) == 0:
        raise InputError("There are no labels; give at least a few rows of each class.")
    missing = _missing_rows(values)
    if len(missing):
        raise InputError(
            f"{len(missing)} of {len(values)} labels are missing, the first in row {missing[0]}; leave those rows out."
        )
    known = _sorted_classes(values) if classes is None else vector(classes)
    if num_columns is not None and len(known) != num_columns:
        if classes is not None or not _names_columns(known, num_columns):
            raise InputError(
                f"probs has {num_columns} columns, but there are {len(known)} classes"
                f" ({_shortened(known)}); give classes= in the order of the columns."
            )
        known = np.arange(num_columns)
    position = {value: code for code, value in enumerate(known.tolist())}
    if len(position) != len(known):
        raise InputError("classes must be different from each other.")
    # Each different label is looked up once: there may be millions of rows.
    different, which = _different(values)
    try:
        codes = np.array([position[value] for value in different], dtype=np.int64)
    except KeyError as unknown:
        raise InputError(f"The label {unknown.args[0]!r} is none of the classes {_shortened(known)}.") from None
    return Encoded(known, codes[which])


def vector(labels: Any) -> NDArray[Any]:
    """Labels as a one-dimensional array; what is not a number or a string stays the object that it is."""
    if hasattr(labels, "detach"):
        labels = labels.detach().cpu()
    if hasattr(labels, "to_numpy"):
        labels = labels.to_numpy()
    array = np.asarray(labels) if hasattr(labels, "__array__") else _objects(labels)
    if array.ndim != 1:
        raise InputError(f"labels must be a vector, one label for each row, but have shape {array.shape}.")
    return array


def is_missing(value: Any) -> bool:
    """Whether a value stands for none: None, NaN, and pandas' NA and NaT."""
    return (
        value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and value != value)
    )


def _objects(labels: Iterable[Hashable]) -> NDArray[Any]:
    values = list(labels)
    kinds = {type(value) for value in values}
    if len(kinds) == 1 and kinds <= {str, int, float, bool}:
        return np.asarray(values)
    # Filled one by one, since NumPy would make a matrix of tuples.
    array = np.empty(len(values), dtype=object)
    for row, value in enumerate(values):
        array[row] = value
    return array


def _different(values: NDArray[Any]) -> tuple[list[Any], Codes]:
    """The different labels, and for each row which of them it has."""
    if values.dtype != object:
        different, which = np.unique(values, return_inverse=True)
        return different.tolist(), which
    places: dict[Any, int] = {}
    which = np.fromiter((places.setdefault(value, len(places)) for value in values), np.int64, len(values))
    return list(places), which


def _missing_rows(values: NDArray[Any]) -> Codes:
    if values.dtype == object:
        return np.flatnonzero([is_missing(value) for value in values])
    return np.flatnonzero(values != values)


def _sorted_classes(values: NDArray[Any]) -> NDArray[Any]:
    if values.dtype != object:
        return np.unique(values)
    try:
        different = list(dict.fromkeys(values.tolist()))
    except TypeError as error:
        raise InputError(f"labels must be hashable (text, numbers, tuples): {error}.") from None
    try:
        return _objects(sorted(different))
    except TypeError:
        return _objects(sorted(different, key=lambda value: (type(value).__name__, str(value))))


def _names_columns(known: NDArray[Any], num_columns: int) -> bool:
    return np.issubdtype(known.dtype, np.integer) and known.min() >= 0 and known.max() < num_columns


def _shortened(known: NDArray[Any], most: int = 5) -> str:
    shown = ", ".join(str(value) for value in known[:most])
    return shown + (", …" if len(known) > most else "")
