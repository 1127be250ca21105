"""Conversion of a table of answers of any type to class numbers."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from volmin._typing import AnyArray, Labels
from volmin.crowds.answers import Answers
from volmin.exceptions import InputError


@dataclass(frozen=True)
class EncodedAnswers:
    """Answers as class numbers.

    Attributes:
        classes: (C,) classes in their order.
        annotators: (M,) names of the annotators.
        items: (N,) names of the items; their numbers where they have none.
        answers: The answers.
    """

    classes: AnyArray
    annotators: AnyArray
    items: AnyArray
    answers: Answers


ITEM_COLUMNS = ("row", "item")
"""Names of the column that says which item an answer of a long table is about; one of them is needed."""


def several_annotators(labels: Any) -> bool:
    """Whether labels are those of several annotators: (N, M) values, a table with M columns, or a long table."""
    if is_long_table(labels):
        return True
    shape = getattr(labels, "shape", None)
    if shape is not None:
        return len(shape) >= 2  # more than two are refused by ``encode_matrix``, which names the shape
    return isinstance(labels, list | tuple) and len(labels) > 0 and isinstance(labels[0], list)


def is_long_table(labels: Any) -> bool:
    """Whether labels are a table with one answer per line: columns annotator and label, and row or item."""
    columns = labels.keys() if isinstance(labels, Mapping) else getattr(labels, "columns", None)
    names = set() if columns is None else {str(name) for name in columns}
    return {"annotator", "label"} <= names and any(name in names for name in ITEM_COLUMNS)


def encode_answers(labels: Any, classes: Any = None, num_items: int | None = None) -> EncodedAnswers:
    """Number the classes, annotators and items of labels of several annotators.

    Args:
        labels: (N, M) labels as for ``encode_matrix``, or a table (polars, pandas or a mapping of columns) with the
            columns annotator, label and either row, the number of the item from 0, or item, a name of any type;
            further columns are ignored.
        classes: (C,) all classes in their order; by default those that occur, sorted.
        num_items: Number of items N, if it is known. Rows without an answer then count as items.
    """
    if not is_long_table(labels):
        return encode_matrix(labels, classes)
    if all(name in labels for name in ITEM_COLUMNS):
        raise InputError("The table has a column row and a column item: drop the one that does not name the items.")
    name = "row" if "row" in labels else "item"
    item = column_values(labels[name])
    found = encode_votes(item, column_values(labels["annotator"]), column_values(labels["label"]), classes)
    if name == "item":
        return found
    rows, old = found.items, found.answers
    if rows.dtype.kind not in "iu" or rows[0] < 0:
        raise InputError("The column row must hold numbers of rows from 0; call it item if it holds names.")
    last = int(rows[-1])
    if num_items is not None and last >= num_items:
        raise InputError(f"There is an answer to row {last}, but there are {num_items} rows of features.")
    count = last + 1 if num_items is None else num_items
    item = rows[old.item].astype(np.int64)
    answers = Answers(item, old.annotator, old.label, count, old.num_annotators, old.num_classes)
    return EncodedAnswers(found.classes, found.annotators, np.arange(count), answers)


def column_values(column: Any) -> AnyArray:
    """A column of a table as an array; whole numbers that became floats beside missing values are integers again."""
    values = column.to_numpy() if hasattr(column, "to_numpy") else np.asarray(column)
    if values.dtype.kind == "f" and (whole := values[values == values]).size and (whole == np.round(whole)).all():
        return np.array([None if value != value else int(value) for value in values.tolist()], dtype=object)
    return values


def encode_groups(labels: AnyArray, groups: Any, classes: Any = None) -> EncodedAnswers:
    """One label per item, of which each belongs to a group, such as a source, a hospital or a year."""
    group = column_values(groups)
    if group.shape != labels.shape:
        raise InputError(f"groups must hold the group of each of {len(labels)} labels, but have shape {group.shape}.")
    return encode_votes(np.arange(len(labels)), group, labels, classes)


def encode_matrix(labels: Any, classes: Any = None) -> EncodedAnswers:
    """Number the classes of (N, M) labels.

    Args:
        labels: (N, M) labels, or a table of pandas or polars with a column for each annotator, whose names are kept.
            None, NaN, an empty text or the number -1 mean that an annotator gave no label.
        classes: (C,) all classes in their order; by default those that occur, sorted.
    """
    names = getattr(labels, "columns", None)
    if hasattr(labels, "detach"):
        labels = labels.detach().cpu()
    matrix = labels.to_numpy() if hasattr(labels, "to_numpy") else _as_matrix(labels)
    if matrix.ndim != 2 or matrix.size == 0:
        raise InputError(
            f"labels of several annotators must be a non-empty (N, M) array, but have shape {matrix.shape}."
        )
    annotators = np.arange(matrix.shape[1]) if names is None else np.array([str(name) for name in names])
    item, annotator = np.nonzero(_given(matrix))
    values = matrix[item, annotator]
    if len(values) == 0:
        raise InputError("There is no answer: all labels are missing (None, NaN, empty or -1).")
    if values.dtype.kind == "f" and np.isinf(values).any():
        raise InputError("Labels must not be infinite; use None, NaN or -1 where an annotator gave none.")
    if values.dtype.kind == "f" and (values == values.astype(np.int64)).all():
        values = values.astype(np.int64)  # whole numbers became floats beside NaN
    known, codes = encode_values(values, classes)
    answers = Answers(item, annotator, codes, *_shape(matrix), len(known))
    return EncodedAnswers(known, annotators, np.arange(len(matrix)), answers)


def encode_votes(item: Any, annotator: Any, label: Any, classes: Any = None) -> EncodedAnswers:
    """Number the items, annotators and classes of a long table.

    Args:
        item: (A,) item of each answer.
        annotator: (A,) annotator of each answer.
        label: (A,) label of each answer; an answer without a label is left out.
        classes: (C,) all classes in their order; by default those that occur, sorted.
    """
    columns = [np.asarray(column) for column in (item, annotator, label)]
    if len({len(column) for column in columns}) > 1 or any(column.ndim != 1 for column in columns):
        raise InputError(
            f"item, annotator and label must be of one length, but have {[len(c) for c in columns]} entries."
        )
    for name, column in zip(("item", "annotator"), columns, strict=False):
        if not (given := _given(column)).all():
            raise InputError(
                f"The answer in row {int(np.flatnonzero(~given)[0])} has no {name}: complete it or drop it."
            )
    items, of_item = encode_values(columns[0])
    annotators, of_annotator = encode_values(columns[1])
    kept = _given(columns[2])
    if not kept.any():
        raise InputError("There is no answer: all labels are missing.")
    known, codes = encode_values(columns[2][kept], classes)
    of_item, of_annotator = of_item[kept], of_annotator[kept]
    _refuse_repetitions(of_item, of_annotator, codes, items, annotators)
    answers = Answers(of_item, of_annotator, codes, len(items), len(annotators), len(known))
    return EncodedAnswers(known, annotators, items, answers)


def encode_values(values: AnyArray, classes: Any = None) -> tuple[AnyArray, Labels]:
    """The distinct values in their order, or ``classes``, and the position of each value among them."""
    if classes is None and values.dtype != object:
        known, codes = np.unique(values, return_inverse=True)
        return known, codes.astype(np.int64)
    places: dict[Hashable, int] = {}
    which = np.fromiter((places.setdefault(value, len(places)) for value in values.tolist()), np.int64, len(values))
    known = list(places) if classes is None else list(np.asarray(classes).tolist())
    if classes is None:
        try:
            known = sorted(known)  # pyright: ignore[reportArgumentType]
        except TypeError:
            known = sorted(known, key=lambda value: (type(value).__name__, str(value)))
    position = {value: code for code, value in enumerate(known)}
    if unknown := [value for value in places if value not in position]:
        raise InputError(f"The label {unknown[0]!r} is not one of the classes {', '.join(map(str, known[:5]))}.")
    codes = np.array([position[value] for value in places], dtype=np.int64)[which]
    found = np.empty(len(known), dtype=object)
    found[:] = known
    plain = np.array(known)
    return (plain if plain.shape == found.shape and plain.dtype.kind in "iufbU" else found), codes


def _as_matrix(labels: Any) -> AnyArray:
    if hasattr(labels, "__array__"):
        return np.asarray(labels)
    lengths = {len(row) for row in labels}
    if len(lengths) != 1:
        raise InputError(
            f"Each item must have an entry for every annotator, but rows have lengths {sorted(lengths)[:5]}."
        )
    matrix = np.empty((len(labels), lengths.pop()), dtype=object)
    for number, row in enumerate(labels):
        matrix[number] = row
    return matrix


def _given(values: AnyArray) -> Any:
    """Which values are answers: neither None, NaN, an empty text nor the number -1."""
    kind = values.dtype.kind
    if kind in "biu":
        negative = values < 0 if kind == "i" else np.zeros(values.shape, dtype=bool)
        if (values[negative] < -1).any():
            raise InputError(f"Labels must not be below -1 (no label), but the smallest is {values.min()}.")
        return ~negative
    if kind == "f":
        return (values == values) & (values != -1)
    if kind == "U":
        return np.char.strip(values) != ""
    flat = (_is_answer(value) for value in values.ravel().tolist())
    return np.fromiter(flat, bool, values.size).reshape(values.shape)


def _is_answer(value: Any) -> bool:
    # pandas.NA comes first, because comparing it gives no truth value.
    if type(value).__name__ in ("NAType", "NaTType") or value is None or value != value:
        return False
    return value.strip() != "" if isinstance(value, str) else value != -1


def _shape(matrix: AnyArray) -> tuple[int, int]:
    return matrix.shape[0], matrix.shape[1]


def _refuse_repetitions(item: Labels, annotator: Labels, label: Labels, items: AnyArray, annotators: AnyArray) -> None:
    """Raise an ``InputError`` if an annotator answered an item twice."""
    order = np.lexsort((annotator, item))
    same = (np.diff(item[order]) == 0) & (np.diff(annotator[order]) == 0)
    if same.any():
        first = order[int(same.argmax())]
        raise InputError(
            f"{int(same.sum())} answers repeat an annotator and an item, the first of {annotators[annotator[first]]!s}"
            f" to {items[item[first]]!s}: keep one of them, e.g. the last."
        )
