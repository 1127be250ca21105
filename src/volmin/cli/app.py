"""The application: its commands, and how errors end it."""

from __future__ import annotations

import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

import typer

from volmin.cli.audit import audit
from volmin.cli.demo import demo
from volmin.cli.list import list_
from volmin.cli.predict import predict
from volmin.cli.report import report
from volmin.cli.reproduce import reproduce
from volmin.cli.train import train
from volmin.exceptions import VolminError

DEFECT = 1
BAD_INPUT = 2
INTERRUPTED = 130

app = typer.Typer(
    name="volmin",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(
    short_help="Estimate the noise in mislabelled digits.",
    epilog="Example: volmin demo --out demo",
)(demo)
app.command(
    short_help="Find wrong labels in your data.",
    epilog="Example: volmin audit people.csv --label job; volmin audit photos/; "
    "volmin audit people.csv --label job --apply decisions.csv",
)(audit)
app.command(
    short_help="Train a method on noisy labels.",
    epilog="Example: volmin train --dataset mnist --noise pair:0.45 --method volminnet --seed 1 --data-dir data/mnist",
)(train)
app.command(
    short_help="Predict labels with a trained run.",
    epilog="Example: volmin predict runs/people-none-volminnet-s1-1a2b3c4d new.csv --out predictions.csv",
)(predict)
app.command(
    short_help="Run the paper's tables and figures.",
    epilog="Example: volmin reproduce table1 --datasets mnist --methods volminnet,forward --seeds 2 --jobs 2",
)(reproduce)
app.command(
    short_help="Write a page about runs or an audit.",
    epilog="Example: volmin report runs --out report",
)(report)
app.command(
    name="list",
    short_help="List methods, data sets, noises, presets.",
    epilog="Example: volmin list methods",
)(list_)


@dataclass
class Settings:
    """Options that hold for every command."""

    debug: bool = False


@app.callback(invoke_without_command=True)
def volmin(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of every error.")] = False,
) -> None:
    """Finds out how many labels are wrong, and which; trains classifiers that wrong labels do not mislead."""
    context.obj.debug = debug
    if version:
        from volmin import __version__

        print(f"volmin {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())


def main() -> None:
    """Run a command.

    Errors that a user can cause or correct end in one line on standard error and exit code 2. Any other exception is a
    defect: its traceback is shown, and the exit code is 1.
    """
    warnings.formatwarning = lambda message, *_, **__: f"volmin: warning: {_one_line(str(message))}\n"
    settings = Settings()
    try:
        with _sigterm_as_interrupt():
            status = app(standalone_mode=False, obj=settings)
    except typer.TyperException as error:
        status = _fail(error.format_message(), settings)
    except (KeyboardInterrupt, typer.Abort):
        status = INTERRUPTED
    except (VolminError, OSError) as error:
        status = _fail(str(error), settings)
    except Exception:
        traceback.print_exc()
        print("volmin: this is a defect of volmin: please report it with the lines above.", file=sys.stderr)
        status = DEFECT
    if status == INTERRUPTED:
        print("volmin: stopped. The same command resumes from the last epoch.", file=sys.stderr)
    sys.exit(status if isinstance(status, int) else 0)


@contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C, so that the time limit of a cluster also stops the workers of a command."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread can set signal handlers
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _fail(message: str, settings: Settings) -> int:
    if settings.debug:
        traceback.print_exc()
    print(f"volmin: {_one_line(message)}", file=sys.stderr)
    return BAD_INPUT


def _one_line(message: str) -> str:
    from volmin.formatting import terminal_safe

    return terminal_safe(" ".join(message.split()))
