import json
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

from volmin import methods
from volmin.exceptions import BusyError, LostWorkersError, TrainingDivergedError
from volmin.experiments import grid, run, spec
from volmin.experiments.folder import read_result
from volmin.experiments.plan import _plan, plan
from volmin.experiments.status import read_status, seconds_left
from volmin.io.locks import only_process

CELLS = [("volminnet", 1), ("cross_entropy", 1), ("volminnet", 2)]
VARIABLE = ("seconds", "seconds_per_epoch", "versions")
"""Figures in which two runs of one spec may differ; the source may change between them."""


def specs(epochs=3):
    return [spec.resolve("digits", "pair:0.35", method, seed=seed, epochs=epochs) for method, seed in CELLS]


def results(out):
    found = {path.parent.name: read_result(path.parent) or {} for path in out.glob("*/result.json")}
    return {name: {k: v for k, v in result.items() if k not in VARIABLE} for name, result in found.items()}


@pytest.fixture(scope="module")
def one_by_one(tmp_path_factory, digits):
    """The runs, one after another in this process: every other way must give the same results."""
    out = tmp_path_factory.mktemp("one_by_one")
    for each in specs():
        run.run(run.set_up(each, dataset=digits), out)
    return out


@pytest.mark.cluster
def test_every_method_gives_the_same_bits_in_parallel(tmp_path, digits):
    every = [spec.resolve("digits", "pair:0.35", name, epochs=1) for name in methods.names()]
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("default")  # T is often degenerate after one epoch
        for each in every:
            run.run(run.set_up(each, dataset=digits), tmp_path / "one")
    statuses = grid.run_grid(every, tmp_path / "two", jobs=2)
    assert {status.state for status in statuses} == {"done"}
    for each in every:
        one, two = (each.folder(tmp_path / jobs) / "model.safetensors" for jobs in ("one", "two"))
        assert one.read_bytes() == two.read_bytes(), each.method
    assert results(tmp_path / "one") == results(tmp_path / "two")
    # Finished runs are not touched,
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    grid.run_grid(every, tmp_path / "two", jobs=2)
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    # except for the checkpoint of a process that was killed just after it wrote the result.
    left_over = every[0].folder(tmp_path / "two") / "checkpoint.ckpt"
    left_over.write_bytes(b"last epoch")
    grid.run_grid(every, tmp_path / "two", jobs=2)
    assert not left_over.exists()


class RecordingObserver:
    """Keeps what a grid reports."""

    def __init__(self, on_message=None):
        self.updates, self.messages, self.on_message = [], [], on_message

    def update(self, statuses):
        self.updates.append([(status.epochs_done, status.state) for status in statuses])

    def message(self, title, text):
        self.messages.append((title, text))
        if self.on_message is not None:
            self.on_message(text)


def test_observing_the_runs_does_not_change_them(one_by_one, tmp_path, monkeypatch):
    threads, get = set(), methods.get
    monkeypatch.setattr(grid, "_POLL_SECONDS", 1e-3)
    monkeypatch.setattr(methods, "get", lambda name: threads.add(threading.current_thread()) or get(name))
    _plan.cache_clear()
    grid.run_grid(specs(), tmp_path, jobs=1, observer=RecordingObserver())
    assert threads == {threading.main_thread()}
    assert results(tmp_path) == results(one_by_one)


def test_observer_gets_every_status_and_a_message_per_finished_run(tmp_path, monkeypatch):
    monkeypatch.setattr(grid, "_POLL_SECONDS", 1e-3)
    observer = RecordingObserver()
    grid.run_grid(specs()[:2], tmp_path, jobs=1, observer=observer)
    assert observer.updates[0] == [(0, "missing")] * 2
    assert observer.updates[-1] == [(3, "done")] * 2
    titles = [title for title, text in observer.messages if text.startswith("test ")]
    assert titles == ["volminnet on digits, pair:0.35, seed 1", "cross_entropy on digits, pair:0.35, seed 1"]


@pytest.mark.parametrize("value", [None, "7"])
def test_environment_is_restored(tmp_path, monkeypatch, value):
    if value is None:
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    else:
        monkeypatch.setenv("OMP_NUM_THREADS", value)
    inside = []
    monkeypatch.setattr(grid, "run", lambda *_, **__: inside.append(os.environ["OMP_NUM_THREADS"]) or 1 / 0)
    grid.run_grid(specs()[:1], tmp_path, jobs=1)
    assert inside == ["1"]
    assert os.environ.get("OMP_NUM_THREADS") == value


