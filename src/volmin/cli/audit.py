"""``volmin audit``."""

from __future__ import annotations

import shlex
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from volmin.cli.crowd import Annotator, Features, Group, Item, Label, audit_votes, is_crowd
from volmin.cli.labels import Spelling
from volmin.exceptions import InputError

if TYPE_CHECKING:
    from volmin import Audit
    from volmin._typing import AnyArray
    from volmin.cli.progress import TaskProgress
    from volmin.progress import Progress


def audit(
    table: Annotated[
        Path,
        typer.Argument(
            help="Table (CSV, JSON lines, Parquet, Feather, Excel, NPZ), or folder with one folder of images per class."
        ),
    ],
    label: Label = None,
    annotator: Annotator = None,
    item: Item = None,
    group: Group = None,
    images: Annotated[bool, typer.Option("--images", help="The table lists image files to learn from.")] = False,
    probs: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.npy",
            help="(N, C) class probabilities from a model that has not seen these labels, columns in the sorted order "
            "of the classes.",
        ),
    ] = None,
    features: Features = None,
    model: Annotated[
        str,
        typer.Option(
            help="Model to train: network (VolMinNet), logistic, forest or boosting; auto weights several by the "
            "likelihood of labels that they were not trained on."
        ),
    ] = "auto",
    clean: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column of a table with the true labels, where they are known.")
    ] = None,
    sample: Annotated[
        str | None,
        typer.Option(
            help="How the rows of --clean or --apply were drawn: random, or among the flagged. Default: told from the "
            "rows.",
            show_default=False,
        ),
    ] = None,
    ignore: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="Column to leave out of the features; repeatable.")
    ] = None,
    text: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="Column of text, where it is not recognised; repeatable.")
    ] = None,
    types: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN=TYPE",
            help="Type of a column: number, date, boolean, category, text, ignore, or the order of a date such as "
            "month/day/year; repeatable. Others are recognised.",
        ),
    ] = None,
    text_encoder: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Model of sentence-transformers in a local folder, for the columns of --text (extra: volmin[text]).",
        ),
    ] = None,
    image_encoder: Annotated[
        str | None,
        typer.Option(
            metavar="NETWORK=FILE",
            help="Network of timm and a file of its weights, to embed images with (extra: volmin[vision]).",
        ),
    ] = None,
    merge_labels: Annotated[
        bool, typer.Option("--merge-labels", help="Merge labels that differ only in case, spaces or Unicode form.")
    ] = False,
    label_map: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Labels to replace: a JSON object, or a CSV file with two columns."),
    ] = None,
    reading: Annotated[
        str,
        typer.Option(
            help="What labels of hard examples mean: class_dependent if these may rightly carry either label, "
            "one_right_label if each has one; auto chooses by how much the noise rates differ."
        ),
    ] = "auto",
    fdr: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="Largest expected share of correct labels among the flagged. Default: flag as many labels as have a "
            "more probable one.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Random seed of the folds, the models and the confidence intervals.")
    ] = 1,
    threads: Annotated[
        int, typer.Option(min=1, help="Threads of the process; only large images gain from more than one.")
    ] = 1,
    apply: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Decisions downloaded from the report (CSV), or annotations exported from Label Studio (JSON): write "
            "a copy with corrected labels.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the results (default: audit); with --apply, path of the corrected copy."),
    ] = None,
    label_studio: Annotated[
        Path | None,
        typer.Option(metavar="FILE.json", help="Write the flagged rows as tasks for Label Studio, with suggestions."),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but warnings and errors.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON instead of text, with the flagged rows.")
    ] = False,
) -> None:
    """Estimate how many labels are wrong and which, and correct them after a review."""
    from volmin.cli.applying import apply_to
    from volmin.cli.terminal import silenced

    if apply is not None:
        if as_json:
            raise InputError("--json prints an audit; it has no effect with --apply.")
        with silenced(quiet):
            apply_to(table, label, apply, out, Spelling(merge_labels, label_map), sample)
        return
    if probs is not None and features is not None:
        raise InputError("Give --probs or --features, not both.")
    from volmin.cli.columns import column_types, show_columns
    from volmin.cli.label_studio import write_label_studio
    from volmin.cli.progress import TaskProgress
    from volmin.cli.terminal import say
    from volmin.exceptions import ColumnWarning

    chosen_types = column_types(types, text)
    if is_crowd(table, label, annotator, item, group):
        unused = {"--probs": probs, "--clean": clean, "--images": images, "--fdr": fdr, "--label-map": label_map}
        unused |= {"--merge-labels": merge_labels, "--model": model != "auto", "--reading": reading != "auto"}
        audit_votes(
            table, label, annotator, item, group, features=features, ignore=ignore or (), types=chosen_types,
            unused=unused, seed=seed, threads=threads, out=out or Path("audit"), quiet=quiet, as_json=as_json,
        )  # fmt: skip
        return
    with TaskProgress(f"reading {table.name}", quiet=quiet) as progress, warnings.catch_warnings():
        # Imported while the progress is shown, since importing takes a moment.
        from volmin import auditing
        from volmin.io.arrays import read_array

        # What became of the columns is printed below.
        warnings.simplefilter("ignore", ColumnWarning)
        source = _load(table, label, images=images, clean=clean, ignore=ignore or (), progress=progress)
        source = replace(source, labels=Spelling(merge_labels, label_map)(source.labels))
        if features is not None:
            source = replace(source, features=read_array(features))
        elif given_encoder := text_encoder or image_encoder:
            source = replace(source, features=_embedded(source, given_encoder, text or (), progress))
            chosen_types = {name: type_ for name, type_ in chosen_types.items() if name in source.features}
        given = None if probs is None else read_array(probs)
        found = auditing.audit(
            source.labels,
            probs=given,
            features=None if given is not None else source.features,
            model=model,
            types=chosen_types or None,
            reading=reading,
            random_state=seed,
            threads=threads,
            progress=progress,
        )
    command = shlex.join(["volmin", *sys.argv[1:]])
    found = replace(found, provenance=found.provenance | {"title": f"The labels of {table.name}", "command": command})
    options = ([] if label is None else ["--label", label]) + (["--merge-labels"] if merge_labels else [])
    options += [] if label_map is None else ["--label-map", str(label_map)]
    out = out or Path("audit")
    with silenced(quiet or as_json):
        if source.unlabelled:
            say(f"{source.unlabelled:,} rows have no label and are left aside.")
        show_columns(found.provenance.get("columns", ()))
        _show_and_save(found, source, options, fdr, sample, out, TaskProgress("writing the report", quiet=quiet))
        if label_studio is not None:
            write_label_studio(found, source.examples, source.names, label_studio, fdr)
    if as_json:
        from volmin.cli.machine_readable import print_audit

        print_audit(out, found.issues(fdr).tolist())


