import json
import re
import signal
import subprocess
import sys
import time
import warnings
from typing import Any

import pytest
import typer

import volmin
from volmin.cli import app
from volmin.exceptions import InputError
from volmin.io.sealed import read_sealed_json

TRAIN = ["train", "--dataset", "digits", "--noise", "pair:0.35", "--seed", "1"]


def run_process(*arguments):
    """Run a command in a new process; most tests run it in their own, which does not import torch again."""
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
        (["list", "colours"], "Cannot list 'colours'"),
        (["fly"], "No such command"),
        (["reproduce", "table9"], "Unknown table or figure 'table9'"),
        (["reproduce", "table1", "--methods", "magic"], "Unknown method 'magic'"),
        (["reproduce", "table1", "--datasets", "digits", "--backend", "slurm"], "Unknown backend 'slurm'"),
        (["reproduce", "table1", "--datasets", "digits", "--noises", ","], "separated by commas"),
        (["report", "nowhere"], "nowhere does not exist"),
        (["train", "--wings"], "--wings"),
        (["train", "--network", "mlp", "--accelerate"], "accelerated version of the network mlp is not available"),
        (["demo", "--seed", "-1"], "--seed"),
    ],
)
def test_bad_input_ends_in_one_line_and_exit_code_2(command, tmp_path, arguments, message):
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


def test_finished_run_is_not_repeated(command, tmp_path):
    arguments = [*TRAIN, "--epochs", 3, "--set", "lam=1e-3", "--out", tmp_path]
    first = command(*arguments)
    assert first.code == 0, first.err
    assert "test accuracy" in first.out
    assert "epoch 3/3" in first.err
    result = result_of(tmp_path)
    (folder,) = tmp_path.iterdir()
    (folder / "checkpoint.ckpt").write_bytes(b"of a process that was killed after it wrote the result")
    again = command(*arguments)
    assert "already finished" in again.out
    assert result_of(tmp_path) == result
    assert not (folder / "checkpoint.ckpt").exists()


def test_training_on_a_table(command, tmp_path):
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
    assert "estimated noise rate" in done.out
    (folder,) = (tmp_path / "runs").iterdir()
    assert json.loads((folder / "encoder.json").read_text())["classes"] == ["<b>yes</b>", "no"]
    assert "already finished" in command(*arguments).out


def test_the_error_of_the_last_epoch_is_that_of_the_trained_t(command, tmp_path):
    arguments = ("train", "--dataset", "digits", "--epochs", 3, "--out", tmp_path)
    assert "before recalibration" not in command(*arguments).out
    done = command(*arguments, "--set", "recalibrate=true")
    assert done.code == 0, done.err
    (line,) = (line for line in done.out.splitlines() if line.startswith("T error"))
    assert ", before recalibration)" in line


def test_file_names_cannot_control_the_terminal(command, tmp_path):
    table = tmp_path / "\x1b]0;evil\x07 [" / "red].csv"  # in rich's markup, [/red] ends a style
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


def test_warning_is_one_line_that_cannot_control_the_terminal(command):
    command("--help")
    with warnings.catch_warnings():
        shown = warnings.formatwarning("\x1b[31m two\nlines", UserWarning, "file.py", 1)
    assert shown == "volmin: warning: \\x1b[31m two lines\n"


@pytest.mark.filterwarnings("ignore::volmin.transition.DegenerateTransitionWarning")  # after one epoch
@pytest.mark.slow
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


@pytest.mark.cluster
def test_collapse_of_T_is_warned_of_at_once_and_at_the_end(tmp_path):
    done = run_process(*TRAIN, "--epochs", 60, "--set", "lam=0.1", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    first, last = [line for line in done.stderr.splitlines() if "warning" in line.lower()]
    assert first.startswith("volmin: warning: The estimated T became nearly singular in epoch")
    # The sign of a tiny determinant depends on rounding.
    assert "is nearly singular" in last or "has a negative determinant" in last


@pytest.mark.cluster
def test_killed_command_is_resumed_to_the_same_bits(command, tmp_path):
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


def test_error_of_a_new_process_is_one_line():
    done = run_process("fly")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "volmin: No such command 'fly'.\n"


@pytest.mark.slow
def test_demo_finds_the_noise_and_beats_plain_training(command, tmp_path):
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


def test_list_of_methods_is_not_cut_on_a_terminal_of_80_columns(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    shown = command("list", "methods").out
    assert "…" not in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert len(shown.splitlines()) < 10 * len(volmin.methods.names())


COMMANDS = ("demo", "audit", "train", "predict", "reproduce", "report", "list")


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_an_example_and_complete_phrases(command, name):
    shown = command(name, "--help").out
    assert "Example: volmin" in shown
    group: Any = typer.main.get_command(app)
    helps = [parameter.help for parameter in group.commands[name].params]
    assert len(helps) > 0
    for text in helps:
        assert text[0].isupper() or text[0] == "(", text
        assert text.endswith("."), text


def test_every_command_is_listed_with_its_purpose(command):
    shown = command("--help").out
    for name in COMMANDS:
        assert re.search(rf"^  {name} +[A-Z].*\.$", shown, re.MULTILINE), name
    assert "..." not in shown.partition("Commands:")[2]


def test_version(command):
    assert command("--version") == (0, f"volmin {volmin.__version__}\n", "")


def test_help_imports_neither_torch_nor_rich():
    code = "import sys, volmin.cli; print(sorted({'torch', 'numpy', 'rich'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def raising(error):
    def fail(*_, **__):
        raise error

    return fail


def test_internal_error_is_shown_as_a_defect_with_its_traceback(command, monkeypatch):
    """A plain ValueError is not bad input: the package raises its own exceptions for that."""
    monkeypatch.setattr("volmin.experiments.spec.resolve", raising(ValueError("operands could not be broadcast")))
    done = command("train")
    assert done.code == 1
    assert "Traceback" in done.err
    assert "ValueError: operands could not be broadcast" in done.err
    assert done.err.splitlines()[-1] == "volmin: this is a defect of volmin: please report it with the lines above."


@pytest.mark.parametrize("error", [InputError("too few rows"), OSError(28, "No space left on device")])
def test_debug_shows_the_traceback_of_every_error(command, monkeypatch, error):
    monkeypatch.setattr("volmin.experiments.spec.resolve", raising(error))
    plain, debug = command("train"), command("--debug", "train")
    assert plain.code == debug.code == 2
    assert plain.err == f"volmin: {error}\n"
    assert "Traceback" in debug.err
    assert debug.err.endswith(plain.err)


def test_interruption_says_how_to_resume(command, monkeypatch):
    monkeypatch.setattr("volmin.experiments.spec.resolve", raising(KeyboardInterrupt()))
    assert command("train") == (130, "", "volmin: stopped. The same command resumes from the last epoch.\n")


def test_warnings_of_a_finished_run_are_printed_again(command, tmp_path, recwarn):
    arguments = [*TRAIN, "--epochs", 30, "--set", "lam=0.5", "--out", tmp_path]
    warnings.simplefilter("default")
    assert command(*arguments).code == 0
    (text, *_) = result_of(tmp_path)["warnings"]
    assert text in [str(warning.message) for warning in recwarn]
    again = command(*arguments)
    assert "already finished" in again.out
    assert f"warning: {text}" in again.out


def test_reproduce_dry_run_and_report(command, tmp_path):
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
