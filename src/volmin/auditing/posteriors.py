"""Posteriors of the given labels: the user's own, or those of models that are cross-fitted to the features."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from volmin._typing import Array, Labels, Mask
from volmin.auditing.arguments import check_rows
from volmin.auditing.features import encode_features, principal_positions
from volmin.auditing.findings import Finding, in_sample
from volmin.auditing.judges import Judgement, given_judgement, judge, resolve_models
from volmin.auditing.labels import Encoded
from volmin.auditing.rare import common_classes, restricted
from volmin.data.folds import first_copies
from volmin.progress import Progress


@dataclass(frozen=True)
class Rows:
    """The rows that an audit is about.

    Attributes:
        given: Labels of all N rows.
        weights: (N,) weights of the rows; None if all weigh the same.
        common: (K,) classes with enough rows to be audited.
        audited: (N,) whether a row has a label of one of these classes.
        judged: (N,) whether a row gets posteriors: the audited ones and those without a label.
        codes: (n,) labels of the judged rows as positions in ``common``; -1 for rows without one.
    """

    given: Encoded
    weights: Array | None
    common: Labels
    audited: Mask
    judged: Mask
    codes: Labels

    @classmethod
    def of(cls, given: Encoded, weights: Array | None) -> Rows:
        """The rows with these labels and weights; warns of classes with too few of them."""
        common = common_classes(given)
        audited = np.isin(given.codes, common)
        judged = audited | (given.codes < 0)
        codes = np.where(audited, np.searchsorted(common, given.codes.clip(0)), -1)[judged]
        return cls(given, weights, common, audited, judged, codes)


@dataclass(frozen=True)
class Posteriors:
    """Posteriors of the given labels of the judged rows, and what became known of the features.

    Attributes:
        judgement: The posteriors, and the models that gave them.
        findings: Named reasons to trust the posteriors less.
        copies: Share of rows whose features are those of an earlier row.
        embedding: (m,) rows among the labelled ones and their (m, 2) positions on the map; None without features.
        columns: What became of the columns of a table.
    """

    judgement: Judgement
    findings: list[Finding] = field(default_factory=list)
    copies: float = 0.0
    embedding: tuple[Labels, Array] | None = None
    columns: tuple[dict[str, Any], ...] = ()


def given_posteriors(probs: Array, rows: Rows) -> Posteriors:
    """The user's (N, C) posteriors; warns if their model was probably trained on these labels."""
    judgement = given_judgement(restricted(probs[rows.judged], rows.common), rows.codes)
    labelled = rows.codes >= 0
    note = in_sample(judgement.probs[labelled], rows.codes[labelled])
    if note is None:
        return Posteriors(judgement)
    warnings.warn(note.text, stacklevel=3)
    return Posteriors(judgement, [note])


def fitted_posteriors(
    features: Any,
    rows: Rows,
    *,
    model: Any,
    types: Mapping[str, str] | None,
    text_encoder: Any,
    folds: int,
    random_state: int,
    threads: int,
    progress: Progress | None,
) -> Posteriors:
    """Posteriors of models that are cross-fitted to the features; arguments as in ``volmin.audit``."""
    encoded = encode_features(features, types, progress, text_encoder)
    check_rows("features", encoded.x, rows.given)
    # All features are copied only if some classes are left out; there may be gigabytes of them.
    x = encoded.x if rows.judged.all() else encoded.x[rows.judged]
    labelled, num_classes = rows.codes >= 0, len(rows.common)
    judgement = judge(
        resolve_models("auto" if model is None else model, int(labelled.sum()), x.shape[1:], num_classes),
        x,
        rows.codes,
        num_classes,
        folds=folds,
        random_state=random_state,
        threads=threads,
        progress=progress,
    )
    flat = np.ascontiguousarray(x).reshape(len(x), -1)
    copies = float((first_copies(flat) != np.arange(len(x))).mean())
    drawn, points = principal_positions(flat, np.flatnonzero(labelled), random_state)
    places = np.flatnonzero(rows.audited[rows.given.codes >= 0])[np.cumsum(labelled)[drawn] - 1]
    return Posteriors(judgement, copies=copies, embedding=(places, points), columns=encoded.columns)