@dataclass(frozen=True)
class AuditInput:
    """The labels to audit, the features to learn from, and the examples to show in the report."""

    path: Path
    labels: AnyArray
    features: Any
    examples: Any
    names: list[str] | None = None
    clean: AnyArray | None = None
    unlabelled: int = 0
    """Number of rows without a label."""


def _load(
    path: Path, label: str | None, *, images: bool, clean: str | None, ignore: Sequence[str], progress: Progress
) -> AuditInput:
    from volmin.cli.labels import labelled_table
    from volmin.data.images import load_images

    if path.is_dir() or images:
        found = load_images(path, label, clean=clean, progress=progress)
        root = path if path.is_dir() else path.parent
        names = [str(file.relative_to(root)) for file in found.paths]
        known = None if found.clean is None else found.clean.to_numpy()
        return AuditInput(path, found.labels, found.x, found.paths, names, clean=known)
    table = labelled_table(path, label, [*ignore, *([clean] if clean else [])])
    unlabelled = table.frame.height - len(table)
    whole = table.frame[table.rows.tolist()] if unlabelled else table.frame
    frame = whole.select(table.feature_columns)
    known = None if clean is None else whole[clean].to_numpy()
    # Rows are counted among those with a label; their names say where they are in the file.
    names = [f"row {row} of the file" for row in table.rows] if unlabelled else None
    examples = frame if frame.width else None
    return AuditInput(path, table.labels, frame, examples, names, clean=known, unlabelled=unlabelled)


def _embedded(source: AuditInput, encoder: Path | str, text: Sequence[str], progress: Progress) -> Any:
    """Features by an encoder: of columns of text for a folder, of images for a network with its weights."""
    import polars as pl

    from volmin.cli.encoders import embedded_images, with_embedded_text

    is_table = isinstance(source.features, pl.DataFrame)
    if is_table != isinstance(encoder, Path):
        raise InputError("--text-encoder is for tables, and --image-encoder for images.")
    if isinstance(encoder, Path):
        return with_embedded_text(source.features, text, encoder, progress)
    root = source.path if source.path.is_dir() else source.path.parent
    return embedded_images([root / name for name in source.names or ()], encoder, progress)


def _show_and_save(
    found: Audit,
    source: AuditInput,
    options: Sequence[str],
    fdr: float | None,
    sample: str | None,
    out: Path,
    progress: TaskProgress,
) -> None:
    from volmin.auditing.text import check_summary
    from volmin.cli.terminal import say
    from volmin.formatting import duration

    say(found.summary(fdr))
    if source.clean is not None:
        known = check_summary(
            found.check(source.clean, fdr, sample=sample)  # type: ignore[arg-type]
        )
        found = replace(found, provenance=found.provenance | {"known": known})
        say(known)
    with progress:
        found.save(out, examples=source.examples, names=source.names, fdr=fdr)
    files = "report.html, issues.csv, labels.parquet, transition.csv, audit.json"
    say(f"\n{duration(found.provenance['seconds'])}; written to {out}: {files}")
    if len(found.issues(fdr)):
        command = shlex.join(["volmin", "audit", str(source.path), *options, "--apply", "decisions.csv"])
        say(
            f"Next: open {out / 'report.html'}, review the flagged labels, download the decisions, and run\n  {command}"
        )
