"""Many runs, on the cores of this machine or on a cluster. The run folders hold all state.

A run is a function of its spec, takes one thread, and writes its own folder, so results do not depend on the number of
workers or on where they are. Finished runs are not repeated; interrupted ones resume from their last epoch; a failing
one is recorded with its error and does not stop the others; one that another process is working on is waited for. Plain
training that several runs begin with is done once.
"""

from __future__ import annotations

import logging
import threading
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from joblib import Parallel, delayed

from volmin import noise
from volmin.data import Dataset
from volmin.exceptions import BusyError, InputError, LostWorkersError, VolminError
from volmin.experiments.folder import read_result, tidy
from volmin.experiments.run import run, set_up
from volmin.experiments.source import load_named
from volmin.experiments.spec import RunSpec
from volmin.experiments.status import RunStatus, read_status
from volmin.experiments.workers import Backend, check_backend, worker_pool
from volmin.io.atomic import write_json
from volmin.io.locks import is_busy
from volmin.progress import Progress

logger = logging.getLogger(__name__)

_MAX_LOSSES = 3
"""How often workers may be lost before the grid gives up."""
_POLL_SECONDS = 2.0
"""Seconds between two readings of the run folders, for progress and for runs of other processes."""


class Observer(Protocol):
    """Receives the progress of a grid."""

    def update(self, statuses: Sequence[RunStatus]) -> None:
        """Called every few seconds, in another thread, with the status of every run that was pending at the start."""

    def message(self, title: str, text: str) -> None:
        """Called when a run has ended or is waited for; ``title`` names the run."""


class _NoObserver:
    def update(self, statuses: Sequence[RunStatus]) -> None: ...

    def message(self, title: str, text: str) -> None: ...


def run_grid(
    specs: Sequence[RunSpec],
    out: Path,
    *,
    data_dir: Path | None = None,
    jobs: int = 1,
    backend: Backend = "loky",
    address: str | None = None,
    observer: Observer | None = None,
    progress: Progress | None = None,
) -> list[RunStatus]:
    """Run what is missing below ``out`` and return the status of every run.

    Args:
        specs: Runs of the grid.
        out: Folder of the run folders; on a cluster, one that all workers share.
        data_dir: Folder with the official files of the data sets.
        jobs: Number of workers.
        backend: ``loky`` for processes on this machine, ``dask`` or ``ray`` for a cluster.
        address: Address of a running scheduler; by default a cluster of ``jobs`` workers is started on this machine.
        observer: Receiver of the runs' progress.
        progress: Callback for the preparation of data sets.
    """
    check_backend(backend)
    if jobs < 1:
        raise InputError(f"jobs must be at least 1, but is {jobs}.")
    observer = observer or _NoObserver()
    pending = [spec for spec in specs if read_result(spec.folder(out)) is None]
    for spec in specs:
        if spec not in pending:
            tidy(spec.folder(out))
    if pending:
        _check_inputs(pending, data_dir, progress)
        with _observed(pending, out, observer), worker_pool(backend, min(jobs, len(pending)), address) as count:
            _run_all(pending, out.absolute(), data_dir.absolute() if data_dir else None, count, observer)
    return [read_status(spec, out) for spec in specs]


def title(spec: RunSpec) -> str:
    """A run in a few words."""
    return f"{spec.method} on {spec.dataset}, {spec.noise}, seed {spec.seed}"


def _check_inputs(specs: Sequence[RunSpec], data_dir: Path | None, progress: Progress | None) -> None:
    """Find missing files and unknown noise before any worker starts."""
    for name, accelerated in dict.fromkeys((spec.dataset, spec.accelerated) for spec in specs):
        classes = load_named(name, data_dir, accelerated=accelerated, progress=progress).num_classes
        for spec in specs:
            if spec.dataset == name:
                noise.parse(spec.noise, classes, spec.seed)


