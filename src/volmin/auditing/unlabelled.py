"""Rows without a label: an audit gives them a suggestion, and all statements are about the other rows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from volmin._typing import Array, Labels

if TYPE_CHECKING:
    from volmin.auditing.result import AuditResult

Result = TypeVar("Result", bound="AuditResult")

PER_ROW = ("codes", "quality", "suggested_codes", "clean_probs", "suspicion", "qualities", "weights")
"""Fields of an ``AuditResult`` with an entry for each row."""


def of_labelled(result: Result) -> tuple[Result, Labels]:
    """The result for the rows that have a label, numbered anew, and their rows in ``result``."""
    rows = np.flatnonzero(result.codes >= 0)
    if len(rows) == len(result):
        return result, rows
    taken = {name: value[rows] for name in PER_ROW if (value := getattr(result, name)) is not None}
    if result.embedding is not None:
        taken["embedding"] = np.searchsorted(rows, result.embedding[0]), result.embedding[1]
    return replace(result, certainty=np.empty(0), **taken), rows


def with_unlabelled(result: Result, rows: Labels, clean: Array) -> Result:
    """The result of the labelled rows with suggestions for others between them; the inverse of ``of_labelled``.

    The suggested label is the most probable one. Its probability is that of the class-dependent reading, which is the
    smaller one where the readings differ.

    Args:
        result: Audit of the rows that have a label.
        rows: (m,) rows without a label among all, ascending.
        clean: (m, C) their posteriors of the true label.
    """
    if not len(rows):
        return result
    count = len(result) + len(rows)
    others = np.delete(np.arange(count), rows)
    fills = {"codes": -1, "suggested_codes": clean.argmax(axis=1), "clean_probs": clean}
    taken = {}
    for name in PER_ROW:
        value = getattr(result, name)
        if value is not None:
            taken[name] = np.full((count, *value.shape[1:]), -1 if value.dtype.kind == "i" else np.nan, value.dtype)
            taken[name][others] = value
            taken[name][rows] = fills.get(name, np.nan)
    if result.embedding is not None:
        taken["embedding"] = others[result.embedding[0]], result.embedding[1]
    return replace(result, certainty=clean.max(axis=1), **taken)
