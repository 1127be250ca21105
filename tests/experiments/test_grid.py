import os
import signal
import subprocess
import sys
import threading
import time
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

from volmin import methods
from volmin.experiments import grid, run, spec
from volmin.io.locks import BusyError, only_process

CELLS = [("volminnet", 1), ("cross_entropy", 1), ("volminnet", 2)]
UNLIKE = ("seconds", "seconds_per_epoch", "versions")
"""What two runs of one spec may differ in: the source may have moved on between them."""


def specs(epochs=3):
    return [spec.resolve("digits", "pair:0.35", method, seed=seed, epochs=epochs) for method, seed in CELLS]


def results(out):
    found = {path.parent.name: run.read_result(path.parent) for path in out.glob("*/result.json")}
    return {name: {k: v for k, v in result.items() if k not in UNLIKE} for name, result in found.items()}


@pytest.fixture(scope="module")
def one_by_one(tmp_path_factory, digits):
    """The runs, one after another in this process: what every way of running them must give."""
    out = tmp_path_factory.mktemp("one_by_one")
    for each in specs():
        run.run(run.set_up(each, dataset=digits), out)
    return out


@pytest.mark.filterwarnings("ignore::volmin.transition.DegenerateTransitionWarning")
def test_every_method_gives_the_same_bits_however_many_runs_go_on_at_once(tmp_path, digits):
    every = [spec.resolve("digits", "pair:0.35", name, epochs=1) for name in methods.names()]
    for each in every:
        run.run(run.set_up(each, dataset=digits), tmp_path / "one")
    standings = grid.run_grid(every, tmp_path / "two", jobs=2)
    assert {one.state for one in standings} == {"done"}
    for each in every:
        one, two = (each.folder(tmp_path / jobs) / "model.safetensors" for jobs in ("one", "two"))
        assert one.read_bytes() == two.read_bytes(), each.method
    assert results(tmp_path / "one") == results(tmp_path / "two")
    # What is finished is left alone.
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    grid.run_grid(every, tmp_path / "two", jobs=2)
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    # But for what a process left that was killed after its result.
    left = every[0].folder(tmp_path / "two") / "checkpoint.ckpt"
    left.write_bytes(b"of the last epoch")
    grid.run_grid(every, tmp_path / "two", jobs=2)
    assert not left.exists()


def test_watching_the_runs_does_not_change_them(one_by_one, tmp_path, monkeypatch):
    found, get = set(), grid.methods.get
    monkeypatch.setattr(grid, "_LOOK_EVERY", 1e-3)
    monkeypatch.setattr(grid.methods, "get", lambda name: found.add(threading.current_thread()) or get(name))
    grid._planned_epochs.cache_clear()
    grid.run_grid(specs(), tmp_path, jobs=1)
    assert found == {threading.main_thread()}
    assert results(tmp_path) == results(one_by_one)


def worker_in(out, seconds=120):
    """The process that works in one of the run folders, once there is one that has saved an epoch."""
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


def test_the_runs_of_a_killed_worker_are_done_again_and_nothing_is_lost(tmp_path):
    killed = []
    killer = threading.Thread(target=lambda: killed.append(worker_in(tmp_path).kill()))
    killer.start()
    standings = grid.run_grid(two_specs(), tmp_path, jobs=2)
    killer.join()
    assert len(killed) == 1
    assert {one.state for one in standings} == {"done"}


def beside(code, *arguments):
    """A process that runs code which may import this module."""
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


@pytest.mark.parametrize(
    "backend",
    [
        pytest.param(name, marks=pytest.mark.skipif(not find_spec(package), reason=f"{name} is not installed"))
        for name, package in (("dask", "distributed"), ("ray", "ray"))
    ],
)
def test_a_cluster_replaces_a_killed_worker(tmp_path, backend):
    """In a process of its own: clusters leave threads and open files behind."""
    process = beside(CLUSTER, tmp_path, backend)
    worker_in(tmp_path).kill()
    output, _ = process.communicate(timeout=280)
    assert process.returncode == 0, output
    assert {grid.standing(each, tmp_path).state for each in two_specs()} == {"done"}, output


def test_a_failing_run_is_recorded_with_its_error_and_stops_no_other(tmp_path, monkeypatch):
    bad, good, _ = specs(2)

    def run_or_fail(experiment, out):
        if experiment.spec == bad:
            raise ArithmeticError("The loss is not finite in epoch 1.")
        return run.run(experiment, out)

    with monkeypatch.context() as patch:
        patch.setattr(grid, "run", run_or_fail)
        standings = grid.run_grid([bad, good], tmp_path, jobs=1)
    assert [one.state for one in standings] == ["broken", "done"]
    assert standings[0].remark == "ArithmeticError: The loss is not finite in epoch 1."
    again = grid.run_grid([bad, good], tmp_path, jobs=1)
    assert [(one.state, one.error) for one in again] == [("done", None)] * 2


