"""Worker processes for many runs: on this machine by loky, on a cluster by Dask or Ray."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, get_args

from joblib import parallel_config

from volmin.exceptions import InputError

Backend = Literal["loky", "dask", "ray"]


def check_backend(backend: str) -> None:
    """Refuse unknown backends, and those whose package is not installed."""
    if backend not in get_args(Backend):
        raise InputError(f"Unknown backend {backend!r}. Choose one of: {', '.join(get_args(Backend))}.")
    if backend != "loky":
        try:
            __import__("distributed" if backend == "dask" else backend)
        except ImportError:
            raise InputError(f'The backend {backend} is not installed: pip install "volmin[{backend}]".') from None


@contextmanager
def worker_pool(backend: Backend, jobs: int, address: str | None) -> Iterator[int]:
    """Make joblib use these workers, and give their number."""
    # One thread per run. Local worker processes inherit this; on a cluster, the run itself limits its threads.
    with (
        _environment(OMP_NUM_THREADS="1"),
        {"loky": _loky, "dask": _dask, "ray": _ray}[backend](jobs, address) as count,
    ):
        yield count


@contextmanager
def _loky(jobs: int, address: str | None) -> Iterator[int]:
    from joblib.externals.loky import get_reusable_executor

    try:
        with parallel_config(backend="loky", inner_max_num_threads=1):
            yield jobs
    finally:
        # Idle workers would otherwise keep their memory for minutes.
        get_reusable_executor().shutdown()


@contextmanager
def _dask(jobs: int, address: str | None) -> Iterator[int]:
    from distributed import Client

    local = {"n_workers": jobs, "threads_per_worker": 1, "dashboard_address": None}
    with Client(address) if address else Client(**local) as client, parallel_config(backend="dask"):
        yield len(client.scheduler_info()["workers"])


@contextmanager
def _ray(jobs: int, address: str | None) -> Iterator[int]:
    import ray
    from ray.util.joblib import register_ray

    # Ray's workers have a low priority by default and would starve on a busy machine.
    niceness = os.environ.get("RAY_worker_niceness", "0")  # noqa: SIM112  (the name is Ray's)
    with _environment(RAY_worker_niceness=niceness):
        local = {"num_cpus": jobs, "include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
        ray.init(address=address) if address else ray.init(**local)
        register_ray()
        try:
            with parallel_config(backend="ray"):
                yield int(ray.cluster_resources()["CPU"])
        finally:
            ray.shutdown()


@contextmanager
def _environment(**variables: str) -> Iterator[None]:
    """Set environment variables within a block, and restore them after it."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
