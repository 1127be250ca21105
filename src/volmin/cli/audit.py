"""What the command line does with an audit: load, judge, print, write; and apply a person's decisions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from rich.console import Console

from volmin.auditing import text
from volmin.auditing.audit import audit
from volmin.auditing.decisions import apply_decisions
from volmin.data.images import load_images
from volmin.data.relabelling import write_corrected_folder, write_corrected_table
from volmin.data.tables import LabelledTable, load_table
from volmin.exceptions import DataError, InputError
from volmin.formatting import duration, terminal_safe
from volmin.io.arrays import read_array


@dataclass(frozen=True)
class Source:
    """Labels to audit, with what there is to judge them by and to show of them."""

    path: Path
    labels: NDArray[Any]
    features: Any
    examples: Any
    names: list[str] | None = None
    clean: NDArray[Any] | None = None


def audit_and_show(
    path: Path,
    *,
    label: str | None,
    images: bool,
    probs: Path | None,
    features: Path | None,
    model: str | None,
    clean: str | None,
    ignore: Sequence[str],
    fdr: float,
    seed: int,
    threads: int,
    out: Path,
    command: str,
) -> None:
    """Audit the labels of a table or of images, print the findings, and write them to ``out``."""
    if probs is not None and features is not None:
        raise InputError("Give --probs or --features, not both.")
    source = load_source(path, label, images=images, clean=clean, ignore=ignore)
    found = audit(
        source.labels,
        probs=None if probs is None else read_array(probs),
        features=None if probs is not None else source.features if features is None else read_array(features),
        model=model,
        random_state=seed,
        threads=threads,
        verbose=True,
    )
    found = replace(found, provenance=found.provenance | {"title": f"The labels of {path.name}", "command": command})
    console = Console(highlight=False, soft_wrap=True, markup=False)
    console.print(found.summary(fdr))
    if source.clean is not None:
        check = found.check(source.clean, fdr)
        found = replace(found, provenance=found.provenance | {"known": text.check_summary(check)})
        console.print(text.check_summary(check))
    found.save(out, examples=source.examples, names=source.names, fdr=fdr)
    console.print(
        f"\n{duration(found.provenance['seconds'])}; written to {terminal_safe(str(out))}: report.html, issues.csv,"
        " labels.parquet, transition.csv, audit.json"
    )
    if len(found.issues(fdr)):
        where = "" if path.is_dir() else f" --label {label}"
        console.print(
            f"Next: open {out / 'report.html'}, decide on the flagged labels, download the decisions, and run\n"
            f"  {terminal_safe(f'volmin audit {path}{where}')} --apply decisions.csv"
        )


def apply_and_show(path: Path, label: str | None, decisions: Path, out: Path | None) -> None:
    """Write a copy of the data in which the labels that a person found wrong are replaced."""
    out = out or path.with_name(f"{path.stem}-corrected{path.suffix}")
    if out.exists() and out.samefile(path):
        raise DataError(f"{out} is the audited data itself: name another file with --out.")
    if path.is_dir():
        images = load_images(path)
        corrected = apply_decisions(images.labels, decisions)
        write_corrected_folder(path, out, images.paths, corrected.labels)
    else:
        table = _table(path, label, ())
        corrected = apply_decisions(table.labels, decisions)
        donors = {int(row): int(corrected.donors[row]) for row in corrected.rows}
        write_corrected_table(path, out, table.label, donors)
    counts = ", ".join(f"{count:,} {decision}" for decision, count in corrected.counts.items())
    print(
        f"{len(corrected.rows):,} of {len(corrected.labels):,} labels changed (decisions: {counts}). Written to {out}."
    )


def load_source(path: Path, label: str | None, *, images: bool, clean: str | None, ignore: Sequence[str]) -> Source:
    """A folder of images per class, a table of images, or a table of features."""
    if path.is_dir() or images:
        found = load_images(path, label, clean=clean)
        root = path if path.is_dir() else path.parent
        names = [str(file.relative_to(root)) for file in found.paths]
        known = None if found.clean is None else found.clean.to_numpy()
        return Source(path, found.labels, found.x, found.x.numpy(), names, clean=known)
    table = _table(path, label, [*ignore, *([clean] if clean else [])])
    frame = table.frame.select(table.feature_columns)
    known = None if clean is None else table.frame[clean].to_numpy()
    return Source(path, table.labels, frame, frame if frame.width else None, clean=known)


def _table(path: Path, label: str | None, ignore: Sequence[str]) -> LabelledTable:
    if label is None:
        raise DataError(f"Name the label column of {path} with --label.")
    return load_table(path, label, ignore=ignore)
