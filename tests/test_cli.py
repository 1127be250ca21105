import json
import signal
import subprocess
import sys
import time

import pytest

from volmin.storage import read_sealed_json

TRAIN = ["train", "--dataset", "digits", "--noise", "pair:0.35", "--seed", "1"]


def volmin(*arguments, timeout=240):
    return subprocess.run(
        [sys.executable, "-m", "volmin", *map(str, arguments)], capture_output=True, text=True, timeout=timeout
    )


def result_of(out):
    (path,) = out.glob("*/result.json")
    return read_sealed_json(path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "--method", "magic"], "Unknown method 'magic'. Choose one of:"),
        (["train", "--dataset", "imagenet"], "Unknown data set 'imagenet'"),
        (["train", "--noise", "swap:0.3"], "Unknown noise 'swap:0.3'"),
        (["train", "--noise", "pair:1.5"], "below 1"),
        (["train", "--set", "lamda=1"], "no option 'lamda'"),
        (["train", "--set", "lam"], "NAME=VALUE"),
        (["train", "--set", "lam=much"], "The option lam of VolMinNet takes float, but was given 'much'"),
        (["train", "--preset", "mine"], "no preset 'mine'"),
        (["train", "--epochs", "0"], "--epochs"),
        (["train", "--epochs", "many"], "--epochs"),
        (["train", "--dataset", "mnist", "--data-dir", "EMPTY"], "No MNIST files in"),
        (["train", "--dataset", "mnist", "--data-dir", "nowhere"], "nowhere does not exist"),
        (["train", "--dataset", "TABLE"], "Name the label column of"),
        (
            ["train", "--dataset", "TABLE", "--label", "kind"],
            "has no column 'kind'. Did you mean 'kinds'? It has: x, kinds",
        ),
        (["train", "--dataset", "TABLE", "--label", "kinds", "--labels", "a.npy"], "leave out --labels"),
        (["train", "--dataset", "TABLE.xlsx", "--label", "kinds"], "or give the path of a table (.csv"),
        (["train", "--dataset", "EMPTY"], "has no folders: put the images of each class into a folder"),
        (["train", "--labels", "nowhere.npy"], "There is no file of labels at nowhere.npy"),
        (["train", "--label", "kinds"], "no columns to choose from"),
        (["list", "colours"], "no list of 'colours'"),
        (["fly"], "No such command"),
        (["reproduce", "table9"], "no 'table9' to reproduce"),
        (["reproduce", "table1", "--methods", "magic"], "Unknown method 'magic'"),
        (["reproduce", "table1", "--datasets", "digits", "--backend", "slurm"], "Unknown backend 'slurm'"),
        (["reproduce", "table1", "--datasets", "digits", "--noises", ","], "separated by commas"),
        (["report", "nowhere"], "nowhere does not exist"),
        (["train", "--wings"], "--wings"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2_and_nothing_is_written(tmp_path, arguments, message):
    (tmp_path / "empty").mkdir()
    (tmp_path / "t.csv").write_text("x,kinds\n1,a\n2,b\n")
    places = {"EMPTY": str(tmp_path / "empty"), "TABLE": str(tmp_path / "t.csv")}
    arguments = [places.get(a, a) for a in arguments]
    if arguments[0] in ("train", "reproduce"):
        arguments += ["--out", str(tmp_path / "runs")]
    done = volmin(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()


def test_training_then_the_same_command_again(tmp_path):
    arguments = [*TRAIN, "--epochs", 3, "--set", "lam=1e-3", "--out", tmp_path]
    first = volmin(*arguments)
    assert first.returncode == 0, first.stderr
    assert "test accuracy" in first.stdout
    assert "epoch 3/3" in first.stderr
    result = result_of(tmp_path)
    again = volmin(*arguments)
    assert "already finished" in again.stdout
    assert result_of(tmp_path) == result


def test_training_on_a_table_of_ones_own(tmp_path):
    rows = "".join(f"{i % 2}.{i % 7},{'<b>yes</b>' if i % 2 else 'no'}\n" for i in range(200))
    (tmp_path / "t.csv").write_text("x,answer\n" + rows, encoding="utf-16")
    arguments = [
        "train",
        "--dataset",
        tmp_path / "t.csv",
        "--label",
        "answer",
        "--epochs",
        3,
        "--out",
        tmp_path / "runs",
    ]
    done = volmin(*arguments)
    assert done.returncode == 0, done.stderr
    assert "accuracy on given test labels" in done.stdout
    assert "T error" not in done.stdout
    assert "noise rate found" in done.stdout
    (folder,) = (tmp_path / "runs").iterdir()
    assert json.loads((folder / "encoder.json").read_text())["classes"] == ["<b>yes</b>", "no"]
    assert "already finished" in volmin(*arguments).stdout


def test_training_on_a_miniature_of_clothing1m(tmp_path, make_clothing1m):
    make_clothing1m(tmp_path)
    done = volmin(
        *("train", "--dataset", "clothing1m", "--data-dir", tmp_path, "--preset", "fast", "--epochs", 1),
        *("--out", tmp_path / "runs"),
    )
    assert done.returncode == 0, done.stderr
    assert "test accuracy" in done.stdout
    assert "unreadable images" in done.stdout
    assert "Traceback" not in done.stderr
    assert result_of(tmp_path / "runs")["test_labels"] == "clean"


def test_a_heavy_volume_is_warned_of_in_one_line(tmp_path):
    done = volmin(*TRAIN, "--epochs", 60, "--set", "lam=0.1", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    (warning,) = [line for line in done.stderr.splitlines() if "warning" in line.lower()]
    assert warning.startswith("volmin: warning: The estimated T is nearly singular")


def test_killed_with_sigkill_and_started_again(tmp_path):
    arguments = [*TRAIN, "--epochs", "60", "--out"]
    assert volmin(*arguments, tmp_path / "whole").returncode == 0
    process = subprocess.Popen(
        [sys.executable, "-m", "volmin", *arguments, str(tmp_path / "killed")], stderr=subprocess.PIPE
    )
    deadline = time.monotonic() + 60
    while not list((tmp_path / "killed").glob("*/checkpoint.ckpt")) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not list((tmp_path / "killed").glob("*/result.json"))
    assert volmin(*arguments, tmp_path / "killed").returncode == 0
    (whole,), (killed,) = ((tmp_path / name).glob("*/transition.npy") for name in ("whole", "killed"))
    assert whole.read_bytes() == killed.read_bytes()
    first, second = (result_of(tmp_path / name) for name in ("whole", "killed"))
    for result in (first, second):
        del result["seconds"], result["seconds_per_epoch"]
    assert first == second


def test_demo_shows_the_noise_and_beats_plain_training(tmp_path):
    done = volmin("demo", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "T that made the noise" in done.stdout
    figures = json.loads((tmp_path / "demo.json").read_text())
    assert figures.keys() == {"accuracy", "baseline_accuracy", "transition_error", "seconds"}
    assert figures["transition_error"] <= 0.15
    assert figures["accuracy"] >= figures["baseline_accuracy"] + 0.15
    page = (tmp_path / "report.html").read_text()
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "<svg" in page


@pytest.mark.parametrize("what", ["methods", "datasets", "noise", "presets", "networks", "volminnet"])
def test_lists(what):
    done = volmin("list", what)
    assert done.returncode == 0
    shown = {
        "methods": "volminnet",
        "datasets": "mnist",
        "noise": "pair:RATE",
        "presets": "official",
        "networks": "resnet18_padded",
    }
    shown["volminnet"] = "--set lam=0.0001"
    assert shown[what] in done.stdout


@pytest.mark.parametrize("command", ["demo", "audit", "train", "list"])
def test_help_has_an_example(command):
    assert "Example: volmin" in volmin(command, "--help").stdout


def test_reproduce_then_a_dry_run_then_a_report(tmp_path):
    grid = ["--datasets", "digits", "--noises", "pair:0.35", "--methods", "cross_entropy", "--epochs", 2]
    done = volmin("reproduce", "table1", *grid, "--seeds", 2, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Cross-entropy" in done.stdout
    files = {path.name for path in tmp_path.iterdir() if path.is_file()}
    assert files == {"table1.md", "table1.tex", "table1.csv", "table1.json", "table1.png"}
    plan = volmin("reproduce", "table1", *grid, "--seeds", 3, "--out", tmp_path, "--dry-run")
    assert "2 done, 0 broken, 1 missing; 3 runs in all." in plan.stdout
    assert "Time left with --jobs 1: about" in plan.stdout
    page = volmin("report", tmp_path, "--out", tmp_path / "page")
    assert page.returncode == 0, page.stderr
    assert "2 finished runs" in page.stdout
    html = (tmp_path / "page" / "report.html").read_text()
    assert html.count("<td>cross_entropy</td>") == 2
    assert len((tmp_path / "page" / "records.jsonl").read_text().splitlines()) == 2
