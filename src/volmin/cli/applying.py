"""``volmin audit --apply``: copies of the data with labels corrected by decisions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from volmin.exceptions import DataError

if TYPE_CHECKING:
    from volmin.cli.labels import Spelling


def apply_to(
    path: Path, label: str | None, decisions: Path, out: Path | None, spelling: Spelling, sample: str | None
) -> None:
    """Write a copy of the data in which the labels that the decisions call wrong are replaced."""
    from volmin.auditing.decisions import apply_decisions
    from volmin.cli.labels import labelled_table
    from volmin.cli.terminal import say
    from volmin.compat.label_studio import read_annotations
    from volmin.data.images import load_images
    from volmin.data.relabelling import table_suffix, write_corrected_folder, write_corrected_table

    decided = read_annotations(decisions) if decisions.suffix.lower() == ".json" else decisions
    ending = "" if path.is_dir() else table_suffix(path)
    out = out or path.with_name(f"{path.name.removesuffix(ending)}-corrected{ending}")
    if out.exists() and out.samefile(path):
        raise DataError(f"{out} is the audited data itself: name another file with --out.")
    if path.is_dir():
        images = load_images(path)
        corrected = apply_decisions(images.labels, decided)
        write_corrected_folder(path, out, images.paths, corrected.labels)
    else:
        table = labelled_table(path, label, ())
        corrected = apply_decisions(table.of_all_rows(spelling(table.labels)), decided)
        donors = {int(row): int(corrected.donors[row]) for row in corrected.rows}
        write_corrected_table(path, out, table.label, donors)
    counts = ", ".join(f"{count:,} {decision}" for decision, count in corrected.counts.items())
    changed, total = len(corrected.rows), len(corrected.labels)
    say(f"{changed:,} of {total:,} labels changed (decisions: {counts}). Written to {out}.")
    if corrected.decided.any() and (Path("audit") / "audit.json").is_file():
        _show_what_decisions_say(corrected.known, Path("audit"), sample or corrected.sample)


def _show_what_decisions_say(known: Sequence[Any], folder: Path, sample: str | None) -> None:
    """Print the noise rate after the decisions, if the folder holds the audit that they are about."""
    from volmin.auditing import Audit
    from volmin.auditing.text import check_summary
    from volmin.cli.terminal import say

    found = Audit.load(folder)
    if len(found) == len(known):
        # The labels of a saved audit are text.
        known_labels = [None if label is None else str(label) for label in known]
        say(check_summary(found.check(known_labels, sample=sample)))  # type: ignore[arg-type]
