"""How far runs have got, read from their folders, and how long the rest will take."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Literal

import torch

from volmin import methods, networks
from volmin.experiments.folder import read_metrics, read_result
from volmin.experiments.spec import RunSpec
from volmin.io.atomic import read_json
from volmin.training import Recipe

State = Literal["done", "broken", "missing"]


@dataclass(frozen=True)
class RunStatus:
    """How far a run has got."""

    spec: RunSpec
    state: State
    epochs_done: int
    epochs: int
    seconds_per_epoch: float | None
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
    epochs = planned_epochs(spec)
    each = fmean(record["seconds"] for record in history) if history else None
    if read_result(folder) is not None:
        return RunStatus(spec, "done", epochs, epochs, each, None)
    error = _read_error(folder)
    state = "broken" if error or (folder / "spec.json").exists() else "missing"
    return RunStatus(spec, state, len(history), epochs, each, error)


def _read_error(folder: Path) -> str | None:
    path = folder / "error.json"
    if not path.exists():
        return None
    content = read_json(path)
    defect = f" (a defect of volmin: please report it with {path})" if "traceback" in content else ""
    return f"{content.get('error')}: {content.get('message')}{defect}"


def planned_epochs(spec: RunSpec) -> int:
    """The number of epochs of all phases of a run; it does not depend on the network and the data."""
    return _planned_epochs(spec.method, spec.recipe, json.dumps(dict(spec.options), sort_keys=True))


@cache
def _planned_epochs(method: str, recipe: Recipe, options: str) -> int:
    # Cached, because the thread that shows progress calls this repeatedly, and building a network draws from the
    # global generator of a run that may be training in this process.
    with torch.random.fork_rng():
        learner = methods.get(method)(networks.mlp(2, 10), 10, **json.loads(options))
    return sum(phase.epochs for phase in learner.phases(recipe))


def seconds_left(statuses: Sequence[RunStatus], jobs: int) -> float | None:
    """The time that unfinished runs will take, from the epochs recorded so far on the same data and network.

    Epochs of the same method count if there are any, else those of all methods. None if there are none at all.
    """
    known: dict[tuple[str, ...], list[float]] = {}
    for status in statuses:
        if status.seconds_per_epoch is not None:
            for key in _comparable(status.spec):
                known.setdefault(key, []).append(status.seconds_per_epoch)
    total = 0.0
    for status in statuses:
        if status.state != "done":
            found = next((known[key] for key in _comparable(status.spec) if key in known), None)
            if found is None:
                return None
            total += (status.epochs - status.epochs_done) * fmean(found)
    return total / jobs


def _comparable(spec: RunSpec) -> tuple[tuple[str, ...], ...]:
    """Keys of runs whose epochs take about as long, the closest first."""
    return (spec.dataset, spec.network, spec.method), (spec.dataset, spec.network)
