"""The demonstration: VolMinNet and plain cross-entropy on the same mislabelled digits."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from volmin import noise
from volmin._typing import Array
from volmin.data import Dataset, load_dataset
from volmin.experiments import run, spec
from volmin.io.atomic import write_json
from volmin.progress import Progress
from volmin.report import RunPage, write_run_report
from volmin.training import Record
from volmin.transition import as_matrix

NOISE = "pair:0.35"
METHOD, BASELINE = "volminnet", "cross_entropy"
NAMES = {METHOD: "VolMinNet", BASELINE: "cross-entropy"}
"""Their names on the page."""


@dataclass(frozen=True)
class Demo:
    """What the demonstration found."""

    dataset: Dataset
    seed: int
    T: Array
    """(C, C) matrix that made the noise."""
    estimate: Array
    """(C, C) estimate of VolMinNet."""
    results: dict[str, dict[str, Any]]
    """Result by method."""
    histories: dict[str, list[Record]]
    """Records of the epochs by method."""
    seconds: float

    def write(self, out: Path) -> Path:
        """Write ``report.html`` and ``demo.json``, and return the path of the report."""
        report = out / "report.html"
        page = RunPage(
            title="35% of the labels were wrong",
            dataset="Handwritten digits",
            noise=NOISE,
            classes=self.dataset.classes,
            T=self.T,
            estimate=self.estimate,
            results={NAMES[key]: result for key, result in self.results.items()},
            histories={NAMES[key]: history for key, history in self.histories.items()},
            command=f"volmin demo --seed {self.seed}",
        )
        write_run_report(report, page)
        figures = {
            "accuracy": self.results[METHOD]["accuracy"],
            "baseline_accuracy": self.results[BASELINE]["accuracy"],
            "transition_error": self.results[METHOD]["transition_error"],
            "seconds": self.seconds,
        }
        write_json(out / "demo.json", figures)
        return report


def run_demo(seed: int = 1, progress: Progress | None = None) -> Demo:
    """Train both methods on the same noisy digits.

    Args:
        seed: Random seed of the noise, the split, the network and the training.
        progress: Callback for the epochs of each training.
    """
    start = time.perf_counter()
    dataset = load_dataset("digits")
    results, histories, estimate = {}, {}, None
    for name in (METHOD, BASELINE):
        experiment = run.set_up(spec.resolve("digits", NOISE, name, seed=seed), dataset=dataset)

        def after_epoch(history: list[Record], name: str = name, epochs: int = experiment.epochs) -> None:
            histories[name] = history
            if progress is not None:
                progress(name, len(history), epochs)

        with tempfile.TemporaryDirectory() as folder:
            results[name] = run.run(experiment, Path(folder), on_epoch=after_epoch)
        if name == METHOD:
            estimate = experiment.method.transition()
    assert estimate is not None
    T = noise.parse(NOISE, dataset.num_classes)
    return Demo(dataset, seed, T, as_matrix(estimate), results, histories, time.perf_counter() - start)
