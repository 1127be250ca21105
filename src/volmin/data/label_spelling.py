"""Labels that differ only in spelling, and maps from labels to others."""

from __future__ import annotations

import json
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from volmin._typing import AnyArray
from volmin.exceptions import DataError


def label_variants(labels: Iterable[Any]) -> list[list[tuple[str, int]]]:
    """Groups of labels that are equal up to case, spaces and Unicode form, with their numbers of rows.

    The most frequent spelling of a group comes first, and the largest group first. Labels that are not text have one
    spelling.
    """
    counts = Counter(label for label in _plain(labels) if isinstance(label, str))
    groups: dict[str, list[tuple[str, int]]] = {}
    for label, count in counts.items():
        groups.setdefault(_folded(label), []).append((label, count))
    several = [sorted(group, key=lambda part: (-part[1], part[0])) for group in groups.values() if len(group) > 1]
    return sorted(several, key=lambda group: (-sum(count for _, count in group), group[0][0]))


def merging_map(labels: Iterable[Any]) -> dict[str, str]:
    """Map from each less frequent spelling of a label to the most frequent one."""
    return {label: group[0][0] for group in label_variants(labels) for label, _ in group[1:]}


def map_labels(labels: AnyArray, mapping: Mapping[str, str]) -> AnyArray:
    """(N,) labels with those in ``mapping`` replaced; keys are compared with the labels as text."""
    if not mapping:
        return labels
    distinct, which = np.unique(labels, return_inverse=True)
    found = [mapping.get(str(label), label) for label in distinct.tolist()]
    if all(type(new) is type(old) for new, old in zip(found, distinct.tolist(), strict=True)):
        return np.array(found)[which]
    return np.array([str(label) for label in found])[which]


def read_label_map(path: str | Path) -> dict[str, str]:
    """Read a map of labels: a JSON object, or a table whose first two columns are the label and what replaces it."""
    path = Path(path)
    if not path.is_file():
        raise DataError(f"There is no map of labels at {path}.")
    if path.suffix.lower() == ".json":
        try:
            content = json.loads(path.read_text("utf-8"))
        except ValueError as error:
            raise DataError(f"{path} is not valid JSON: {error}.") from None
        plain = isinstance(content, dict) and all(isinstance(new, str | int | float) for new in content.values())
        if not plain:
            raise DataError(f"{path} must hold one JSON object from labels to labels.")
        return {str(old): str(new) for old, new in content.items()}
    from volmin.data.tables import read_cells

    frame, _ = read_cells(path)
    if frame.width < 2:
        raise DataError(f"{path} must have two columns, a label and what replaces it.")
    pairs = [(old, new) for old, new, *_ in frame.iter_rows() if old is not None and new is not None]
    if len(dict(pairs)) < len(pairs):
        raise DataError(f"{path} maps a label twice.")
    return dict(pairs)


def _plain(labels: Iterable[Any]) -> list[Any]:
    return labels.tolist() if isinstance(labels, np.ndarray) else list(labels)


def _folded(label: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", label).casefold().split())
