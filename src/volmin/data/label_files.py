"""Files of noisy labels: arrays, columns of tables, and the label sets of CIFAR-N."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from volmin._typing import AnyArray, Labels
from volmin.data.dataset import class_numbers
from volmin.data.tables import SUFFIXES as TABLE_SUFFIXES
from volmin.data.tables import check_column, column_labels, read_table
from volmin.exceptions import DataError
from volmin.io.arrays import read_array

SUFFIXES = (".npy", ".pt", *TABLE_SUFFIXES)
NO_LABEL = -1
"""Class number of a row without a label."""


def find_labels(text: str) -> tuple[Path, str | None]:
    """Split ``FILE`` or ``FILE:KEY`` into the path of an existing file, whose name may contain a colon, and the key."""
    whole = Path(text)
    head, _, key = text.rpartition(":")
    path, key = (Path(head), key) if head and not whole.is_file() and Path(head).is_file() else (whole, None)
    if not path.is_file():
        raise DataError(f"There is no label file at {text}.")
    if path.suffix.lower() not in SUFFIXES:
        raise DataError(f"{path} is not a supported label file: its name must end in {', '.join(SUFFIXES)}.")
    return path, key


def read_labels(path: Path, key: str | None = None) -> AnyArray:
    """Read (N,) labels; the key names a column of a table or a label set of a ``.pt`` file."""
    if path.suffix.lower() == ".npy":
        return _vector(read_array(path), path)
    if path.suffix.lower() == ".pt":
        return _vector(_choose(read_label_sets(path), key, path), path)
    frame = read_table(path)
    if key is None and frame.width > 1:
        raise DataError(f"Name the label column of {path} ({path}:COLUMN). It has: {', '.join(frame.columns)}.")
    check_column(frame, key or frame.columns[0], path)
    return column_labels(frame[key or frame.columns[0]], path)


def number_labels(labels: AnyArray, classes: tuple[Any, ...], count: int, path: str | Path) -> Labels:
    """Convert labels, given as class numbers or names, to class numbers; rows without a label keep ``NO_LABEL``.

    Args:
        labels: (N,) labels of a file.
        classes: (C,) names of the classes.
        count: Number of rows of the training part.
        path: File of the labels, for error messages.
    """
    if len(labels) != count:
        raise DataError(f"{path} holds {len(labels)} labels, but the training part has {count} rows.")
    if labels.dtype.kind in "iu":
        without = labels == NO_LABEL
        if without.all():
            raise DataError(f"{path} holds no label: all of its numbers are {NO_LABEL}.")
        return np.where(without, NO_LABEL, class_numbers(np.where(without, 0, labels), count, len(classes), path))
    numbers = {str(name): number for number, name in enumerate(classes)}
    unknown = sorted({str(label) for label in labels.tolist()} - set(numbers))
    if unknown:
        raise DataError(
            f"{path} holds labels that are not classes: {', '.join(map(repr, unknown[:5]))}. "
            f"The classes are: {', '.join(map(str, classes[:20]))}."
        )
    return np.array([numbers[str(label)] for label in labels.tolist()], np.int64)


def read_label_sets(path: Path) -> Mapping[str, Any]:
    """Read the label sets of a ``.pt`` file, as CIFAR-N has them. Only containers and arrays are unpickled."""
    array = np.zeros(1, np.int64)
    reconstruct: Any = array.__reduce__()[0]
    scalar: Any = array[0].__reduce__()[0]
    kinds = {type(np.dtype(kind)) for kind in (bool, "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8")}
    # NumPy 2 moved the functions that rebuild arrays; files of older versions name the old module.
    places = [(reconstruct, "numpy.core.multiarray._reconstruct"), (scalar, "numpy.core.multiarray.scalar")]
    try:
        with torch.serialization.safe_globals([reconstruct, scalar, *places, np.ndarray, np.dtype, *kinds]):
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged pickle can raise anything
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise DataError(f"{path} cannot be read safely as label sets ({reason}).") from None
    return content if isinstance(content, dict) else {"labels": content}


def _choose(sets: Mapping[str, Any], key: str | None, path: Path) -> Any:
    if key is None and len(sets) == 1:
        return next(iter(sets.values()))
    if key is None or key not in sets:
        problem = "Name a label set" if key is None else f"There is no label set {key!r}"
        raise DataError(f"{problem} ({path}:KEY). The file has: {', '.join(map(str, sets))}.")
    return sets[key]


def _vector(values: Any, path: Path) -> AnyArray:
    labels = np.asarray(values)
    if labels.ndim != 1 or labels.dtype.kind not in "biufU" or not len(labels):
        raise DataError(f"{path} must hold one label per row, but holds {labels.dtype} of shape {labels.shape}.")
    if labels.dtype.kind == "f" and (labels == np.floor(labels)).all():
        return labels.astype(np.int64)
    return labels
