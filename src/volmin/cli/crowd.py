"""``volmin audit`` of several annotators or groups."""

from __future__ import annotations

import shlex
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from volmin.exceptions import DataError, InputError

if TYPE_CHECKING:
    import polars as pl

    from volmin._typing import AnyArray

Label: TypeAlias = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="Column of the labels to audit; A,B,C if several people labelled.")
]
Features: TypeAlias = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="(N, F) features (.npy) to use instead of columns; with --annotator, a table."),
]
Annotator: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="Column of who gave the label, with one answer per line."),
]
Item: TypeAlias = Annotated[str | None, typer.Option(metavar="COLUMN", help="Column of what was labelled.")]
Group: TypeAlias = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="Column of the source of a label (hospital, year): a T for each.")
]


@dataclass(frozen=True)
class Votes:
    """Labels of several annotators, or of groups, as ``audit_crowd`` takes them.

    Attributes:
        labels: The labels.
        features: Features of the items; None without any.
        groups: Group of each label; None for several annotators.
        names: Names of the items; None for those in ``labels``.
    """

    labels: Any
    features: Any = None
    groups: AnyArray | None = None
    names: AnyArray | None = None


def is_crowd(table: Path, label: str | None, annotator: str | None, item: str | None, group: str | None) -> bool:
    """Whether the options name several annotators or groups; refuses options that do not fit each other."""
    if group is not None and annotator is not None:
        raise InputError("Give --annotator (several answers per item) or --group (one label per row), not both.")
    if annotator is not None and (item is None or label is None):
        raise InputError("--annotator needs --item, the column of what was labelled, and --label, that of the answers.")
    several = label is not None and "," in label and table.is_file() and label not in _header(table)
    if item is not None and annotator is None and not several:
        raise InputError("--item names the items of --annotator, or of several columns in --label a,b,c.")
    return annotator is not None or group is not None or several


def audit_votes(
    table: Path,
    label: str | None,
    annotator: str | None,
    item: str | None,
    group: str | None,
    *,
    features: Path | None,
    ignore: Sequence[str],
    types: Mapping[str, str],
    unused: Mapping[str, Any],
    seed: int,
    threads: int,
    out: Path,
    quiet: bool,
    as_json: bool,
) -> None:
    """Audit the labels of several annotators or groups, print the result and write its files.

    Args:
        table: Table of answers, or of items.
        label: Column of the labels, or several columns separated by commas.
        annotator: Column of the annotators.
        item: Column of the items.
        group: Column of the groups.
        features: Table of items with the column ``item``, or an .npy file.
        ignore: Columns to leave out of the features.
        types: Types of columns of the features.
        unused: Values of options that have no effect here; None or False where they were not given.
        seed: Random seed.
        threads: Number of threads.
        out: Folder for the results.
        quiet: Whether to print nothing.
        as_json: Whether to print the result as JSON.
    """
    if given := [name for name, value in unused.items() if value is not None and value is not False]:
        raise InputError(f"{given[0]} has no effect on an audit of several annotators or groups.")
    if label is None:
        raise DataError(f"Name the label column of {table} with --label.")
    from volmin.cli.columns import show_columns
    from volmin.cli.progress import TaskProgress
    from volmin.cli.terminal import say, silenced
    from volmin.exceptions import ColumnWarning
    from volmin.formatting import duration

    with TaskProgress(f"reading {table.name}", quiet=quiet) as progress, warnings.catch_warnings():
        from volmin.auditing import audit_crowd

        # What became of the columns is printed below.
        warnings.simplefilter("ignore", ColumnWarning)
        votes = _load(table, label, annotator, item, group, features, ignore)
        found = audit_crowd(
            votes.labels,
            features=votes.features,
            groups=votes.groups,
            types=types or None,
            random_state=seed,
            threads=threads,
            progress=progress,
        )
    about = {"title": f"The labels of {table.name}", "command": shlex.join(["volmin", *sys.argv[1:]])}
    found = replace(found, provenance=found.provenance | about)
    found = found if votes.names is None else replace(found, items=votes.names)
    with silenced(quiet or as_json):
        show_columns(found.provenance["columns"])
        say(found.summary())
        import polars as pl

        found.save(out, examples=votes.features if isinstance(votes.features, pl.DataFrame) else None)
        files = "report.html, consensus.csv, annotators.csv, votes.csv, transitions.csv, audit.json"
        say(f"\n{duration(found.provenance['seconds'])}; written to {out}: {files}")
    if as_json:
        print((out / "audit.json").read_text(encoding="utf-8"))


def _header(table: Path) -> list[str]:
    from volmin.data.tables import read_table

    return read_table(table).columns


def _load(
    path: Path,
    label: str,
    annotator: str | None,
    item: str | None,
    group: str | None,
    features: Path | None,
    ignore: Sequence[str],
) -> Votes:
    from volmin.data.tables import check_column, read_table

    frame = read_table(path)
    labels = [label] if label in frame.columns else [name.strip() for name in label.split(",")]
    for name in (*labels, *(name for name in (annotator, item, group) if name is not None), *ignore):
        check_column(frame, name, path)
    if annotator is not None and item is not None:
        return _long(frame, labels[0], annotator, item, features, ignore)
    names = None if item is None else frame[item].to_numpy()
    others = [name for name in frame.columns if name not in (*labels, item, group, *ignore)]
    x: Any = frame.select(others) if others else None
    if features is not None:
        x = _array(features)
    if group is not None:
        from volmin.data.tables import column_labels

        return Votes(column_labels(frame[labels[0]], path), x, frame[group].to_numpy())
    return Votes(frame.select(labels), x, names=names)


def _long(
    frame: pl.DataFrame, label: str, annotator: str, item: str, features: Path | None, ignore: Sequence[str]
) -> Votes:
    """One answer per line; with features, items are numbered by their rows."""
    answers = {"annotator": frame[annotator], "label": frame[label]}
    if features is None:
        return Votes({"item": frame[item], **answers})
    if features.suffix == ".npy":
        return Votes({"item": frame[item], **answers}, _array(features))
    from volmin.data.tables import check_column, read_table

    items = read_table(features)
    check_column(items, item, features)
    keys = [str(name) for name in items[item]]
    rows = {key: row for row, key in enumerate(keys)}
    if len(rows) < len(keys):
        twice = next(key for row, key in enumerate(keys) if rows[key] != row)
        raise DataError(f"{features} has several rows for the item {twice}: keep one of them.")
    if missing := [name for name in frame[item].unique(maintain_order=True) if str(name) not in rows]:
        raise DataError(f"{features} has no row for {len(missing)} of the items that were labelled, e.g. {missing[0]}.")
    numbers = [rows[str(name)] for name in frame[item]]
    x = items.drop(item, *(name for name in ignore if name in items.columns))
    return Votes({"row": numbers, **answers}, x, names=items[item].to_numpy())


def _array(features: Path) -> AnyArray:
    from volmin.io.arrays import read_array

    if features.suffix != ".npy":
        raise InputError(f"{features}: a table of features needs --annotator and --item; give an .npy file otherwise.")
    return read_array(features)
