"""The labels of an audit as tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from volmin.io.spreadsheets import write_csv

if TYPE_CHECKING:
    from volmin.auditing.result import AuditResult

BY_READING = ("probability_wrong_class_dependent", "probability_wrong_one_right_label")
"""Columns of ``labels.parquet`` with the probabilities under the two readings."""


def row_table(result: AuditResult, fdr: float | None) -> pl.DataFrame:
    """One line per row: row, given, suggested, probability_wrong, flagged; ``fdr`` as in ``AuditResult.issues``."""
    classes = _class_names(result)
    flagged = np.zeros(len(result), dtype=bool)
    flagged[result.issues(fdr)] = True
    return pl.DataFrame(
        {
            "row": np.arange(len(result)),
            "given": classes.gather(pl.Series(result.codes).replace(-1, None)),
            "suggested": classes.gather(result.suggested_codes),
            "probability_wrong": pl.Series(1 - result.quality, nan_to_null=True),
            "flagged": flagged,
        }
    )


def suggestions(result: AuditResult) -> pl.DataFrame:
    """One line per row without a label: row, suggested, probability."""
    rows = np.flatnonzero(result.codes < 0)
    suggested = _class_names(result).gather(result.suggested_codes[rows])
    return pl.DataFrame({"row": rows, "suggested": suggested, "probability": result.certainty})


def label_table(result: AuditResult, names: Sequence[Any] | None, fdr: float | None) -> pl.DataFrame:
    """One line per label, with the labels as text, since they may be of any type."""
    classes = pl.Series([str(name) for name in result.classes])
    table = result.frame(fdr).with_columns(
        given=classes.gather(pl.Series(result.codes).replace(-1, None)),
        suggested=classes.gather(result.suggested_codes),
    )
    if len(result.certainty):
        certainty = np.full(len(result), np.nan)
        certainty[result.codes < 0] = result.certainty
        table = table.with_columns(certainty=pl.Series(certainty, nan_to_null=True))
    if result.weights is not None:
        table = table.with_columns(weight=result.weights)
    if result.suspicion is not None:
        table = table.with_columns(suspicion=result.suspicion)
    if result.qualities is not None:
        table = table.with_columns(
            pl.Series(name, 1 - column) for name, column in zip(BY_READING, result.qualities.T, strict=True)
        )
    return table if names is None else table.with_columns(name=pl.Series([str(name) for name in names]))


def write_suggestions(result: AuditResult, path: Path, names: Sequence[Any] | None) -> None:
    """Suggestions for rows without a label, as decisions to fill in; no file where every row has one."""
    path.unlink(missing_ok=True)
    found = suggestions(result)
    if not found.height:
        return
    header = ["row", "given", "suggested", "probability", *(["name"] if names is not None else [])]
    rows = (
        (row, "", suggested, f"{probability:.4f}", *([names[row]] if names is not None else []))
        for row, suggested, probability in found.iter_rows()
    )
    write_csv(path, header, rows)


def _class_names(result: AuditResult) -> pl.Series:
    """(C,) classes; those that are neither numbers nor text as text."""
    plain = result.classes.dtype != object
    return pl.Series(result.classes if plain else [str(name) for name in result.classes])
