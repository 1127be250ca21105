"""The command line. Heavy imports happen inside the commands, so that help is instant."""

from __future__ import annotations

import json
import shlex
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from volmin.exceptions import InputError

app = typer.Typer(
    name="volmin",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

BAD_INPUT = 2
INTERRUPTED = 130


def main() -> None:
    """Run a command; bad input ends in one line on standard error and exit code 2."""
    warnings.formatwarning = lambda message, *_, **__: f"volmin: warning: {_one_line(str(message))}\n"
    try:
        with _terminated_as_interrupted():
            status = app(standalone_mode=False)
    except typer.TyperException as error:
        _fail(error.format_message())
    except (KeyboardInterrupt, typer.Abort):
        status = INTERRUPTED
    except (ValueError, OSError, ArithmeticError) as error:
        _fail(str(error))
    if status == INTERRUPTED:
        print("volmin: stopped. The same command goes on from the last epoch.", file=sys.stderr)
    sys.exit(status if isinstance(status, int) else 0)


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Let a polite kill, such as a cluster's at the end of the time, stop a command and its workers like Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():  # which alone may say so
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _fail(message: str) -> NoReturn:
    print(f"volmin: {_one_line(message)}", file=sys.stderr)
    sys.exit(BAD_INPUT)


def _one_line(message: str) -> str:
    from volmin.formatting import terminal_safe

    return terminal_safe(" ".join(message.split()))


@app.callback(invoke_without_command=True)
def welcome(context: typer.Context) -> None:
    """Finds out how wrong labels are, and learns as if they were right."""
    if context.invoked_subcommand is None:
        print(context.get_help())


@app.command(epilog="Example: volmin demo --out demo")
def demo(
    out: Annotated[Path, typer.Option(help="Folder for report.html and demo.json.")] = Path(),
    seed: Annotated[int, typer.Option(help="Of the noise, the split and the training.")] = 1,
) -> None:
    """Mislabel 35 % of a small data set, find the noise again, and learn in spite of it. Takes under a minute."""
    from volmin.cli import demo as demonstration

    demonstration.run_demo(out, seed)


@app.command(
    epilog="Example: volmin train --dataset mnist --noise pair:0.45 --method volminnet --seed 1 --data-dir data/mnist",
)
def train(
    dataset: Annotated[
        str, typer.Option(help="See: volmin list datasets; or the path of a table or of a folder of images.")
    ] = "digits",
    noise: Annotated[
        str | None,
        typer.Option(
            help="Noise to put on the labels (see: volmin list noise); pair:0.45 by default, and none on labels that "
            "are noisy already."
        ),
    ] = None,
    label: Annotated[str | None, typer.Option(metavar="COLUMN", help="Of a table: the given labels.")] = None,
    clean: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Of a table: the true labels, where they are known.")
    ] = None,
    ignore: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="Of a table: no feature; repeatable.")
    ] = None,
    images: Annotated[bool, typer.Option("--images", help="The table names image files, to be learned from.")] = False,
    size: Annotated[
        int | None, typer.Option(min=8, max=512, help="Side of images of your own; by default that of the median one.")
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            metavar="FILE[:KEY]", help="Noisy labels of a named data set's training part: .npy, .npz, .csv, .pt."
        ),
    ] = None,
    method: Annotated[str, typer.Option(help="See: volmin list methods; or package.module:Class.")] = "volminnet",
    seed: Annotated[int, typer.Option(min=0, help="Of the noise, the split, the network and the training.")] = 1,
    preset: Annotated[str, typer.Option(help="Settings; see: volmin list presets.")] = "official",
    network: Annotated[
        str | None, typer.Option(help="Another network than the preset's; see: volmin list networks.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Another length of training.")] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="An option of the method; repeatable."),
    ] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Folder with the official files of the data set.")] = None,
    devices: Annotated[int, typer.Option(min=1, help="Number of devices (GPUs, or processes on CPUs).")] = 1,
    threads: Annotated[
        int, typer.Option(min=1, help="Threads of each process; small networks gain little from more than one.")
    ] = 1,
    out: Annotated[Path, typer.Option(help="Folder that holds the run folders.")] = Path("runs"),
) -> None:
    """Train one method on one noisy data set, and keep the result in a run folder.

    The same command run again does nothing; after an interruption it goes on.
    """
    from volmin.cli.runs import train_and_show
    from volmin.experiments import spec
    from volmin.experiments.source import Source

    columns = tuple(ignore or ())
    source = Source(
        dataset, data_dir, label=label, clean=clean, ignore=columns, labels=labels, images=images, size=size
    )
    chosen = spec.resolve(
        source.kind,
        source.check_noise(noise),
        method,
        seed=seed,
        preset=preset,
        network=network,
        epochs=epochs,
        options=dict(_parse_option(text) for text in option or []),
        devices=devices,
        threads=threads,
        data=source.identity(),
        rows=source.rows,
    )
    train_and_show(chosen, out, source)


