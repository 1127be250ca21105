"""Options about labels, and what is unusual about them."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from volmin._typing import AnyArray


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


def show_labels(labels: AnyArray, features: Any, unlabelled: int, *, merged: bool) -> None:
    """Print what is unusual about the labels: missing ones, spellings, columns that give them away."""
    import polars as pl

    from volmin.cli.terminal import say
    from volmin.data.label_spelling import label_variants
    from volmin.data.tables import label_leaks

    if unlabelled:
        say(f"{unlabelled:,} rows have no label and are left aside.")
    variants = [] if merged else label_variants(labels)
    for group in variants[:5]:
        say("Spelled differently: " + ", ".join(f"{name!r} ({count:,})" for name, count in group))
    if variants:
        say("These count as different classes; to merge them, add --merge-labels.")
    for leak in label_leaks(features, labels) if isinstance(features, pl.DataFrame) else ():
        say(
            f"The column {leak.column} alone predicts {leak.accuracy:.1%} of the labels: if it was derived from them, "
            f"it hides wrong labels; leave it out with --ignore {shlex.quote(leak.column)}."
        )
