"""What the command line shows of runs while they work and when they are done.

Figures are imported where they are drawn: training should not wait for matplotlib.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from volmin.cli.progress import EpochProgress
from volmin.exceptions import InputError
from volmin.experiments import tables
from volmin.experiments.grid import Backend, Standing, check_backend, run_grid, seconds_left, standing, title
from volmin.experiments.paper import Study
from volmin.experiments.records import read_records, read_run, write_records
from volmin.experiments.run import read_result, run, set_up, tidy
from volmin.experiments.source import Source
from volmin.experiments.spec import RunSpec
from volmin.experiments.tables import ResultTable, build_table
from volmin.formatting import duration, terminal_safe
from volmin.io.atomic import write_text
from volmin.io.locks import only_process
from volmin.training.devices import launch, lost_processes_reported

if TYPE_CHECKING:
    from volmin.report import Section


def train_and_show(spec: RunSpec, out: Path, source: Source) -> None:
    """Run ``spec`` on its data below ``out`` with progress, and print its result."""
    console = Console(highlight=False)
    folder = spec.folder(out)
    title = terminal_safe(f"{spec.method} on {source.name}, {source.describe(spec.noise)}, seed {spec.seed}")
    if (result := read_result(folder, files=True)) is not None:
        tidy(folder)
        console.print(f"{title}: already finished.", markup=False, soft_wrap=True)
    else:
        experiment = set_up(spec, source.data_dir, source.dataset)
        fabric = launch(spec.devices)
        with lost_processes_reported(fabric), EpochProgress(title, experiment.epochs) as progress:
            result = run(experiment, out, fabric=fabric, on_epoch=progress)
        if not fabric.is_global_zero:
            return
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    accuracy = "test accuracy" if result.get("test_labels") != "given" else "accuracy on given test labels"
    table.add_row(accuracy, f"{result['accuracy']:.2%}", f"(last epoch {result['last_accuracy']:.2%})")
    if result["transition_error"] is not None:
        last = f"(last epoch {result['last_transition_error']:.4f})"
        table.add_row("T error", f"{result['transition_error']:.4f}", last)
    if result["noise_rate_estimate"] is not None:
        table.add_row("noise rate found", f"{result['noise_rate_estimate']:.2%}")
    if count := result.get("unreadable_images"):
        table.add_row("unreadable images", str(count), "left out")
    rule = "the last twentieth is averaged" if result["selection"] == "last" else f"by noisy {result['selection']}"
    table.add_row("chosen epoch", str(result["selected_epoch"]), f"of {result['epochs']}, {rule}")
    each = f"({result['seconds_per_epoch']:.2g} s an epoch)"
    table.add_row("training took", duration(result["seconds"]), each)
    console.print(table)
    console.print(terminal_safe(f"kept in        {folder}"), soft_wrap=True, markup=False)


def reproduce_and_show(
    study: Study,
    out: Path,
    *,
    preset: str = "official",
    epochs: int | None = None,
    data_dir: Path | None = None,
    jobs: int = 1,
    backend: Backend = "loky",
    address: str | None = None,
    dry_run: bool = False,
) -> int:
    """Run what a study lacks, print and write its tables; returns the exit code: 1 where runs failed."""
    console = Console(highlight=False)
    check_backend(backend)
    specs = study.specs(preset, epochs)
    if dry_run:
        _show_plan(console, [standing(spec, out) for spec in specs], jobs)
        return 0
    standings = run_grid(specs, out, data_dir=data_dir, jobs=jobs, backend=backend, address=address)
    records = [record for spec in specs if (record := read_run(spec.folder(out))) is not None]
    table = build_table(study, records, preset, epochs)
    _show_table(console, table)
    written = write_tables(table, out)
    from volmin.report.figures import curve_panels, write_figure

    if panels := tables.curves(study, records, preset, epochs):
        written.append(write_figure(curve_panels(panels, study.metric), out / f"{study.name}.png"))
    told = f"written        {', '.join(path.name for path in written)} in {out}"
    console.print(terminal_safe(told), soft_wrap=True, markup=False)
    failed = [one for one in standings if one.state != "done"]
    for one in failed:
        console.print(terminal_safe(f"{title(one.spec)}: {one.remark}"), markup=False, soft_wrap=True, style="red")
    if failed:
        console.print(f"{len(failed)} of {len(standings)} runs did not finish. The same command tries them again.")
    return 1 if failed else 0


def _show_table(console: Console, table: ResultTable) -> None:
    console.print(f"{tables.caption(table)}.", style="bold", soft_wrap=True)
    for dataset in table.filled_datasets:
        console.print(tables.terminal(table, dataset))
    console.print()


def write_tables(table: ResultTable, out: Path) -> list[Path]:
    """Write a table as Markdown, LaTeX, CSV and JSON."""
    by_dataset = {".md": tables.markdown, ".tex": tables.latex}
    texts = {
        suffix: "\n".join(form(table, dataset) for dataset in table.filled_datasets)
        for suffix, form in by_dataset.items()
    }
    texts |= {".csv": tables.as_csv(table), ".json": tables.as_json(table)}
    paths = [out / f"{table.study.name}{suffix}" for suffix in texts]
    with only_process(out, seconds=60):
        for path, text in zip(paths, texts.values(), strict=True):
            write_text(path, text)
    return paths


def draw_and_show(name: str, out: Path) -> int:
    """Draw a figure of the paper that needs no training."""
    from volmin.report import simplex
    from volmin.report.figures import write_figure

    figure = getattr(simplex, DRAWINGS[name])()
    paths = [write_figure(figure, out / f"{name}{suffix}") for suffix in (".png", ".pdf")]
    told = f"written        {', '.join(map(str, paths))}"
    Console(highlight=False).print(terminal_safe(told), soft_wrap=True, markup=False)
    return 0


DRAWINGS = {"figure1": "minimum_volume_figure", "figure3": "scattered_figure"}


def report_and_show(source: Path, out: Path) -> None:
    """Put all finished runs below ``source`` on one page in ``out``, with the tables and the records as files."""
    from volmin.report import write_grid_report

    console = Console(highlight=False)
    records = read_records(source)
    if not records:
        raise InputError(f"There is no finished run in {source}: volmin train and volmin reproduce make them.")
    sections = []
    for study in tables.studies_of(records):
        for preset, epochs in tables.settings(study, records):
            table = build_table(study, records, preset, epochs)
            sections.append(_section(table, tables.curves(study, records, preset, epochs)))
            _show_table(console, table)
    write_grid_report(out / "report.html", sections, [(record.spec, record.result) for record in records])
    write_records(out / "records.jsonl", records)
    told = f"{len(records)} finished runs; open {out / 'report.html'} to look at them."
    console.print(terminal_safe(told), soft_wrap=True, markup=False)


def _section(table: ResultTable, panels: Mapping[str, Mapping[str, Sequence[Sequence[float]]]]) -> Section:
    from volmin.report import Section
    from volmin.report.figures import curve_panels, svg

    return Section(
        table.study.title,
        tables.caption(table),
        {name: (tables.columns(table, name), tables.texts(table, name)) for name in table.filled_datasets},
        svg(curve_panels(panels, table.study.metric)) if panels else None,
    )


def _show_plan(console: Console, standings: Sequence[Standing], jobs: int) -> None:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("method", "data set", "noise", "seed", "state", ""):
        table.add_column(column, header_style="dim", no_wrap=True)
    colours = {"done": "green", "broken": "yellow", "missing": "dim"}
    for one in standings:
        spec, state = one.spec, f"[{colours[one.state]}]{one.state}[/]"
        table.add_row(spec.method, spec.dataset, spec.noise, str(spec.seed), state, escape(terminal_safe(one.remark)))
    console.print(table)
    counts = Counter(one.state for one in standings)
    console.print(", ".join(f"{counts[state]} {state}" for state in colours) + f"; {len(standings)} runs in all.")
    if counts["done"] < len(standings):
        left = seconds_left(standings, jobs)
        guess = "unknown until a run has begun" if left is None else f"about {duration(left)}"
        console.print(f"Time left with --jobs {jobs}: {guess}.")


def matrices_side_by_side(truth: np.ndarray, estimate: np.ndarray) -> Table:
    """T and its estimate as percentages, entry beside entry; what is below half a percent is a dot."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    for name in ("", "T that made the noise", "T found from the noisy labels"):
        table.add_column(name, no_wrap=True)
    header = "".join(f"{j:>3}" for j in range(len(truth)))
    table.add_row("", f"[dim]{header}[/dim]", f"[dim]{header}[/dim]")
    for i, rows in enumerate(zip(truth, estimate, strict=True)):
        table.add_row(f"[dim]{i}[/dim]", *(_shaded(row) for row in rows))
    return table


def _shaded(row: np.ndarray) -> str:
    cells = []
    for value in row:
        text = f"{100 * value:3.0f}" if value >= 0.005 else "  ·"
        style = "bold green" if value >= 0.5 else "yellow" if value >= 0.1 else "dim"
        cells.append(f"[{style}]{text}[/{style}]")
    return "".join(cells)
