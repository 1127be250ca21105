"""How far runs have got, read from their folders, and how long the rest will take.

The time left is the work of the epochs that are left (``plan.Plan.work``) at the recorded speed. Plain training that
several runs share counts once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from volmin.experiments.first_phase import folder_of
from volmin.experiments.folder import read_metrics, read_result
from volmin.experiments.plan import plan, shared_training
from volmin.experiments.spec import RunSpec
from volmin.io.atomic import read_json

State = Literal["done", "broken", "missing"]

_RECENT = 5
"""Number of the latest epochs of a run that tell the speed: other work on a machine slows epochs down for a while."""


@dataclass(frozen=True)
class RunStatus:
    """How far a run has got."""

    spec: RunSpec
    state: State
    epochs_done: int
    epochs: int
    seconds: tuple[float, ...]
    """Time of each epoch that is done."""
    shared_epochs: int
    """Number of epochs of the plain training that the run begins with which are stored below the folder of runs."""
    error: str | None

    @property
    def is_open(self) -> bool:
        """Whether the run is worth starting; one that failed would fail again."""
        return self.state != "done" and self.error is None

    @property
    def remark(self) -> str:
        if self.error:
            return self.error
        return "" if self.state == "missing" else f"epoch {self.epochs_done} of {self.epochs}"


def read_status(spec: RunSpec, out: Path) -> RunStatus:
    """The status of a run, from its folder below ``out``."""
    folder = spec.folder(out)
    history = read_metrics(folder)
    epochs, seconds = plan(spec).epochs, tuple(record["seconds"] for record in history)
    shared = folder_of(spec, out)
    shared_epochs = 0 if shared is None else len(read_metrics(shared))
    if read_result(folder) is not None:
        return RunStatus(spec, "done", epochs, epochs, seconds, shared_epochs, None)
    error = _read_error(folder)
    state = "broken" if error or (folder / "spec.json").exists() else "missing"
    return RunStatus(spec, state, len(history), epochs, seconds, shared_epochs, error)


def _read_error(folder: Path) -> str | None:
    path = folder / "error.json"
    if not path.exists():
        return None
    content = read_json(path)
    defect = f" (a defect of volmin: please report it with {path})" if "traceback" in content else ""
    return f"{content.get('error')}: {content.get('message')}{defect}"


def seconds_left(statuses: Sequence[RunStatus], jobs: int) -> float | None:
    """The time that unfinished runs will take, from the latest epochs of each run on the same data and network.

    Epochs of the same method count if there are any, else those of all methods. None if there are none at all.
    """
    seconds: dict[tuple[str, ...], float] = {}
    work: dict[tuple[str, ...], float] = {}
    for status in statuses:
        if done := len(status.seconds):
            latest = slice(max(0, done - _RECENT), done)
            for key in _comparable(status.spec):
                seconds[key] = seconds.get(key, 0.0) + sum(status.seconds[latest])
                work[key] = work.get(key, 0.0) + sum(plan(status.spec).work[latest])
    total = 0.0
    for status, first in _first_epochs(statuses):
        known = next((key for key in _comparable(status.spec) if key in work), None)
        if known is None:
            return None
        total += sum(plan(status.spec).work[first:]) * seconds[known] / work[known]
    return total / jobs


def epochs_saved(statuses: Sequence[RunStatus]) -> int:
    """The number of epochs that unfinished runs do not repeat, because other runs begin with the same training."""
    return sum(first - status.epochs_done for status, first in _first_epochs(statuses))


def _first_epochs(statuses: Sequence[RunStatus]) -> Iterator[tuple[RunStatus, int]]:
    """Each unfinished run with the number of epochs that precede the first one that it has to train itself."""
    trained: set[str] = set()
    for status in (status for status in statuses if status.state != "done"):
        first, shared = status.epochs_done, shared_training(status.spec)
        if shared is not None and first < (length := shared.recipe.epochs):
            name = shared.folder(Path()).name
            first = max(first, length if name in trained else status.shared_epochs)
            trained.add(name)
        yield status, first


def _comparable(spec: RunSpec) -> tuple[tuple[str, ...], ...]:
    """Keys of runs whose epochs take about as long, the closest first."""
    return (spec.dataset, spec.network, spec.method), (spec.dataset, spec.network)
