"""Many runs: on the cores of this machine, or on a cluster. The run folders hold all state.

A run is a function of its spec, takes one thread, and writes a folder of its own, so the number of workers and where
they are change nothing but the time it takes. What is finished is not run again; what was interrupted goes on from its
last epoch; what fails is recorded with its error and does not stop the others; what another process is working on is
waited for.
"""

from __future__ import annotations

import json
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, get_args

import torch
from joblib import Parallel, delayed, parallel_config

from volmin import methods, networks, noise
from volmin.cli.progress import GridProgress
from volmin.exceptions import InputError
from volmin.experiments import no_anchors as anchors
from volmin.experiments.run import read_metrics, read_result, run, set_up, tidy
from volmin.experiments.spec import RunSpec
from volmin.io.atomic import read_json, write_json
from volmin.io.locks import BusyError, is_busy
from volmin.training import Recipe

Backend = Literal["loky", "dask", "ray"]
State = Literal["done", "broken", "missing"]

_ROUNDS = 3
"""How often workers may be lost before giving up."""
_LOOK_EVERY = 2.0
"""Seconds between two looks at the run folders, for the progress display or for what others are doing there."""


@dataclass(frozen=True)
class Standing:
    """How far a run is, as its folder tells."""

    spec: RunSpec
    state: State
    epochs_done: int
    epochs: int
    seconds_per_epoch: float | None
    error: str | None

    @property
    def is_open(self) -> bool:
        """Whether there is something left to run; a run that failed would fail again."""
        return self.state != "done" and self.error is None

    @property
    def remark(self) -> str:
        if self.error:
            return self.error
        return "" if self.state == "missing" else f"epoch {self.epochs_done} of {self.epochs}"


def standing(spec: RunSpec, out: Path) -> Standing:
    """Look at a run's folder."""
    folder = spec.folder(out)
    history = read_metrics(folder)
    epochs = planned_epochs(spec)
    each = fmean(record["seconds"] for record in history) if history else None
    if read_result(folder) is not None:
        return Standing(spec, "done", epochs, epochs, each, None)
    error = _read_error(folder)
    state = "broken" if error or (folder / "spec.json").exists() else "missing"
    return Standing(spec, state, len(history), epochs, each, error)


def planned_epochs(spec: RunSpec) -> int:
    """How many epochs all phases of a run come to; the size of network and data does not matter for that."""
    return _planned_epochs(spec.method, spec.recipe, json.dumps(dict(spec.options), sort_keys=True))


@cache
def _planned_epochs(method: str, recipe: Recipe, options: str) -> int:
    # Remembered, because the thread that shows progress asks again and again, and making a network takes numbers from
    # the generator of a run that may be training in this process.
    with torch.random.fork_rng():
        learner = methods.get(method)(networks.mlp(2, 10), 10, **json.loads(options))
    return sum(phase.epochs for phase in learner.phases(recipe))


def seconds_left(standings: Sequence[Standing], jobs: int) -> float | None:
    """The time that unfinished runs will take, from what epochs of the same method, or of any, took on that data."""
    known: dict[tuple[str, ...], list[float]] = {}
    for one in standings:
        if one.seconds_per_epoch is not None:
            for key in _likeness(one.spec):
                known.setdefault(key, []).append(one.seconds_per_epoch)
    total = 0.0
    for one in standings:
        if one.state != "done":
            found = next((known[key] for key in _likeness(one.spec) if key in known), None)
            if found is None:
                return None
            total += (one.epochs - one.epochs_done) * fmean(found)
    return total / jobs


def _likeness(spec: RunSpec) -> tuple[tuple[str, ...], ...]:
    return (spec.dataset, spec.network, spec.method), (spec.dataset, spec.network)


def run_grid(
    specs: Sequence[RunSpec],
    out: Path,
    *,
    data_dir: Path | None = None,
    jobs: int = 1,
    backend: Backend = "loky",
    address: str | None = None,
) -> list[Standing]:
    """Run what is missing below ``out``, with one progress display; returns how every run stands afterwards.

    Args:
        specs: the runs.
        out: folder of the run folders; on a cluster, one that all workers share.
        data_dir: folder with the official files of the data sets.
        jobs: number of workers.
        backend: ``loky`` for processes on this machine, ``dask`` or ``ray`` for a cluster.
        address: of a running scheduler; by default a cluster of ``jobs`` workers is started on this machine.
    """
    check_backend(backend)
    if jobs < 1:
        raise InputError(f"jobs must be at least 1, but is {jobs}.")
    pending = [spec for spec in specs if read_result(spec.folder(out)) is None]
    for spec in specs:
        if spec not in pending:
            tidy(spec.folder(out))
    if pending:
        _check_inputs(pending, data_dir)
        with _watched(pending, out) as say, _workers(backend, min(jobs, len(pending)), address) as count:
            _run_all(pending, out.absolute(), data_dir.absolute() if data_dir else None, count, say)
    return [standing(spec, out) for spec in specs]


def check_backend(backend: str) -> None:
    """Refuse unknown backends, and those whose package is not installed."""
    if backend not in get_args(Backend):
        raise InputError(f"Unknown backend {backend!r}. Choose one of: {', '.join(get_args(Backend))}.")
    if backend != "loky":
        try:
            __import__("distributed" if backend == "dask" else backend)
        except ImportError:
            raise InputError(f'The backend {backend} is not installed: pip install "volmin[{backend}]".') from None


