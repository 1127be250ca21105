"""The demonstration: mislabel a small data set, find the noise again, and learn in spite of it."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from rich.console import Console

from volmin import noise
from volmin.cli.progress import EpochProgress
from volmin.cli.runs import matrices_side_by_side
from volmin.data import load_dataset
from volmin.experiments import run, spec
from volmin.formatting import duration
from volmin.io.atomic import write_json
from volmin.report import RunPage, write_run_report
from volmin.training import Record
from volmin.transition import as_matrix

NOISE = "pair:0.35"
METHODS = ("volminnet", "cross_entropy")


def run_demo(out: Path, seed: int = 1) -> None:
    """Train VolMinNet and plain cross-entropy on the same noisy digits; print and write what came of it."""
    start = time.perf_counter()
    console = Console(highlight=False)
    dataset = load_dataset("digits")
    console.print(f"{len(dataset.train):,} handwritten digits; 35 % of their labels moved to the next digit.")

    experiments = {
        name: run.set_up(spec.resolve("digits", NOISE, name, seed=seed), dataset=dataset) for name in METHODS
    }
    results, histories = {}, {}
    for name, experiment in experiments.items():
        with tempfile.TemporaryDirectory() as folder, EpochProgress(name, experiment.epochs) as progress:

            def keep(history: list[Record], name: str = name, progress: EpochProgress = progress) -> None:
                histories[name] = history
                progress(history)

            results[name] = run.run(experiment, Path(folder), on_epoch=keep)

    found, plain = (results[name] for name in METHODS)
    T = noise.parse(NOISE, dataset.num_classes)
    estimate = as_matrix(experiments["volminnet"].method.transition())  # type: ignore[arg-type]
    seconds = time.perf_counter() - start

    report, figures = out / "report.html", out / "demo.json"
    page = RunPage(
        title="35 % of the labels were wrong",
        dataset="Handwritten digits",
        noise=NOISE,
        classes=dataset.classes,
        T=T,
        estimate=estimate,
        results=results,
        histories=histories,
        command=f"volmin demo --seed {seed}",
    )
    write_run_report(report, page)
    write_json(
        figures,
        {
            "accuracy": found["accuracy"],
            "baseline_accuracy": plain["accuracy"],
            "transition_error": found["transition_error"],
            "seconds": seconds,
        },
    )
    console.print()
    console.print(matrices_side_by_side(T, estimate))
    console.print()
    for name, value, remark in (
        ("error of T", f"{found['transition_error']:.3f}", "(0 is exact, 0.7 is no noise assumed)"),
        ("noise rate found", f"{found['noise_rate_estimate']:.1%}", ""),
        ("test accuracy, VolMinNet", f"[bold green]{found['accuracy']:.1%}[/bold green]", ""),
        ("test accuracy, cross-entropy", f"{plain['accuracy']:.1%}", "(same network, same noisy labels)"),
    ):
        console.print(f"{name:<33}{value}   {remark}".rstrip())
    console.print(f"\n{duration(seconds)}; open {report} to look at it.")