def test_warnings_of_a_run_are_recorded_and_not_shown(tmp_path, recwarn, capfd):
    degenerate = spec.resolve("digits", "pair:0.35", "volminnet", epochs=30, options={"lam": 0.5})
    observer = RecordingObserver()
    grid.run_grid([degenerate], tmp_path, jobs=1, observer=observer)
    texts = (read_result(degenerate.folder(tmp_path)) or {})["warnings"]
    assert any("nearly singular" in text or "negative determinant" in text for text in texts)
    assert len(texts) == len(set(texts))
    assert len(recwarn) == 0
    assert "warning" not in capfd.readouterr().err
    assert any(f"warning: {texts[0]}" in text for _, text in observer.messages)


def worker_in(out, seconds=120):
    """The process that is working in one of the run folders, as soon as it has saved an epoch."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for lock in out.glob("*/.lock"):
            if (lock.parent / "checkpoint.ckpt").exists():
                for process in psutil.process_iter(["open_files"]):
                    if any(file.path == str(lock) for file in process.info["open_files"] or []):
                        return process
        time.sleep(0.02)
    raise AssertionError(f"no worker within {seconds} s")


def two_specs():
    return specs(60)[:2]


@pytest.mark.cluster
def test_run_of_a_killed_worker_is_resumed(tmp_path):
    killed = []
    killer = threading.Thread(target=lambda: killed.append(worker_in(tmp_path).kill()))
    killer.start()
    statuses = grid.run_grid(two_specs(), tmp_path, jobs=2)
    killer.join()
    assert len(killed) == 1
    assert {status.state for status in statuses} == {"done"}


def start_python(code, *arguments):
    """Start a process that runs code which may import this module."""
    here = str(Path(__file__).parent)
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([here, os.environ.get("PYTHONPATH", "")])},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


CLUSTER = """
import sys
from pathlib import Path
from test_grid import two_specs
from volmin.experiments import grid
if __name__ == "__main__":
    grid.run_grid(two_specs(), Path(sys.argv[1]), jobs=2, backend=sys.argv[2])
"""


@pytest.mark.cluster
@pytest.mark.parametrize(
    "backend",
    [
        pytest.param(name, marks=pytest.mark.skipif(not find_spec(package), reason=f"{name} is not installed"))
        for name, package in (("dask", "distributed"), ("ray", "ray"))
    ],
)
def test_cluster_replaces_a_killed_worker(tmp_path, backend):
    """In another process, because clusters leave threads and open files behind."""
    process = start_python(CLUSTER, tmp_path, backend)
    worker_in(tmp_path).kill()
    output, _ = process.communicate(timeout=280)
    assert process.returncode == 0, output
    assert {read_status(each, tmp_path).state for each in two_specs()} == {"done"}, output


def test_failing_run_is_recorded_and_does_not_stop_the_others(tmp_path, monkeypatch):
    bad, good, _ = specs(2)

    def run_or_fail(experiment, out, share):
        if experiment.spec == bad:
            raise TrainingDivergedError("The loss is not finite in epoch 1.")
        return run.run(experiment, out, share=share)

    with monkeypatch.context() as patch:
        patch.setattr(grid, "run", run_or_fail)
        statuses = grid.run_grid([bad, good], tmp_path, jobs=1)
    assert [status.state for status in statuses] == ["broken", "done"]
    assert statuses[0].remark == "TrainingDivergedError: The loss is not finite in epoch 1."
    again = grid.run_grid([bad, good], tmp_path, jobs=1)
    assert [(status.state, status.error) for status in again] == [("done", None)] * 2


def test_defect_in_a_run_is_recorded_with_its_traceback(tmp_path, monkeypatch):
    monkeypatch.setattr(grid, "run", lambda *_, **__: [][1])
    (status,) = grid.run_grid(specs(2)[:1], tmp_path, jobs=1)
    folder = status.spec.folder(tmp_path)
    assert status.remark.startswith("IndexError: list index out of range (a defect of volmin: please report it with")
    assert "Traceback" in json.loads((folder / "error.json").read_text())["traceback"]


def test_repeated_loss_of_workers_ends_in_one_error(tmp_path, monkeypatch):
    def lose(*arguments, **settings):
        raise OSError("a worker was terminated")

    monkeypatch.setattr(grid, "Parallel", lose)
    with pytest.raises(
        LostWorkersError, match="Workers were lost 3 times .* Is there enough memory for so many --jobs"
    ):
        grid.run_grid(specs(2), tmp_path)


def test_status_and_time_left_are_read_from_the_folders(tmp_path, digits):
    done, broken, missing = specs(3)
    run.run(run.set_up(done, dataset=digits), tmp_path)

    class Killed(BaseException):
        pass

    def kill(history):
        raise Killed

    with pytest.raises(Killed):
        run.run(run.set_up(broken, dataset=digits), tmp_path, on_epoch=kill)
    statuses = [read_status(each, tmp_path) for each in (done, broken, missing)]
    assert [status.state for status in statuses] == ["done", "broken", "missing"]
    assert [status.epochs_done for status in statuses] == [3, 1, 0]
    volminnet, cross_entropy = (sum(status.seconds) / status.epochs_done for status in statuses[:2])
    # Two epochs of cross-entropy and three of VolMinNet are left.
    assert seconds_left(statuses, 1) == pytest.approx(2 * cross_entropy + 3 * volminnet)
    assert seconds_left(statuses, 2) == pytest.approx((2 * cross_entropy + 3 * volminnet) / 2)
    assert seconds_left(statuses[2:], 1) is None


@pytest.mark.parametrize("method", ["t_revision", "co_teaching", "dmi", "ptd", "volminnet"])
def test_number_of_epochs_does_not_need_the_data(method, digits):
    each = spec.resolve("digits", "pair:0.35", method, epochs=6)
    assert plan(each).epochs == run.set_up(each, dataset=digits).epochs


def test_folder_of_another_process_is_not_touched(tmp_path, digits):
    each = specs(2)[0]
    with only_process(each.folder(tmp_path)):
        with pytest.raises(BusyError, match="Another process is"):
            run.run(run.set_up(each, dataset=digits), tmp_path)
        assert not list(each.folder(tmp_path).glob("*.json"))
    assert run.run(run.set_up(each, dataset=digits), tmp_path)["epochs"] == 2


ORPHAN = """
import sys, time
from pathlib import Path
from test_grid import specs
from volmin.experiments import run
out, deadline = Path(sys.argv[1]), time.monotonic() + 60
def work(history):
    while not (out / "go").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
