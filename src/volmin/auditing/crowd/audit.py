"""``volmin.audit`` of several annotators or groups."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from volmin.auditing.arguments import check_settings
from volmin.auditing.crowd import page, storage, text
from volmin.auditing.crowd.findings import find
from volmin.auditing.crowd.result import CrowdResult
from volmin.auditing.features import encode_features
from volmin.auditing.labels import encode, vector
from volmin.auditing.versions import versions
from volmin.crowds import (
    EncodedAnswers,
    annotator_rates,
    compare_annotators,
    contexts,
    encode_answers,
    encode_groups,
    find_copies,
    fit_crowd,
    information,
    next_votes,
    with_sources,
)
from volmin.exceptions import InputError
from volmin.progress import PlainProgress, Progress
from volmin.training import thread_limit


class CrowdAudit(CrowdResult):
    """The result of ``volmin.audit`` of several annotators, with methods to print and save it; see ``CrowdResult``."""

    def summary(self) -> str:
        """The result as a few lines of text."""
        return text.summary(self)

    def to_html(self, path: str | Path, *, examples: Any = None) -> None:
        """Write the report as one self-contained HTML file.

        Args:
            path: Path of the HTML file.
            examples: What to show of the items: a table (polars, pandas or a mapping of columns), or images as an
                (N, channels, height, width) array of bytes.
        """
        page.write_page(self, Path(path), examples)

    def save(self, folder: str | Path, *, examples: Any = None) -> None:
        """Write tables (consensus, annotators, transitions, votes: CSV), ``report.html`` and, last, ``audit.json``.

        Args:
            folder: Folder of the files; it is created if necessary.
            examples: What to show of the items, as in ``to_html``.
        """
        storage.save(self, Path(folder), lambda path: self.to_html(path, examples=examples))


def audit_crowd(
    labels: Any,
    *,
    features: Any = None,
    groups: Any = None,
    types: Mapping[str, str] | None = None,
    classes: Any = None,
    folds: int = 5,
    level: float = 0.95,
    random_state: int | None = None,
    threads: int = 1,
    verbose: bool = False,
    progress: Progress | None = None,
) -> CrowdAudit:
    """Estimate a T and a noise rate for each annotator, and the consensus of all.

    Args:
        labels: Labels of several annotators: (N, M), with None, NaN or -1 where one gave none, an array or a table with
            a column for each; or a table with the columns annotator, label and row (from 0) or item (a name). With
            ``groups``, (N,) single labels.
        features: (N, ...) numbers, or a table, with a row for each item, in the order of the rows of ``labels``, of the
            numbers in the column row, or of the sorted names in the column item.
        groups: (N,) group of each label: a source, a hospital, a year.
        types: Types of columns of a table of features, where they are not to be recognised.
        classes: (C,) all classes; by default those that occur, sorted.
        folds: Number of folds of the cross-fitted classifier.
        level: Nominal coverage of the intervals.
        random_state: Random seed of folds and simulations; None draws one.
        threads: Number of threads.
        verbose: Whether to print progress on standard error.
        progress: Callback ``(title, done, total)`` for progress, in place of ``verbose``.
    """
    start = time.perf_counter()
    check_settings(folds, level, threads)
    if groups is not None and features is None:
        raise InputError("Single labels of groups need features: without them nothing says which labels are wrong.")
    seed = int(np.random.default_rng().integers(2**31)) if random_state is None else random_state
    progress = PlainProgress() if verbose and progress is None else progress
    with thread_limit(threads), threadpool_limits(threads):
        encoded, x, columns = _encoded(labels, features, groups, types, classes, progress)
        answers = encoded.answers if groups is not None else with_sources(encoded.answers)
        fit = fit_crowd(answers, x, folds=folds, random_state=seed, progress=progress)
        rates, overall = annotator_rates(answers, fit, x, level)
        context = contexts(answers, fit)
        found = CrowdAudit(
            classes=encoded.classes,
            names=encoded.annotators,
            items=encoded.items,
            answers=answers,
            fit=fit,
            rates=rates,
            overall=overall,
            information=information(answers, context, fit),
            level=level,
            comparison=compare_annotators(answers, context, random_state=seed),
            copies=[] if groups is not None else find_copies(answers, fit),
            votes=next_votes(answers, fit),
            grouped=groups is not None,
        )
    provenance = {
        "features": features is not None,
        "folds": folds if features is not None else None,
        "seed": seed,
        "weight": fit.weight,
        "strength": fit.strength,
        "seconds": round(time.perf_counter() - start, 2),
        "versions": versions(),
        "columns": list(columns),
    }
    found = replace(found, provenance=provenance)
    return replace(found, findings=find(found))


def _encoded(
    labels: Any, features: Any, groups: Any, types: Mapping[str, str] | None, classes: Any, progress: Progress | None
) -> tuple[EncodedAnswers, Any, tuple[Any, ...]]:
    """The answers as numbers, the features as numbers, and what became of the columns of a table."""
    x, columns = None, ()
    if features is not None:
        found = encode_features(features, types, progress)
        x, columns = found.x, found.columns
    if groups is None:
        encoded = encode_answers(labels, classes, None if x is None else len(x))
    else:
        encode(labels, classes)  # refuses missing labels
        encoded = encode_groups(vector(labels), groups, classes)
    if len(encoded.classes) < 2:
        raise InputError(f"All answers are {encoded.classes.tolist()[0]!r}; an audit needs at least two classes.")
    if x is not None and len(x) != encoded.answers.num_items:
        raise InputError(f"features has {len(x)} rows, but there are {encoded.answers.num_items} items with labels.")
    return encoded, x, columns
