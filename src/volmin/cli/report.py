"""``volmin report``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from volmin.exceptions import DataError

if TYPE_CHECKING:
    from volmin.experiments.tables import ResultTable
    from volmin.report import Section


def report(
    source: Annotated[
        Path, typer.Argument(help="Folder of runs, .jsonl file of records, or folder of an audit's results.")
    ],
    out: Annotated[Path | None, typer.Option(help="Folder for the report. Default: that of the source.")] = None,
) -> None:
    """Write one page about finished runs, beside the paper's tables; or write the page of an audit again.

    The page of an audit then shows rows by number only, because the examples are not stored.
    """
    out = out or (source if source.is_dir() else source.parent)
    if (source / "audit.json").is_file():
        _report_audit(source, out)
    else:
        _report_runs(source, out)


def _report_audit(source: Path, out: Path) -> None:
    from volmin import Audit
    from volmin.cli.terminal import say

    if (source / "consensus.csv").is_file():
        raise DataError(f"{source} is an audit of several annotators: volmin audit wrote its page, report.html.")
    Audit.load(source).to_html(out / "report.html")
    say(f"open {out / 'report.html'} in a browser.")


def _report_runs(source: Path, out: Path) -> None:
    from volmin.cli.results import show_table
    from volmin.cli.terminal import say
    from volmin.experiments import tables
    from volmin.experiments.records import read_records, write_records
    from volmin.report import write_grid_report

    records = read_records(source)
    if not records:
        raise DataError(f"There is no finished run in {source}: volmin train and volmin reproduce create them.")
    sections = []
    for study in tables.studies_of(records):
        for preset, epochs in tables.settings(study, records):
            table = tables.build_table(study, records, preset, epochs)
            sections.append(_section(table, tables.curves(study, records, preset, epochs)))
            show_table(table)
    write_grid_report(out / "report.html", sections, [(record.spec, record.result) for record in records])
    write_records(out / "records.jsonl", records)
    say(f"{len(records)} finished runs; open {out / 'report.html'} in a browser.")


def _section(table: ResultTable, panels: Mapping[str, Mapping[str, Sequence[Sequence[float]]]]) -> Section:
    from volmin.experiments import render
    from volmin.report import Section
    from volmin.report.figures import curve_panels, svg

    return Section(
        table.study.title,
        render.caption(table),
        {name: (render.columns(table, name), render.texts(table, name)) for name in table.filled_datasets},
        svg(curve_panels(panels, table.study.metric)) if panels else None,
    )
