"""Decisions about flagged labels, and the labels corrected by them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl

from volmin._typing import AnyArray, Labels, Mask
from volmin.auditing.labels import encode
from volmin.data.tables import as_frame, read_cells
from volmin.exceptions import DataError, InputError
from volmin.io.spreadsheets import spreadsheet_safe

DECISIONS = ("wrong", "right", "unsure")


@dataclass(frozen=True)
class Corrected:
    """Labels corrected by decisions.

    Attributes:
        labels: (N,) labels, with those that are marked as wrong replaced.
        rows: Rows whose label changed, ascending.
        donors: (N,) for each row a row whose original label is its new one: the row itself, unless it changed.
        counts: Number of rows by decision.
        decided: (N,) whether the row was called wrong or right.
        drawn: (N,) whether the row was decided as one of a random sample.
        flagged: (N,) whether the row was decided as one of the most suspicious.
    """

    labels: AnyArray
    rows: Labels
    donors: Labels
    counts: dict[str, int]
    decided: Mask
    drawn: Mask
    flagged: Mask

    @property
    def known(self) -> list[Any]:
        """(N,) true labels of the decided rows and None for the others, as ``AuditResult.check`` takes them.

        If rows of a random sample were decided, only those: together with flagged ones they would not be random.
        """
        rows = self.decided & self.drawn if (self.decided & self.drawn).any() else self.decided
        return [label if row else None for label, row in zip(self.labels.tolist(), rows, strict=True)]

    @property
    def sample(self) -> Literal["random", "flagged"] | None:
        """How the rows of ``known`` were drawn, where the decisions say so."""
        if (self.decided & self.drawn).any():
            return "random"
        return "flagged" if self.decided.any() and self.flagged[self.decided].all() else None


def apply_decisions(labels: Any, decisions: Any) -> Corrected:
    """Replace the labels that are marked as wrong.

    Args:
        labels: (N,) labels that were audited; None or NaN for rows without one, which a decision may fill in.
        decisions: The CSV file downloaded from the report, or a table with the same columns: ``row``, ``given``,
            ``decision`` (wrong, right or unsure; empty for none), and the new label in ``label`` or, where that is
            empty, in ``suggested``.
    """
    name = str(decisions) if isinstance(decisions, str | Path) else "The table of decisions"
    frame = _read(Path(decisions)) if isinstance(decisions, str | Path) else as_frame(decisions)
    if frame is None:
        raise InputError(f"decisions must be a CSV file or a table, but is {type(decisions).__name__}.")
    if lacking := [column for column in ("row", "given", "suggested", "decision") if column not in frame.columns]:
        raise DataError(f"{name} lacks the columns {', '.join(lacking)}: give the file downloaded from the report.")
    known = encode(labels, unlabelled=True)
    # Labels in the file are escaped for spreadsheet programs.
    named = {spreadsheet_safe(label): code for code, label in enumerate(known.classes.tolist())}
    codes = known.codes.copy()
    decided, drawn, flagged = np.zeros((3, len(codes)), dtype=bool)
    counts: dict[str, int] = dict.fromkeys(DECISIONS, 0)
    for record in frame.with_columns(pl.all().cast(pl.String).fill_null("")).iter_rows(named=True):
        decision = record["decision"].strip().lower()
        if not decision:
            continue
        row = _row(record["row"], len(codes), name)
        given = "" if known.codes[row] < 0 else spreadsheet_safe(known.classes[known.codes[row]])
        if decision not in DECISIONS:
            raise DataError(f"{name}, row {row}: the decision is {decision!r}, but must be {', '.join(DECISIONS)}.")
        if record["given"] != given:
            raise DataError(
                f"{name} says that row {row} is labelled {record['given']!r}, but its label is {given!r}: the"
                " decisions belong to another table, or have been applied already."
            )
        counts[decision] += 1
        decided[row] = decision != "unsure"
        drawn[row] = record.get("sample") == "random"
        flagged[row] = record.get("sample") == "flagged"
        if decision == "wrong":
            codes[row] = _new_code(record.get("label") or record["suggested"], named, row, name)
    changed = np.flatnonzero(codes != known.codes)
    present, first = np.unique(known.codes, return_index=True)
    donors = np.arange(len(codes))
    donors[changed] = first[np.searchsorted(present, codes[changed])]
    corrected = known.classes[codes]
    if (codes < 0).any():
        corrected = np.where(codes < 0, np.array(None), corrected.astype(object))
    return Corrected(corrected, changed, donors, counts, decided, drawn, flagged)


def _read(path: Path) -> pl.DataFrame:
    if not path.is_file():
        raise DataError(f"There is no file of decisions at {path}; download one from the report of an audit.")
    return read_cells(path)[0]


def _row(text: str, count: int, name: str) -> int:
    if not text.strip().isdecimal() or int(text) >= count:
        raise DataError(f"{name} has a row {text!r}, but rows are numbered from 0 to {count - 1}.")
    return int(text)


def _new_code(text: str, named: dict[str, int], row: int, name: str) -> int:
    if text not in named:
        raise DataError(f"{name}, row {row}: the new label {text!r} is not one of the classes of the table.")
    return named[text]
