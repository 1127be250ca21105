import json
import signal
import subprocess
import sys
import time
import warnings

import pytest

from volmin.io.sealed import read_sealed_json

TRAIN = ["train", "--dataset", "digits", "--noise", "pair:0.35", "--seed", "1"]


def in_a_process(*arguments):
    """A command as a user starts it; most tests call it in theirs, which need not import torch again."""
    return subprocess.run(
        [sys.executable, "-m", "volmin", *map(str, arguments)], capture_output=True, text=True, timeout=240
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
        (["train", "--labels", "nowhere.npy"], "There is no label file at nowhere.npy"),
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
def test_bad_input_is_one_line_and_exit_code_2_and_nothing_is_written(command, tmp_path, arguments, message):
    (tmp_path / "empty").mkdir()
    (tmp_path / "t.csv").write_text("x,kinds\n1,a\n2,b\n")
    places = {"EMPTY": str(tmp_path / "empty"), "TABLE": str(tmp_path / "t.csv")}
    arguments = [places.get(a, a) for a in arguments]
    if arguments[0] in ("train", "reproduce"):
        arguments += ["--out", str(tmp_path / "runs")]
    done = command(*arguments)
    assert done.code == 2
    assert message in done.err
    assert len(done.err.strip().splitlines()) == 1
    assert "Traceback" not in done.err
    assert not (tmp_path / "runs").exists()


def test_training_then_the_same_command_again(command, tmp_path):
    arguments = [*TRAIN, "--epochs", 3, "--set", "lam=1e-3", "--out", tmp_path]
    first = command(*arguments)
    assert first.code == 0, first.err
    assert "test accuracy" in first.out
    assert "epoch 3/3" in first.err
    result = result_of(tmp_path)
    (folder,) = tmp_path.iterdir()
    (folder / "checkpoint.ckpt").write_bytes(b"left by a process that was killed after its result")
    again = command(*arguments)
    assert "already finished" in again.out
    assert result_of(tmp_path) == result
    assert not (folder / "checkpoint.ckpt").exists()


def test_training_on_a_table_of_ones_own(command, tmp_path):
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
    done = command(*arguments)
    assert done.code == 0, done.err
    assert "accuracy on given test labels" in done.out
    assert "T error" not in done.out
    assert "noise rate found" in done.out
    (folder,) = (tmp_path / "runs").iterdir()
    assert json.loads((folder / "encoder.json").read_text())["classes"] == ["<b>yes</b>", "no"]
    assert "already finished" in command(*arguments).out


def test_the_name_of_a_file_neither_steers_the_terminal_nor_styles_it(command, tmp_path):
    table = tmp_path / "\x1b]0;evil\x07 [" / "red].csv"  # to the library that styles texts, [/red] ends a style
    table.parent.mkdir()
    table.write_text("x,answer\n" + "".join(f"{i % 2}.{i % 7},{'ab'[i % 2]}\n" for i in range(200)))
    audit = ("audit", table, "--label", "answer", "--model", "logistic", "--out", table.parent / "red]")
    train = ("train", "--dataset", table, "--method", "cross_entropy", "--epochs", 1, "--out", table.parent / "red]")
    for code, arguments in ((0, audit), (0, (*train, "--label", "answer")), (2, (*train, "--label", "other"))):
        done = command(*arguments)
        assert done.code == code, done.err
        assert all(c.isprintable() or c == "\n" for c in done.out + done.err), arguments
    assert r"\x1b]0;evil\x07 [/red].csv" in done.err
    again = command(*train, "--label", "answer")
    assert r"\x1b]0;evil\x07 [/red].csv, labels as given, seed 1: already finished." in " ".join(again.out.split())


def test_a_warning_is_one_line_that_cannot_steer_the_terminal(command):
    command("--help")
    with warnings.catch_warnings():
        shown = warnings.formatwarning("\x1b[31m two\nlines", UserWarning, "file.py", 1)
    assert shown == "volmin: warning: \\x1b[31m two lines\n"


@pytest.mark.filterwarnings("ignore::volmin.transition.DegenerateTransitionWarning")  # after one epoch
def test_training_on_a_miniature_of_clothing1m(command, tmp_path, make_clothing1m):
    make_clothing1m(tmp_path)
    with pytest.warns(UserWarning, match="images cannot be read and are left out"):
        done = command(
            *("train", "--dataset", "clothing1m", "--data-dir", tmp_path, "--preset", "fast", "--epochs", 1),
            *("--out", tmp_path / "runs"),
        )
    assert done.code == 0, done.err
    assert "test accuracy" in done.out
    assert "unreadable images" in done.out
    assert result_of(tmp_path / "runs")["test_labels"] == "clean"


def test_a_heavy_volume_is_warned_of_in_a_line_when_it_shows_and_in_one_at_the_end(tmp_path):
    done = in_a_process(*TRAIN, "--epochs", 60, "--set", "lam=0.1", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    first, last = [line for line in done.stderr.splitlines() if "warning" in line.lower()]
    assert first.startswith("volmin: warning: The estimated T became nearly singular in epoch")
    # Which side of a singular matrix T ends on is a matter of rounding.
    assert "is nearly singular" in last or "has a negative determinant" in last


def test_killed_with_sigkill_and_started_again(command, tmp_path):
    arguments = [*TRAIN, "--epochs", "60", "--out"]
    assert command(*arguments, tmp_path / "whole").code == 0
    process = subprocess.Popen(
        [sys.executable, "-m", "volmin", *arguments, str(tmp_path / "killed")], stderr=subprocess.PIPE
    )
    deadline = time.monotonic() + 60
    while not list((tmp_path / "killed").glob("*/checkpoint.ckpt")) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not list((tmp_path / "killed").glob("*/result.json"))
    assert command(*arguments, tmp_path / "killed").code == 0
    (whole,), (killed,) = ((tmp_path / name).glob("*/transition.npy") for name in ("whole", "killed"))
    assert whole.read_bytes() == killed.read_bytes()
    first, second = (result_of(tmp_path / name) for name in ("whole", "killed"))
    for result in (first, second):
        del result["seconds"], result["seconds_per_epoch"], result["versions"]
    assert first == second


def test_a_process_of_its_own_ends_in_one_line_too():
    done = in_a_process("fly")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "volmin: No such command 'fly'.\n"


def test_demo_shows_the_noise_and_beats_plain_training(command, tmp_path):
    done = command("demo", "--out", tmp_path)
    assert done.code == 0, done.err
    assert "T that made the noise" in done.out
    figures = json.loads((tmp_path / "demo.json").read_text())
    assert figures.keys() == {"accuracy", "baseline_accuracy", "transition_error", "seconds"}
    assert figures["transition_error"] <= 0.15
    assert figures["accuracy"] >= figures["baseline_accuracy"] + 0.15
    page = (tmp_path / "report.html").read_text()
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "<svg" in page


@pytest.mark.parametrize("what", ["methods", "datasets", "noise", "presets", "networks", "volminnet"])
def test_lists(command, what):
    done = command("list", what)
    assert done.code == 0
    shown = {
        "methods": "volminnet",
        "datasets": "mnist",
        "noise": "pair:RATE",
        "presets": "official",
        "networks": "resnet18_padded",
    }
    shown["volminnet"] = "--set lam=0.0001"
    assert shown[what] in done.out


@pytest.mark.parametrize("name", ["demo", "audit", "train", "list"])
def test_help_has_an_example(command, name):
    assert "Example: volmin" in command(name, "--help").out


def test_reproduce_then_a_dry_run_then_a_report(command, tmp_path):
    grid = ["--datasets", "digits", "--noises", "pair:0.35", "--methods", "cross_entropy", "--epochs", 2]
    done = command("reproduce", "table1", *grid, "--seeds", 2, "--out", tmp_path)
    assert done.code == 0, done.err
    assert "Cross-entropy" in done.out
    files = {path.name for path in tmp_path.iterdir() if path.is_file()}
    assert files == {"table1.md", "table1.tex", "table1.csv", "table1.json", "table1.png"}
    plan = command("reproduce", "table1", *grid, "--seeds", 3, "--out", tmp_path, "--dry-run")
    assert "2 done, 0 broken, 1 missing; 3 runs in all." in plan.out
    assert "Time left with --jobs 1: about" in plan.out
    page = command("report", tmp_path, "--out", tmp_path / "page")
    assert page.code == 0, page.err
    assert "2 finished runs" in page.out
    html = (tmp_path / "page" / "report.html").read_text()
    assert html.count("<td>cross_entropy</td>") == 2
    assert len((tmp_path / "page" / "records.jsonl").read_text().splitlines()) == 2
