"""``volmin reproduce``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from volmin.exceptions import InputError

if TYPE_CHECKING:
    from volmin.experiments.paper import Study
    from volmin.experiments.spec import RunSpec
    from volmin.experiments.status import RunStatus
    from volmin.training import PrecisionName

DRAWINGS = {"figure1": "minimum_volume_figure", "figure3": "scattered_figure"}
"""Figures of the paper that need no training, and the functions of ``volmin.report.simplex`` that draw them."""


def reproduce(
    what: Annotated[
        str,
        typer.Argument(
            help="Table or figure of the paper: table1, table2, table3, figure1, figure3, figure4, figure5 or ablation."
        ),
    ],
    datasets: Annotated[str | None, typer.Option(help="Data sets to use, separated by commas.")] = None,
    noises: Annotated[str | None, typer.Option(help="Noises to use, separated by commas.")] = None,
    methods: Annotated[
        str | None, typer.Option(help="Methods to use, separated by commas; also ones that the paper does not have.")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Number of seeds, from 1 up. Default: as many as the paper's, mostly 5.")
    ] = None,
    preset: Annotated[str, typer.Option(help="Name of the settings; see: volmin list presets.")] = "official",
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Number of epochs instead of the preset's, for a quick trial.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Number of runs at the same time, with one thread each.")] = 1,
    backend: Annotated[
        str, typer.Option(help="Where to run: loky (processes on this machine), dask or ray (a cluster).")
    ] = "loky",
    address: Annotated[
        str | None,
        typer.Option(help="Address of a running Dask scheduler or Ray head. Default: start one on this machine."),
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder with the official files of the data sets. Default: download them.")
    ] = None,
    accelerate: Annotated[
        bool | None,
        typer.Option(
            "--accelerate/--no-accelerate",
            help="Whether to use accelerated versions of networks. Default: where they are available.",
        ),
    ] = None,
    precision: Annotated[
        str,
        typer.Option(
            help="Arithmetic of the networks: 32, bf16-mixed (faster on CPUs with AVX512-BF16) or 16-mixed; T stays in "
            "single precision."
        ),
    ] = "32",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show which runs are done and which are missing, and run nothing.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Folder of the run folders and the tables.")] = Path("runs"),
) -> int:
    """Run what a table or figure of the paper needs, and show the results beside the paper's.

    Finished runs are not repeated; interrupted ones are resumed by the same command.
    """
    if what in DRAWINGS:
        _draw(what, out)
        return 0
    from volmin.experiments import paper
    from volmin.experiments.status import read_status
    from volmin.experiments.workers import check_backend

    check_backend(backend)
    study = paper.study(what).select(_names(datasets), _names(noises), _names(methods), seeds)
    specs = study.specs(preset, epochs, accelerate, cast("PrecisionName", precision))  # checked there
    if dry_run:
        _show_plan([read_status(spec, out) for spec in specs], jobs)
        return 0
    from volmin.cli.progress import GridProgress, TaskProgress
    from volmin.experiments.grid import run_grid

    with TaskProgress() as preparing, GridProgress(jobs) as progress:
        statuses = run_grid(
            specs,
            out,
            data_dir=data_dir,
            jobs=jobs,
            backend=backend,  # type: ignore[arg-type]
            address=address,
            observer=progress,
            progress=preparing,
        )
    _show_results(study, specs, out, preset, epochs)
    return _show_failures(statuses)


def _names(text: str | None) -> list[str] | None:
    if text is None:
        return None
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise InputError(f"A list of names separated by commas was expected, but {text!r} was given.")
    return names


def _draw(name: str, out: Path) -> None:
    from volmin.cli.terminal import say
    from volmin.report import simplex
    from volmin.report.figures import write_figure

    figure = getattr(simplex, DRAWINGS[name])()
    paths = [write_figure(figure, out / f"{name}{suffix}") for suffix in (".png", ".pdf")]
    say(f"written: {', '.join(map(str, paths))}")


def _show_results(study: Study, specs: Sequence[RunSpec], out: Path, preset: str, epochs: int | None) -> None:
    from volmin.cli.results import show_table
    from volmin.cli.terminal import say
    from volmin.experiments import render, tables
    from volmin.experiments.records import read_run
    from volmin.report.figures import curve_panels, write_figure

    records = [record for spec in specs if (record := read_run(spec.folder(out))) is not None]
    table = tables.build_table(study, records, preset, epochs)
    show_table(table)
    written = render.write_tables(table, out)
    if panels := tables.curves(study, records, preset, epochs):
        written.append(write_figure(curve_panels(panels, study.metric), out / f"{study.name}.png"))
    say(f"written: {', '.join(path.name for path in written)} in {out}")


def _show_failures(statuses: Sequence[RunStatus]) -> int:
    """Print the runs that did not finish, and give the exit code."""
    from volmin.cli.terminal import say
    from volmin.experiments.grid import title

    failed = [status for status in statuses if status.state != "done"]
    for status in failed:
        say(f"{title(status.spec)}: {status.remark}", style="red")
    if failed:
        say(f"{len(failed)} of {len(statuses)} runs did not finish. The same command tries them again.")
    return 1 if failed else 0


def _show_plan(statuses: Sequence[RunStatus], jobs: int) -> None:
    from rich.markup import escape

    from volmin.cli.terminal import console, plain_table
    from volmin.experiments.status import epochs_saved, seconds_left
    from volmin.formatting import duration, terminal_safe

    table = plain_table("method", "data set", "noise", "seed", "state", "")
    colours = {"done": "green", "broken": "yellow", "missing": "dim"}
    for status in statuses:
        spec, state = status.spec, f"[{colours[status.state]}]{status.state}[/]"
        remark = escape(terminal_safe(status.remark))
        table.add_row(spec.method, spec.dataset, spec.noise, str(spec.seed), state, remark)
    shown = console()
    shown.print(table)
    counts = Counter(status.state for status in statuses)
    shown.print(", ".join(f"{counts[state]} {state}" for state in colours) + f"; {len(statuses)} runs in all.")
    if saved := epochs_saved(statuses):
        left = sum(status.epochs - status.epochs_done for status in statuses)
        shown.print(f"Shared plain training saves {saved:,} of the {left:,} epochs that are left.")
    if counts["done"] < len(statuses):
        left = seconds_left(statuses, jobs)
        guess = "unknown until a first epoch has been recorded" if left is None else f"about {duration(left)}"
        shown.print(f"Time left with --jobs {jobs}: {guess}.")