run.run(run.set_up(specs()[2]), out, on_epoch=work)
"""


@pytest.mark.cluster
def test_grid_waits_for_another_process_that_works_on_one_of_its_runs(one_by_one, tmp_path, monkeypatch):
    """The workers of a killed command keep working for a while, and the same command finds them."""

    def release(text):
        if "waiting" in text:
            (tmp_path / "go").touch()

    observer = RecordingObserver(release)
    monkeypatch.setattr(grid, "_POLL_SECONDS", 0.1)
    mine, _, others = specs()
    orphan = start_python(ORPHAN, tmp_path)
    worker_in(tmp_path)
    statuses = grid.run_grid([mine, others], tmp_path, jobs=1, observer=observer)
    output, _ = orphan.communicate(timeout=60)
    assert orphan.returncode == 0, output
    assert {status.state for status in statuses} == {"done"}
    waiting = "another process is working on it; waiting"
    assert observer.messages.count(("volminnet on digits, pair:0.35, seed 2", waiting)) == 1
    expected, names = results(one_by_one), (each.folder(tmp_path).name for each in (mine, others))
    assert results(tmp_path) == {name: expected[name] for name in names}


def test_bad_arguments_are_refused(tmp_path):
    with pytest.raises(ValueError, match="Unknown backend 'slurm'. Choose one of: loky, dask, ray"):
        grid.run_grid(specs(), tmp_path, backend="slurm")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="jobs must be at least 1"):
        grid.run_grid(specs(), tmp_path, jobs=0)
    with pytest.raises(ValueError, match="Unknown noise 'swap:0.3'"):
        grid.run_grid([spec.resolve("digits", "swap:0.3", "volminnet")], tmp_path)
    assert not list(tmp_path.iterdir())


REPRODUCE = (
    *("reproduce", "table1", "--datasets", "digits", "--noises", "pair:0.35", "--seeds", "1"),
    *("--methods", "volminnet,cross_entropy", "--epochs", "60", "--out"),
)


def start_reproduce(out):
    """Start the command in a new session, so that a signal can be sent to its whole process group."""
    return subprocess.Popen(
        [sys.executable, "-m", "volmin", *REPRODUCE, str(out), "--jobs", "2"],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def assert_stopped(process):
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "The same command resumes" in errors
    assert "Traceback" not in errors


@pytest.mark.cluster
def test_interrupted_command_is_resumed_to_the_same_numbers(command, tmp_path):
    process = start_reproduce(tmp_path / "a")
    worker_in(tmp_path / "a")
    os.killpg(process.pid, signal.SIGINT)
    assert_stopped(process)
    assert len(results(tmp_path / "a")) < 2
    for folder in ("a", "b"):
        assert command(*REPRODUCE, tmp_path / folder).code == 0
    assert len(results(tmp_path / "a")) == 2
    assert results(tmp_path / "a") == results(tmp_path / "b")


@pytest.mark.cluster
def test_sigterm_also_stops_the_workers(tmp_path):
    process = start_reproduce(tmp_path)
    worker = worker_in(tmp_path)
    process.terminate()
    assert_stopped(process)
    worker.wait(timeout=60)
    assert len(results(tmp_path)) < 2
