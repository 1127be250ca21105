"""``volmin audit``."""

from __future__ import annotations

import shlex
import sys
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from volmin.cli.crowd import Annotator, Features, Group, Item, Label, audit_votes, is_crowd
from volmin.cli.encoders import ImageEncoder, TextEncoder
from volmin.cli.labels import Spelling
from volmin.exceptions import InputError

if TYPE_CHECKING:
    from volmin import Audit
    from volmin.cli.audit_input import AuditInput
    from volmin.cli.progress import TaskProgress


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
    weight: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column with the weights of the rows in all shares, such as noise rates."),
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
    text_encoder: TextEncoder = None,
    image_encoder: ImageEncoder = None,
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
    from volmin.cli.audit_input import embedded, load_input
    from volmin.cli.columns import column_types, show_columns
    from volmin.cli.label_studio import write_label_studio
    from volmin.cli.progress import TaskProgress
    from volmin.exceptions import ColumnWarning

    chosen_types = column_types(types, text)
    if is_crowd(table, label, annotator, item, group):
        unused = {"--probs": probs, "--clean": clean, "--images": images, "--fdr": fdr, "--label-map": label_map}
        unused |= {
            "--weight": weight,
            "--merge-labels": merge_labels,
            "--model": model != "auto",
            "--reading": reading != "auto",
        }
        audit_votes(
            table, label, annotator, item, group, features=features, ignore=ignore or (), types=chosen_types,
            unused=unused, seed=seed, threads=threads, out=out or Path("audit"), quiet=quiet, as_json=as_json,
        )  # fmt: skip
        return
    with TaskProgress(f"reading {table.name}", quiet=quiet) as progress, warnings.catch_warnings():
        # Imported while the progress is shown, since importing takes a moment.
        from volmin import auditing
        from volmin.cli import encoders
        from volmin.io.arrays import read_array

        # What became of the columns is printed below.
        warnings.simplefilter("ignore", ColumnWarning)
        spelling = Spelling(merge_labels, label_map)
        source = load_input(
            table, label, spelling, images=images, clean=clean, weight=weight, ignore=ignore or (), progress=progress
        )
        if features is not None:
            source = replace(source, features=read_array(features))
        elif image_encoder is not None:
            source = replace(source, features=embedded(source, image_encoder, progress))
        if text_encoder is not None and not source.is_table:
            raise InputError("--text-encoder is for columns of text of a table.")
        given = None if probs is None else read_array(probs)
        found = auditing.audit(
            source.labels,
            probs=given,
            features=None if given is not None else source.features,
            model=model,
            types=chosen_types or None,
            text_encoder=encoders.text_encoder(text_encoder),
            reading=reading,
            sample_weight=source.weights,
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
        show_columns(found.provenance.get("columns", ()))
        _show_and_save(found, source, options, fdr, sample, out, TaskProgress("writing the report", quiet=quiet))
        if label_studio is not None:
            write_label_studio(found, source.examples, source.names, label_studio, fdr)
    if as_json:
        from volmin.cli.machine_readable import print_audit

        print_audit(out, found.issues(fdr).tolist())


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
    files += ", suggestions.csv" if len(found.certainty) else ""
    say(f"\n{duration(found.provenance['seconds'])}; written to {out}: {files}")
    if len(found.issues(fdr)):
        command = shlex.join(["volmin", "audit", str(source.path), *options, "--apply", "decisions.csv"])
        say(
            f"Next: open {out / 'report.html'}, review the flagged labels, download the decisions, and run\n  {command}"
        )
