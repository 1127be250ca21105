"""``volmin train``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from volmin.cli.encoders import ImageEncoder, TextEncoder
from volmin.exceptions import InputError

if TYPE_CHECKING:
    from volmin.experiments.source import DataSource
    from volmin.experiments.spec import RunSpec
    from volmin.training import PrecisionName


_WITH_SPEC = ("spec", "dataset", "labels", "method", "data_dir", "out", "text_encoder", "image_encoder")
"""Parameters that may be given beside the spec of a run."""


def train(
    context: typer.Context,
    dataset: Annotated[
        str, typer.Option(help="Name of a data set (see: volmin list datasets), or path of a table or image folder.")
    ] = "digits",
    noise: Annotated[
        str | None,
        typer.Option(
            help="Noise to add to the labels (see: volmin list noise). Default: pair:0.45 on a named data set with "
            "clean labels, none otherwise."
        ),
    ] = None,
    label: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column of a table with the given labels.")
    ] = None,
    clean: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column of a table with the true labels, where they are known.")
    ] = None,
    ignore: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="Column to leave out of the features; repeatable.")
    ] = None,
    text: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="Column of text, where it is not recognised; repeatable.")
    ] = None,
    types: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN=TYPE", help="Type of a column, as in volmin audit; repeatable."),
    ] = None,
    text_encoder: TextEncoder = None,
    image_encoder: ImageEncoder = None,
    images: Annotated[bool, typer.Option("--images", help="The table lists image files to learn from.")] = False,
    size: Annotated[
        int | None,
        typer.Option(min=8, max=512, help="Side in pixels to resize your own images to. Default: the median image's."),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            metavar="FILE[:KEY]",
            help="File with noisy labels for the training part of a named data set: .npy, .npz, .csv or .pt.",
        ),
    ] = None,
    method: Annotated[
        str, typer.Option(help="Name of a method (see: volmin list methods), or package.module:Class.")
    ] = "volminnet",
    seed: Annotated[
        int, typer.Option(min=0, help="Random seed of the noise, the split, the network and the training.")
    ] = 1,
    preset: Annotated[str, typer.Option(help="Name of the settings; see: volmin list presets.")] = "official",
    network: Annotated[
        str | None, typer.Option(help="Network instead of the preset's; see: volmin list networks.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Number of epochs instead of the preset's.")] = None,
    precision: Annotated[
        str, typer.Option(help="Arithmetic of the network: 32, bf16-mixed or 16-mixed; T stays in single precision.")
    ] = "32",
    patience: Annotated[
        int | None,
        typer.Option(min=1, help="End after this many epochs without a better noisy validation score. Default: never."),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Option of the method; repeatable."),
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder with the official files of the data set. Default: download them.")
    ] = None,
    devices: Annotated[int, typer.Option(min=1, help="Number of devices: GPUs, or processes on CPUs.")] = 1,
    threads: Annotated[
        int, typer.Option(min=1, help="Threads of each process; small networks gain little from more than one.")
    ] = 1,
    accelerate: Annotated[
        bool | None,
        typer.Option(
            "--accelerate/--no-accelerate",
            help="Whether to use the accelerated version of the network. Default: where it is available.",
        ),
    ] = None,
    spec: Annotated[
        Path | None,
        typer.Option(
            metavar="SPEC.json",
            help="Repeat the run of this spec, which a run folder holds. Only --dataset and --labels (where its files "
            "are), the encoders, --data-dir and --out may be given beside it.",
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of the run folders.")] = Path("runs"),
) -> None:
    """Train one method on one noisy data set, and write the result to a run folder.

    A finished run is not repeated; an interrupted one is resumed by the same command.
    """
    from volmin.cli import encoders
    from volmin.cli.columns import column_types
    from volmin.cli.progress import TaskProgress
    from volmin.experiments import repetition
    from volmin.experiments.source import DataSource
    from volmin.experiments.spec import resolve

    sources = {name: context.get_parameter_source(name) for name in context.params}
    given = {name for name, found in sources.items() if found is not None and found.name == "COMMANDLINE"}
    with TaskProgress() as preparing:
        if spec is not None:
            _refuse_changes(given)
            chosen = repetition.read_spec(spec, method if "method" in given else None)
            path = dataset if "dataset" in given else None
            source = repetition.source_of(
                chosen,
                path,
                labels,
                data_dir,
                text_encoder=encoders.text_encoder(text_encoder),
                image_encoder=encoders.image_encoder(image_encoder),
                progress=preparing,
            )
            _train(chosen, source, out)
            return
        source = DataSource(
            dataset,
            data_dir,
            label=label,
            clean=clean,
            ignore=tuple(ignore or ()),
            types=tuple(column_types(types, text).items()),
            labels=labels,
            images=images,
            size=size,
            text_encoder=encoders.text_encoder(text_encoder),
            image_encoder=encoders.image_encoder(image_encoder),
            progress=preparing,
        )
        chosen = resolve(
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
            accelerated=accelerate,
            precision=cast("PrecisionName", precision),  # checked there
            patience=patience,
        )
        _train(chosen, source, out)


def _refuse_changes(given: set[str]) -> None:
    if changes := sorted(given - set(_WITH_SPEC)):
        options = ", ".join("--" + {"option": "set"}.get(name, name).replace("_", "-") for name in changes)
        raise InputError(f"A spec repeats a run exactly: leave out {options}, or leave out --spec.")


def _parse_option(text: str) -> tuple[str, Any]:
    """``lam=1e-3`` as a name and a JSON value; a value that is not JSON is a string."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InputError(f"--set takes NAME=VALUE, but was given {text!r}.")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def _train(spec: RunSpec, source: DataSource, out: Path) -> None:
    from volmin.cli.progress import EpochProgress
    from volmin.cli.terminal import say
    from volmin.experiments.folder import read_result, tidy
    from volmin.experiments.run import run, set_up
    from volmin.training.devices import launch, lost_processes_reported

    folder = spec.folder(out)
    title = f"{spec.method} on {source.name}, {source.describe(spec.noise)}, seed {spec.seed}"
    if (result := read_result(folder, files=True)) is not None:
        tidy(folder)
        say(f"{title}: already finished.")
        for text in result.get("warnings", ()):
            say(f"warning: {text}")
    else:
        experiment = set_up(spec, source.data_dir, source.load(accelerated=spec.accelerated))
        fabric = launch(spec.devices)
        with lost_processes_reported(fabric), EpochProgress(title, experiment.epochs) as progress:
            result = run(experiment, out, fabric=fabric, on_epoch=progress)
        if not fabric.is_global_zero:
            return
    _show_result(result, recalibrated=bool(spec.options.get("recalibrate")))
    say(f"run folder         {folder}")