def _check_inputs(specs: Sequence[RunSpec], data_dir: Path | None) -> None:
    """Find missing files and unknown noise before any worker starts."""
    for name in dict.fromkeys(spec.dataset for spec in specs):
        classes = anchors.load_dataset(name, data_dir).num_classes
        for spec in specs:
            if spec.dataset == name:
                noise.parse(spec.noise, classes, spec.seed)


def _run_all(
    pending: Sequence[RunSpec], out: Path, data_dir: Path | None, workers: int, say: Callable[[str, str], None]
) -> None:
    losses, waited_for = 0, set[str]()
    while pending:
        try:
            # One run a task, handed out as workers become free: runs differ in length by a factor of ten.
            Parallel(n_jobs=workers, batch_size=1, pre_dispatch=str(workers))(  # pyright: ignore[reportArgumentType]
                delayed(_run_one)(spec, out, data_dir) for spec in pending
            )
        except Exception as error:
            # A worker was lost: killed by the system for its memory, say. Whatever it was doing goes on in a new one.
            losses += 1
            if losses == _ROUNDS and _still_open(pending, out):
                lost = f"Workers were lost {_ROUNDS} times ({type(error).__name__}: {error})"
                raise OSError(f"{lost}. Is there memory for so many --jobs? The same command goes on.") from error
        # What is open now is in the hands of others: of another command, or of workers whose command was killed.
        while (pending := _still_open(pending, out)) and all(is_busy(spec.folder(out)) for spec in pending):
            for name in {title(spec) for spec in pending} - waited_for:
                say(name, "another process is at work on it; waiting")
                waited_for.add(name)
            time.sleep(_LOOK_EVERY)


def _still_open(specs: Sequence[RunSpec], out: Path) -> list[RunSpec]:
    return [one.spec for one in (standing(spec, out) for spec in specs) if one.is_open]


def _run_one(spec: RunSpec, out: Path, data_dir: Path | None) -> None:
    """In a worker: one run, and its error in its folder where it fails."""
    folder = spec.folder(out)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run(set_up(spec, data_dir, dataset=_dataset(spec.dataset, data_dir)), out)
        (folder / "error.json").unlink(missing_ok=True)
    except BusyError:
        # Another process works on it: it will finish it, or leave it to be resumed.
        return
    except Exception as error:
        write_json(folder / "spec.json", spec.as_json())
        write_json(folder / "error.json", {"error": type(error).__name__, "message": str(error)})


@lru_cache(maxsize=1)
def _dataset(name: str, data_dir: Path | None) -> Any:
    return anchors.load_dataset(name, data_dir)


def _read_error(folder: Path) -> str | None:
    path = folder / "error.json"
    if not path.exists():
        return None
    content = read_json(path)
    return f"{content.get('error')}: {content.get('message')}"


@contextmanager
def _workers(backend: Backend, jobs: int, address: str | None) -> Iterator[int]:
    """Workers for joblib, and how many there are."""
    # One thread a run. The processes of this machine inherit it; on a cluster, the run itself sets it.
    os.environ["OMP_NUM_THREADS"] = "1"
    if backend == "loky":
        from joblib.externals.loky import get_reusable_executor

        try:
            with parallel_config(backend="loky", inner_max_num_threads=1):
                yield jobs
        finally:
            # Idle workers would keep their memory for minutes, in case there is more to do.
            get_reusable_executor().shutdown()
    elif backend == "dask":
        from distributed import Client

        local = {"n_workers": jobs, "threads_per_worker": 1, "dashboard_address": None}
        with Client(address) if address else Client(**local) as client, parallel_config(backend="dask"):
            yield len(client.scheduler_info()["workers"])
    else:
        import ray
        from ray.util.joblib import register_ray

        # Ray's workers are nice by default; on a busy machine they would starve beside everything else.
        os.environ.setdefault("RAY_worker_niceness", "0")
        local = {"num_cpus": jobs, "include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
        ray.init(address=address) if address else ray.init(**local)
        register_ray()
        try:
            with parallel_config(backend="ray"):
                yield int(ray.cluster_resources()["CPU"])
        finally:
            ray.shutdown()


@contextmanager
def _watched(pending: Sequence[RunSpec], out: Path) -> Iterator[Callable[[str, str], None]]:
    """Show how the runs go on, by looking at their folders: it is the same for workers here and elsewhere.

    Gives a function that says what becomes of a run, by its title.
    """
    standings = [standing(spec, out) for spec in pending]
    stop = threading.Event()
    with GridProgress(sum(one.epochs for one in standings), sum(one.epochs_done for one in standings)) as progress:

        def look() -> None:
            now = [standing(spec, out) for spec in pending]
            for before, after in zip(standings, now, strict=True):
                if (after.state == "done" and before.state != "done") or (after.error and not before.error):
                    progress.finished(title(after.spec), after.error or _outcome(after.spec, out))
            standings[:] = now
            progress.update(sum(one.epochs_done for one in now), sum(not one.is_open for one in now), len(now))

        def watch() -> None:
            while not stop.wait(_LOOK_EVERY):
                look()

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield progress.finished
        finally:
            stop.set()
            watcher.join()
            look()


def title(spec: RunSpec) -> str:
    """A run in a few words."""
    return f"{spec.method} on {spec.dataset}, {spec.noise}, seed {spec.seed}"


def _outcome(spec: RunSpec, out: Path) -> str:
    result = read_result(spec.folder(out)) or {}
    error = result.get("transition_error")
    return f"test {result['accuracy']:.2%}" + ("" if error is None else f", T error {error:.4f}")