def test_workers_that_are_lost_again_and_again_end_in_one_clear_error(tmp_path, monkeypatch):
    def lose(*arguments, **settings):
        raise OSError("a worker was terminated")

    monkeypatch.setattr(grid, "Parallel", lose)
    with pytest.raises(OSError, match="Workers were lost 3 times .* Is there memory for so many --jobs"):
        grid.run_grid(specs(2), tmp_path)


def test_states_are_read_off_the_folders(tmp_path, digits):
    done, broken, missing = specs(3)
    run.run(run.set_up(done, dataset=digits), tmp_path)

    class Killed(BaseException):
        pass

    def kill(history):
        raise Killed

    with pytest.raises(Killed):
        run.run(run.set_up(broken, dataset=digits), tmp_path, on_epoch=kill)
    standings = [grid.standing(each, tmp_path) for each in (done, broken, missing)]
    assert [one.state for one in standings] == ["done", "broken", "missing"]
    assert [one.epochs_done for one in standings] == [3, 1, 0]
    each = standings[0].seconds_per_epoch, standings[1].seconds_per_epoch
    # Two epochs of cross-entropy and three of VolMinNet are left, by what epochs of each have taken.
    assert grid.seconds_left(standings, 1) == pytest.approx(2 * each[1] + 3 * each[0])
    assert grid.seconds_left(standings, 2) == pytest.approx((2 * each[1] + 3 * each[0]) / 2)
    assert grid.seconds_left(standings[2:], 1) is None


@pytest.mark.parametrize("method", ["t_revision", "co_teaching", "dmi", "ptd", "volminnet"])
def test_the_number_of_epochs_is_known_without_the_data(method, digits):
    each = spec.resolve("digits", "pair:0.35", method, epochs=6)
    assert grid.planned_epochs(each) == run.set_up(each, dataset=digits).epochs


def test_a_folder_in_which_another_process_works_is_left_to_it(tmp_path, digits):
    each = specs(2)[0]
    with only_process(each.folder(tmp_path)):
        with pytest.raises(BusyError, match="Another process is at work in"):
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


def test_a_grid_waits_for_a_process_that_is_at_work_on_one_of_its_runs(one_by_one, tmp_path, monkeypatch):
    """The workers of a command that was killed go on for a while, and the same command meets them."""
    told = []

    def finished(self, title, outcome):
        told.append((title, outcome))
        if "waiting" in outcome:
            (tmp_path / "go").touch()

    monkeypatch.setattr(grid.GridProgress, "finished", finished)
    monkeypatch.setattr(grid, "_LOOK_EVERY", 0.1)
    mine, _, others = specs()
    orphan = beside(ORPHAN, tmp_path)
    worker_in(tmp_path)
    standings = grid.run_grid([mine, others], tmp_path, jobs=1)
    output, _ = orphan.communicate(timeout=60)
    assert orphan.returncode == 0, output
    assert {one.state for one in standings} == {"done"}
    waiting = "another process is at work on it; waiting"
    assert told.count(("volminnet on digits, pair:0.35, seed 2", waiting)) == 1
    expected, names = results(one_by_one), (each.folder(tmp_path).name for each in (mine, others))
    assert results(tmp_path) == {name: expected[name] for name in names}


def test_bad_arguments_are_refused(tmp_path):
    with pytest.raises(ValueError, match="Unknown backend 'slurm'. Choose one of: loky, dask, ray"):
        grid.run_grid(specs(), tmp_path, backend="slurm")
    with pytest.raises(ValueError, match="jobs must be at least 1"):
        grid.run_grid(specs(), tmp_path, jobs=0)
    with pytest.raises(ValueError, match="Unknown noise 'swap:0.3'"):
        grid.run_grid([spec.resolve("digits", "swap:0.3", "volminnet")], tmp_path)
    assert not list(tmp_path.iterdir())


REPRODUCE = (
    *("reproduce", "table1", "--datasets", "digits", "--noises", "pair:0.35", "--seeds", "1"),
    *("--methods", "volminnet,cross_entropy", "--epochs", "60", "--out"),
)


def in_a_session_of_its_own(out):
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
    assert "The same command goes on" in errors
    assert "Traceback" not in errors


def test_ctrl_c_stops_and_the_same_command_goes_on_to_the_same_numbers(command, tmp_path):
    process = in_a_session_of_its_own(tmp_path / "a")
    worker_in(tmp_path / "a")
    os.killpg(process.pid, signal.SIGINT)
    assert_stopped(process)
    assert len(results(tmp_path / "a")) < 2
    for folder in ("a", "b"):
        assert command(*REPRODUCE, tmp_path / folder).code == 0
    assert len(results(tmp_path / "a")) == 2
    assert results(tmp_path / "a") == results(tmp_path / "b")


def test_a_polite_kill_stops_the_workers_too(tmp_path):
    process = in_a_session_of_its_own(tmp_path)
    worker = worker_in(tmp_path)
    process.terminate()
    assert_stopped(process)
    worker.wait(timeout=60)
    assert len(results(tmp_path)) < 2