def _show_result(result: dict[str, Any], *, recalibrated: bool) -> None:
    from rich.table import Table

    from volmin.cli.terminal import console
    from volmin.formatting import duration

    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    accuracy = "test accuracy" if result.get("test_labels") != "given" else "accuracy on given test labels"
    table.add_row(accuracy, f"{result['accuracy']:.2%}", f"(last epoch {result['last_accuracy']:.2%})")
    if "balanced_accuracy" in result:
        table.add_row("balanced accuracy", f"{result['balanced_accuracy']:.2%}", "mean over the classes")
        table.add_row("majority baseline", f"{result['majority_baseline']:.2%}", "always the most frequent label")
    if result["transition_error"] is not None:
        before = ", before recalibration" if recalibrated else ""
        last = f"(last epoch {result['last_transition_error']:.4f}{before})"
        table.add_row("T error", f"{result['transition_error']:.4f}", last)
    if result["noise_rate_estimate"] is not None:
        table.add_row("estimated noise rate", f"{result['noise_rate_estimate']:.2%}")
    if count := result.get("unreadable_images"):
        table.add_row("unreadable images", str(count), "left out")
    rule = "mean of the last twentieth" if result["selection"] == "last" else f"by noisy {result['selection']}"
    table.add_row("selected epoch", str(result["selected_epoch"]), f"of {result['epochs']}, {rule}")
    each = f"({result['seconds_per_epoch']:.2g} s per epoch{', accelerated' if result.get('accelerated') else ''})"
    table.add_row("training time", duration(result["seconds"]), each)
    console().print(table)
