"""Conversion of labels of any hashable type to class numbers."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from volmin._typing import AnyArray, Labels
from volmin.exceptions import InputError


@dataclass(frozen=True)
class Encoded:
    """Labels as positions in ``classes``: ``classes[codes]`` are the labels; -1 for rows without one."""

    classes: AnyArray
    codes: Labels


def encode(labels: Any, classes: Any = None, num_columns: int | None = None, *, unlabelled: bool = False) -> Encoded:
    """Number the labels in the sorted order of the classes.

    Args:
        labels: (N,) labels of any hashable type: a list, an array, a tensor or a series.
        classes: (C,) all classes in their order; by default those that occur, sorted.
        num_columns: Number of columns of the probabilities, which must equal the number of classes. Integer labels in
            ``0 .. num_columns - 1`` are taken as column numbers, so that a class may have no label.
        unlabelled: Whether labels may be missing (None or NaN); it is an error otherwise.
    """
    values = vector(labels)
    if len(values) == 0:
        raise InputError("labels is empty; give at least a few rows of each class.")
    missing = _missing_rows(values)
    if len(missing) == len(values):
        raise InputError(f"All {len(values)} labels are missing; give at least a few rows of each class.")
    if len(missing) and not unlabelled:
        raise InputError(
            f"{len(missing)} of {len(values)} labels are missing, the first in row {missing[0]}; leave those rows out."
        )
    if len(missing):
        known = np.delete(np.arange(len(values)), missing)
        found = encode(_narrowed(values[known]), classes, num_columns)
        codes = np.full(len(values), -1)
        codes[known] = found.codes
        return Encoded(found.classes, codes)
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
        raise InputError("classes must be distinct.")
    # Only distinct labels are looked up, since there may be millions of rows.
    distinct, which = _distinct(values)
    try:
        codes = np.array([position[value] for value in distinct], dtype=np.int64)
    except KeyError as unknown:
        raise InputError(f"The label {unknown.args[0]!r} is not one of the classes {_shortened(known)}.") from None
    return Encoded(known, codes[which])


def vector(labels: Any) -> AnyArray:
    """Labels as a one-dimensional array; labels that are neither numbers nor strings stay objects."""
    if hasattr(labels, "detach"):
        labels = labels.detach().cpu()
    if hasattr(labels, "to_numpy"):
        labels = labels.to_numpy()
    array = np.asarray(labels) if hasattr(labels, "__array__") else _objects(labels)
    if array.ndim != 1:
        raise InputError(f"labels must be a vector, one label for each row, but have shape {array.shape}.")
    return array


def is_missing(value: Any) -> bool:
    """Whether a value is None, NaN, or pandas' NA or NaT."""
    return (
        value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and value != value)
    )


def _narrowed(values: AnyArray) -> AnyArray:
    """Labels in the type that they would have without missing ones, which make text objects and integers floats."""
    if values.dtype == object:
        return _objects(values.tolist())
    whole = values.dtype.kind == "f" and (values == np.round(values)).all() and (np.abs(values) < 2**53).all()
    return values.astype(np.int64) if whole else values


def _objects(labels: Iterable[Hashable]) -> AnyArray:
    values = list(labels)
    kinds = {type(value) for value in values}
    if len(kinds) == 1 and kinds <= {str, int, float, bool}:
        return np.asarray(values)
    # Filled one by one, since np.array would turn tuples into a matrix.
    array = np.empty(len(values), dtype=object)
    for row, value in enumerate(values):
        array[row] = value
    return array


def _distinct(values: AnyArray) -> tuple[list[Any], Labels]:
    """The distinct labels, and the position of each row's label among them."""
    if values.dtype != object:
        distinct, which = np.unique(values, return_inverse=True)
        return distinct.tolist(), which
    places: dict[Any, int] = {}
    which = np.fromiter((places.setdefault(value, len(places)) for value in values), np.int64, len(values))
    return list(places), which


def _missing_rows(values: AnyArray) -> Labels:
    if values.dtype == object:
        return np.flatnonzero([is_missing(value) for value in values])
    return np.flatnonzero(values != values)


def _sorted_classes(values: AnyArray) -> AnyArray:
    if values.dtype != object:
        return np.unique(values)
    try:
        distinct = list(dict.fromkeys(values.tolist()))
    except TypeError as error:
        raise InputError(f"labels must be hashable (text, numbers, tuples): {error}.") from None
    try:
        return _objects(sorted(distinct))
    except TypeError:
        return _objects(sorted(distinct, key=lambda value: (type(value).__name__, str(value))))


def _names_columns(known: AnyArray, num_columns: int) -> bool:
    return np.issubdtype(known.dtype, np.integer) and known.min() >= 0 and known.max() < num_columns


def _shortened(known: AnyArray, most: int = 5) -> str:
    shown = ", ".join(str(value) for value in known[:most])
    return shown + (", …" if len(known) > most else "")
