"""Options about the spelling of labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from volmin.exceptions import DataError

if TYPE_CHECKING:
    from volmin._typing import AnyArray
    from volmin.data.tables import LabelledTable


@dataclass(frozen=True)
class Spelling:
    """Replaces labels as ``--label-map`` and ``--merge-labels`` say, in this order."""

    merge: bool = False
    map_file: Path | None = None

    def __call__(self, labels: AnyArray) -> AnyArray:
        from volmin.data.label_spelling import map_labels, merging_map, read_label_map

        if self.map_file is not None:
            labels = map_labels(labels, read_label_map(self.map_file))
        return map_labels(labels, merging_map(labels)) if self.merge else labels


def labelled_table(path: Path, label: str | None, ignore: Sequence[str]) -> LabelledTable:
    """The table with its labels; rows may have none."""
    from volmin.data.tables import load_table

    if label is None:
        raise DataError(f"Name the label column of {path} with --label.")
    return load_table(path, label, ignore=ignore, unlabelled=True)