@app.command(
    epilog="Example: volmin reproduce table1 --datasets mnist --methods volminnet,forward --seeds 2 --jobs 2",
)
def reproduce(
    what: Annotated[
        str, typer.Argument(help="table1, table2, table3, figure1, figure3, figure4, figure5 or ablation.")
    ],
    datasets: Annotated[str | None, typer.Option(help="Only these, separated by commas.")] = None,
    noises: Annotated[str | None, typer.Option(help="Only these, separated by commas.")] = None,
    methods: Annotated[str | None, typer.Option(help="Only these, separated by commas; others may join.")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Seeds 1 to N; the paper's five by default.")] = None,
    preset: Annotated[str, typer.Option(help="Settings; see: volmin list presets.")] = "official",
    epochs: Annotated[int | None, typer.Option(min=1, help="Another length of training, for a quick look.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Runs at the same time, one thread each.")] = 1,
    backend: Annotated[str, typer.Option(help="loky (this machine), dask or ray (a cluster).")] = "loky",
    address: Annotated[
        str | None, typer.Option(help="Of a running dask scheduler or ray head; else one is started here.")
    ] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Folder with the official files of the data sets.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what is done and what is missing.")] = False,
    out: Annotated[Path, typer.Option(help="Folder that holds the run folders and the tables.")] = Path("runs"),
) -> int:
    """Run what a table or figure of the paper needs, and show ours beside the paper's.

    What is finished is not run again; after an interruption, the same command goes on.
    """
    from volmin.cli import runs as commands
    from volmin.experiments import paper

    if what in commands.DRAWINGS:
        return commands.draw_and_show(what, out)
    study = paper.study(what).select(_names(datasets), _names(noises), _names(methods), seeds)
    return commands.reproduce_and_show(
        study,
        out,
        preset=preset,
        epochs=epochs,
        data_dir=data_dir,
        jobs=jobs,
        backend=backend,  # type: ignore[arg-type]
        address=address,
        dry_run=dry_run,
    )


@app.command(epilog="Example: volmin report runs --out report")
def report(
    source: Annotated[Path, typer.Argument(help="A folder of runs, .jsonl records, or the folder of an audit.")],
    out: Annotated[Path | None, typer.Option(help="Where to write; by default beside the source.")] = None,
) -> None:
    """Put finished runs on one page, beside the paper's tables; or write the page of an audit anew.

    The page of an audit shows rows by number: the examples themselves are not kept.
    """
    out = out or (source if source.is_dir() else source.parent)
    if (source / "audit.json").is_file():
        from volmin.auditing.audit import Audit

        Audit.load(source).to_html(out / "report.html")
        print(f"open {out / 'report.html'} to look at it.")
        return
    from volmin.cli import runs as commands

    commands.report_and_show(source, out)


@app.command(
    epilog="Example: volmin audit people.csv --label job; volmin audit photos/; "
    "volmin audit people.csv --label job --apply decisions.csv",
)
def audit(
    table: Annotated[Path, typer.Argument(help="A table (.csv .tsv .parquet .npz), or a folder of images per class.")],
    label: Annotated[str | None, typer.Option(metavar="COLUMN", help="Of a table: the labels to audit.")] = None,
    images: Annotated[bool, typer.Option("--images", help="The table names image files, to be judged by.")] = False,
    probs: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.npy",
            help="(N, C) probabilities by a model of your own that has not seen these labels, columns in the sorted "
            "order of the classes.",
        ),
    ] = None,
    features: Annotated[
        Path | None, typer.Option(metavar="FILE.npy", help="(N, F) numbers to judge by, instead of the columns.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="What judges: network (VolMinNet, the default), logistic, forest or boosting.")
    ] = None,
    clean: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Of a table: the true labels, where they are known.")
    ] = None,
    ignore: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="Of a table: nothing to judge by; repeatable.")
    ] = None,
    fdr: Annotated[
        float, typer.Option(min=0, max=1, help="Share of the flagged labels that may be right after all.")
    ] = 0.1,
    seed: Annotated[int, typer.Option(min=0, help="Of folds, models and samples.")] = 1,
    threads: Annotated[int, typer.Option(min=1, help="To compute with; only large images gain from more.")] = 1,
    apply: Annotated[
        Path | None,
        typer.Option(metavar="FILE.csv", help="Write a copy with the labels corrected as the report's decisions say."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the results (audit by default); with --apply, the corrected copy.")
    ] = None,
) -> None:
    """Find out how wrong the labels are, and which ones; then correct them."""
    from volmin.cli import audit as commands

    if apply is not None:
        commands.apply_and_show(table, label, apply, out)
        return
    commands.audit_and_show(
        table,
        label=label,
        images=images,
        probs=probs,
        features=features,
        model=model,
        clean=clean,
        ignore=ignore or (),
        fdr=fdr,
        seed=seed,
        threads=threads,
        out=out or Path("audit"),
        command=shlex.join(["volmin", *sys.argv[1:]]),
    )


@app.command(name="list", epilog="Example: volmin list methods")
def list_(
    what: Annotated[
        str,
        typer.Argument(
            help="methods, datasets, noise, presets, networks, or the name of a method; all tables by default."
        ),
    ] = "all",
) -> None:
    """Show what there is to choose from."""
    from volmin.cli import catalogue

    catalogue.show(what)


def _names(text: str | None) -> list[str] | None:
    if text is None:
        return None
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise InputError(f"A list of names separated by commas was expected, but {text!r} was given.")
    return names


def _parse_option(text: str) -> tuple[str, Any]:
    """``lam=1e-3`` as a name and a JSON value; what is not JSON is a string."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InputError(f"--set takes NAME=VALUE, but was given {text!r}.")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value