def _run_all(pending: Sequence[RunSpec], out: Path, data_dir: Path | None, workers: int, observer: Observer) -> None:
    losses, waited_for = 0, set[str]()
    while pending:
        try:
            # One run per task, assigned as workers become free: runs differ in length by a factor of ten.
            Parallel(n_jobs=workers, batch_size=1, pre_dispatch=str(workers))(  # pyright: ignore[reportArgumentType]
                delayed(_run_one)(spec, out, data_dir) for spec in pending
            )
        except Exception as error:
            # Errors of a run end in its folder, so this is the loss of a worker, for which each backend has its own
            # exceptions. The operating system may have killed it for its memory; a new one resumes its run.
            losses += 1
            logger.warning("A worker was lost (%s: %s).", type(error).__name__, error)
            if losses == _MAX_LOSSES and _still_open(pending, out):
                lost = f"Workers were lost {_MAX_LOSSES} times ({type(error).__name__}: {error})"
                raise LostWorkersError(
                    f"{lost}. Is there enough memory for so many --jobs? The same command resumes the runs."
                ) from error
        # Runs that are still open belong to other processes: another command, or workers whose command was killed.
        while (pending := _still_open(pending, out)) and all(is_busy(spec.folder(out)) for spec in pending):
            for name in {title(spec) for spec in pending} - waited_for:
                observer.message(name, "another process is working on it; waiting")
                waited_for.add(name)
            time.sleep(_POLL_SECONDS)


def _still_open(specs: Sequence[RunSpec], out: Path) -> list[RunSpec]:
    return [status.spec for status in (read_status(spec, out) for spec in specs) if status.is_open]


def _run_one(spec: RunSpec, out: Path, data_dir: Path | None) -> None:
    """Train one run in a worker, and write its error into its folder if it fails."""
    folder = spec.folder(out)
    try:
        with _silent_warnings():
            run(set_up(spec, data_dir, dataset=_dataset(spec.dataset, data_dir, spec.accelerated)), out, share=True)
        (folder / "error.json").unlink(missing_ok=True)
    except BusyError:
        # Another process is working on it and will finish it, or leave it to be resumed.
        return
    except Exception as error:
        failure = {"error": type(error).__name__, "message": str(error)}
        if not isinstance(error, VolminError | OSError):
            failure["traceback"] = traceback.format_exc()
        write_json(folder / "spec.json", spec.as_json())
        write_json(folder / "error.json", failure)


@contextmanager
def _silent_warnings() -> Iterator[None]:
    """Do not show warnings, but let the run record them."""
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.showwarning = lambda *_, **__: None
        yield


@lru_cache(maxsize=1)
def _dataset(name: str, data_dir: Path | None, accelerated: bool) -> Dataset:
    return load_named(name, data_dir, accelerated=accelerated)


@contextmanager
def _observed(pending: Sequence[RunSpec], out: Path, observer: Observer) -> Iterator[None]:
    """Report progress by reading the run folders, which works for workers on this machine and elsewhere."""
    statuses = [read_status(spec, out) for spec in pending]
    stop = threading.Event()

    def look() -> None:
        now = [read_status(spec, out) for spec in pending]
        for before, after in zip(statuses, now, strict=True):
            if (after.state == "done" and before.state != "done") or (after.error and not before.error):
                observer.message(title(after.spec), after.error or _outcome(after.spec, out))
        statuses[:] = now
        observer.update(now)

    def watch() -> None:
        while not stop.wait(_POLL_SECONDS):
            look()

    observer.update(statuses)
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        stop.set()
        watcher.join()
        look()


def _outcome(spec: RunSpec, out: Path) -> str:
    result = read_result(spec.folder(out)) or {}
    error = result.get("transition_error")
    text = f"test {result['accuracy']:.2%}" + ("" if error is None else f", T error {error:.4f}")
    return text + "".join(f"; warning: {warning}" for warning in result.get("warnings", ()))
