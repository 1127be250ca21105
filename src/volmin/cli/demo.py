"""``volmin demo``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from volmin._typing import Array
    from volmin.experiments.demo import Demo


def demo(
    out: Annotated[Path, typer.Option(help="Folder for report.html and demo.json.")] = Path(),
    seed: Annotated[
        int, typer.Option(min=0, help="Random seed of the noise, the split, the network and the training.")
    ] = 1,
) -> None:
    """Mislabel 35 % of a small data set, estimate the noise, and train despite it. Takes under a minute."""
    from volmin.cli.progress import TaskProgress
    from volmin.experiments.demo import run_demo

    print("Handwritten digits; 35 % of the training labels are changed to the next digit.", flush=True)
    with TaskProgress() as progress:
        found = run_demo(seed, progress)
    report = found.write(out)
    _show(found, report)


def _show(found: Demo, report: Path) -> None:
    from volmin.cli.terminal import console, say
    from volmin.experiments.demo import BASELINE, METHOD
    from volmin.formatting import duration

    ours, baseline = found.results[METHOD], found.results[BASELINE]
    shown = console()
    shown.print()
    shown.print(_matrices(found.T, found.estimate))
    shown.print()
    for name, value, remark in (
        ("error of T", f"{ours['transition_error']:.3f}", "(0: exact; 0.7: assuming no noise)"),
        ("estimated noise rate", f"{ours['noise_rate_estimate']:.1%}", ""),
        ("test accuracy, VolMinNet", f"[bold green]{ours['accuracy']:.1%}[/bold green]", ""),
        ("test accuracy, cross-entropy", f"{baseline['accuracy']:.1%}", "(same network, same noisy labels)"),
    ):
        shown.print(f"{name:<33}{value}   {remark}".rstrip())
    say("\nThis noise depends on the digit alone. People err on hard examples: there, volmin audit states a range.")
    say(f"\n{duration(found.seconds)}; open {report} in a browser.")


def _matrices(truth: Array, estimate: Array) -> Table:
    """T and its estimate as percentages; entries below half a percent are dots."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    for name in ("", "T that made the noise", "T estimated from the noisy labels"):
        table.add_column(name, no_wrap=True)
    header = "".join(f"{j:>3}" for j in range(len(truth)))
    table.add_row("", f"[dim]{header}[/dim]", f"[dim]{header}[/dim]")
    for i, rows in enumerate(zip(truth, estimate, strict=True)):
        table.add_row(f"[dim]{i}[/dim]", *(_shaded(row) for row in rows))
    return table


def _shaded(row: Array) -> str:
    cells = []
    for value in row:
        text = f"{100 * value:3.0f}" if value >= 0.005 else "  ·"
        style = "bold green" if value >= 0.5 else "yellow" if value >= 0.1 else "dim"
        cells.append(f"[{style}]{text}[/{style}]")
    return "".join(cells)
