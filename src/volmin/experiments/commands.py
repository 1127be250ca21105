"""What the command line shows of a run while it works and when it is done."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from lightning_fabric import Fabric
from rich.console import Console
from rich.table import Table

from volmin.experiments.run import read_result, run, set_up
from volmin.experiments.spec import RunSpec
from volmin.progress import EpochProgress, duration


def train_and_show(spec: RunSpec, out: Path, data_dir: Path | None = None) -> None:
    """Run ``spec`` below ``out`` with progress, and print its result."""
    console = Console(highlight=False)
    folder = spec.folder(out)
    title = f"{spec.method} on {spec.dataset}, {spec.noise}, seed {spec.seed}"
    if (result := read_result(folder)) is not None:
        console.print(f"{title}: already finished.")
    else:
        experiment = set_up(spec, data_dir)
        fabric = launch(spec.devices)
        with EpochProgress(title, experiment.epochs) as progress:
            result = run(experiment, out, fabric=fabric, on_epoch=progress)
        if not fabric.is_global_zero:
            return
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_row("test accuracy", f"{result['accuracy']:.2%}", f"(last epoch {result['last_accuracy']:.2%})")
    if result["transition_error"] is not None:
        last = f"(last epoch {result['last_transition_error']:.4f})"
        table.add_row("T error", f"{result['transition_error']:.4f}", last)
        table.add_row("noise rate found", f"{result['noise_rate_estimate']:.2%}")
    rule = "the last ten are averaged" if result["selection"] == "last" else f"by noisy {result['selection']}"
    table.add_row("chosen epoch", str(result["selected_epoch"]), f"of {result['epochs']}, {rule}")
    each = f"({result['seconds_per_epoch']:.2g} s an epoch)"
    table.add_row("training took", duration(result["seconds"]), each)
    console.print(table)
    console.print(f"kept in        {folder}", soft_wrap=True)


def launch(devices: int) -> Fabric:
    """A launched Fabric: one device without ceremony, several as data-parallel processes."""
    fabric = Fabric(devices=devices, strategy="ddp" if devices > 1 else "auto")
    fabric.launch()
    return fabric


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
