"""The HTML report of an audit: the content that ``volmin.report`` renders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from volmin._typing import Labels
from volmin.auditing import text
from volmin.auditing.evidence import with_words_against
from volmin.auditing.result import AuditResult
from volmin.auditing.review import review_model
from volmin.auditing.unlabelled import of_labelled
from volmin.data.tables import as_frame
from volmin.exceptions import InputError
from volmin.report import AuditPage, ClassNoise, Confusion, UnlabelledRows, write_audit_report
from volmin.report.examples import Examples, image_examples, no_examples, table_examples
from volmin.report.row_map import RowPositions

MOST_CONFUSIONS = 100

MOST_UNLABELLED = 200
"""Number of rows without a label on the page; all are in a file."""

RANDOM_ROWS = 100
"""Number of rows drawn at random, whose decisions tell the share of wrong labels."""


def write_page(result: AuditResult, path: Path, examples: Any, names: Sequence[Any] | None, fdr: float | None) -> None:
    """Write the report of an audit; the arguments are those of ``Audit.to_html``."""
    others = _unlabelled(result, examples, names)
    result, places = of_labelled(result)
    if len(others.rows):
        names = [names[row] for row in places] if names is not None else None
        examples = _taken(examples, places)
    rows = result.issues(fdr)
    # Random rows first: images are limited in number, and a part of a random sample is a random sample too.
    sampled = np.random.default_rng(result.provenance.get("seed", 0)).permutation(len(result))[:RANDOM_ROWS]
    suspicious = rows[~np.isin(rows, sampled)]
    examples = with_words_against(result, examples, np.union1d(sampled, rows))
    shown = shown_examples(examples, np.concatenate([sampled, suspicious]), len(result))
    listed = np.concatenate([sampled, suspicious])[: len(shown)]
    intervals = result.intervals
    low, high = result.noise_range
    page = AuditPage(
        title=result.provenance.get("title", "Label audit"),
        headline=text.headline(result),
        identifiability=text.identifiability(result),
        caution=f"{text.identifiability(result).split('. ')[0].rstrip('.')}.",
        identified=result.identified,
        class_dependent=result.class_dependent,
        expected_correct_stated=text.states_expected_correct(result),
        findings=[(finding.code, finding.text) for finding in result.findings],
        judges=text.judges(result) if result.judges else "",
        check=result.provenance.get("known", ""),
        classes=[str(name) for name in result.classes],
        num_rows=len(result),
        noise_rate=result.noise_rate,
        noise_bounds=(low, high),
        level=None if intervals is None else intervals.level,
        T=result.transition,
        bounds=None if intervals is None else (intervals.transition.low, intervals.transition.high),
        class_noise=_class_noise(result),
        confusions=[Confusion(i, j, share * len(result)) for i, j, share in result.confusions(MOST_CONFUSIONS)],
        fdr=fdr,
        flagged=len(rows),
        expected_correct=float(result.quality[rows].sum()),
        most_correct=result.most_correct(rows) * len(rows),
        rows=places[listed].tolist(),
        random=len(sampled),
        is_flagged=np.isin(listed, rows).tolist(),
        rank=_ranks(rows, listed).tolist(),
        names=[] if names is None else [str(names[row]) for row in listed],
        given=result.codes[listed].tolist(),
        suggested=result.suggested_codes[listed].tolist(),
        wrong=[round(float(value), 4) for value in 1 - result.quality[listed]],
        examples=shown,
        review=review_model(result, listed, len(sampled)),
        embedding=_embedding(result, listed),
        unlabelled=others,
        histories=result.histories,
        provenance=result.provenance,
    )
    write_audit_report(path, page)


def _unlabelled(result: AuditResult, examples: Any, names: Sequence[Any] | None) -> UnlabelledRows:
    """The rows without a label, the surest suggestions first."""
    found = result.unlabelled.sort("probability", descending=True, maintain_order=True)
    rows = found["row"].to_numpy()
    shown = shown_examples(examples, rows[:MOST_UNLABELLED], len(result)) if len(rows) else no_examples(0)
    counts = np.bincount(result.suggested_codes[rows], minlength=len(result.classes))
    order = np.argsort(-counts, kind="stable")
    return UnlabelledRows(
        rows=rows.tolist(),
        names=[] if names is None else [str(names[row]) for row in rows[:MOST_UNLABELLED]],
        suggested=[str(name) for name in found["suggested"]],
        probability=found["probability"].to_list(),
        counts=[(str(result.classes[code]), int(counts[code])) for code in order if counts[code]],
        examples=shown,
    )


def _taken(examples: Any, rows: Labels) -> Any:
    """What the page shows of some rows only."""
    if examples is None:
        return None
    if isinstance(examples, Sequence):
        return [examples[row] for row in rows]
    frame = as_frame(examples)
    return np.asarray(examples)[rows] if frame is None else frame[rows.tolist()]


def _ranks(rows: Labels, listed: Labels) -> Labels:
    """(n,) places of the listed rows among the flagged ``rows``; rows that are not flagged come last."""
    order = np.argsort(rows, kind="stable")
    place = np.searchsorted(rows, listed, sorter=order).clip(max=max(0, len(rows) - 1))
    return np.where(np.isin(listed, rows), order[place], len(rows)) if len(rows) else np.zeros(len(listed), np.int64)


def _embedding(result: AuditResult, listed: Labels) -> RowPositions | None:
    if result.embedding is None:
        return None
    rows, points = result.embedding
    place = {row: position for position, row in enumerate(listed.tolist())}
    return RowPositions(rows.tolist(), points, 1 - result.quality[rows], [place.get(row) for row in rows.tolist()])


def _class_noise(result: AuditResult) -> list[ClassNoise]:
    names = [str(name) for name in result.classes]
    given = np.bincount(result.codes, minlength=len(names))
    rates, bounds, priors = result.class_noise_rates, result.noise_bounds, result.class_priors
    return [
        ClassNoise(
            name=names[j],
            given=int(given[j]),
            true=float(priors[j] * len(result)),
            rate=float(rates[j]),
            low=float(bounds[j, 0]),
            high=float(bounds[j, 1]),
            most=float(result.bracket[j, 1] if result.class_dependent else bounds[j, 1]),
            confusions=[(names[i], share) for i, share in text.main_confusions(result, j)],
            audited=j not in result.rare,
        )
        for j in np.argsort(-rates, kind="stable")
    ]


def shown_examples(examples: Any, rows: Labels, count: int) -> Examples:
    """What a page shows of some rows of a table or of images with ``count`` rows."""
    if examples is None:
        return no_examples(len(rows))
    paths = isinstance(examples, Sequence) and all(isinstance(path, Path) for path in examples)
    frame = None if paths else as_frame(examples)
    found = len(examples) if frame is None else frame.height
    if found != count:
        raise InputError(f"examples must hold one entry per label: {count}, not {found}.")
    return image_examples(examples, rows) if frame is None else table_examples(frame, rows)
