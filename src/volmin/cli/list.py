"""``volmin list``."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from volmin.exceptions import InputError

if TYPE_CHECKING:
    from rich.table import Table


def list_(
    what: Annotated[
        str,
        typer.Argument(
            help="What to list: methods, datasets, noise, presets, networks, or the name of a method. "
            "Default: all tables."
        ),
    ] = "all",
) -> None:
    """List the methods, data sets, noises, presets and networks; or show one method with its options."""
    from volmin import methods
    from volmin.cli.terminal import console, say

    if what in methods.names():
        say(_method(what))
        return
    if what != "all" and what not in _TABLES:
        raise InputError(f"Cannot list {what!r}. Choose one of: {', '.join(_TABLES)}, or the name of a method.")
    for name in _TABLES if what == "all" else [what]:
        console().print(_TABLES[name]())


def _method(name: str) -> str:
    from volmin import methods

    method = methods.get(name)
    options = "".join(f"\n  --set {key}={json.dumps(value)}" for key, value in methods.option_defaults(method).items())
    return f"{name}: {inspect.cleandoc(method.__doc__ or '')}\n\nDefaults:{options or ' it has no options.'}"


def _methods() -> Table:
    from volmin import methods
    from volmin.cli.terminal import plain_table

    title = "methods (volmin list NAME shows the options of one)"
    table = plain_table("name", "T", "needs", "idea", title=title, wrap=("needs", "idea"))
    for name in methods.names():
        method = methods.get(name)
        summary = (method.__doc__ or "").split("\n")[0]
        table.add_row(name, "yes" if method.estimates_transition else "no", method.needs, summary)
    return table


def _datasets() -> Table:
    from volmin import data
    from volmin.cli.terminal import plain_table
    from volmin.experiments.no_anchors import REMOVED
    from volmin.experiments.presets import NO_ANCHORS

    table = plain_table("name", "description", title="datasets", wrap=("description",))
    for name, description in data.SOURCES.items():
        table.add_row(name, description)
    shares = ", ".join(f"{name} {share:.0%}" for name, share in REMOVED.items())
    table.add_row(f"NAME{NO_ANCHORS}", f"a set above without the most certain images of each class ({shares})")
    table.add_row("FILE", "your own table (CSV, JSON lines, Parquet, Feather, Excel, NPZ) with --label COLUMN")
    table.add_row("FILE", "your own table that lists image files, with --label COLUMN --images")
    table.add_row("FOLDER", "your own images, one folder per class")
    return table


def _noise() -> Table:
    from volmin import noise
    from volmin.cli.terminal import plain_table

    table = plain_table("specification", "description", title="noise", wrap=("description",))
    for text, meaning in noise.SPECIFICATIONS.items():
        table.add_row(text, meaning)
    return table


def _networks() -> Table:
    from volmin import networks
    from volmin.cli.terminal import plain_table

    title = "networks (--network replaces the preset's)"
    table = plain_table("name", "description", title=title, wrap=("description",))
    for name in networks.names():
        table.add_row(name, networks.DESCRIPTIONS[name])
    return table


def _presets() -> Table:
    from volmin.cli.terminal import plain_table
    from volmin.experiments.presets import PRESETS

    columns = ("data set", "preset", "network", "epochs", "optimiser", "decay", "for T")
    table = plain_table(*columns, title="presets")
    for dataset, found in PRESETS.items():
        for name, preset in found.items():
            recipe = preset.recipe
            table.add_row(
                dataset,
                name,
                preset.network,
                str(recipe.epochs),
                f"{recipe.optimizer} {recipe.lr:g}",
                f"{recipe.weight_decay:g}",
                f"{recipe.transition_optimizer} {recipe.transition_lr:g}",
            )
    return table


_TABLES: dict[str, Callable[[], Table]] = {
    "methods": _methods,
    "datasets": _datasets,
    "noise": _noise,
    "presets": _presets,
    "networks": _networks,
}
