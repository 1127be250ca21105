"""What there is to choose from, as tables."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable

from rich.console import Console
from rich.table import Table

from volmin import data, methods, networks, noise
from volmin.exceptions import InputError
from volmin.experiments import no_anchors as anchors
from volmin.experiments.presets import NO_ANCHORS, PRESETS


def show(what: str) -> None:
    """Print a table (methods, datasets, noise, presets, networks), all of them, or one method with its options."""
    console = Console(highlight=False)
    if what in methods.names():
        console.print(_method(what), markup=False, soft_wrap=True)
        return
    if what != "all" and what not in _TABLES:
        raise InputError(f"There is no list of {what!r}. Choose one of: {', '.join(_TABLES)}, or the name of a method.")
    for name in _TABLES if what == "all" else [what]:
        console.print(_TABLES[name]())


def _table(title: str, *columns: str, wrap: str = "") -> Table:
    """A plain table whose columns keep to one line, but for the one called ``wrap``."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, header_style="dim", no_wrap=column != wrap)
    return table


def _methods() -> Table:
    table = _table("methods (volmin list NAME shows the options of one)", "name", "T", "needs", "idea", wrap="idea")
    for name in methods.names():
        method = methods.get(name)
        summary = (method.__doc__ or "").split("\n")[0]
        table.add_row(name, "yes" if method.estimates_transition else "no", method.needs, summary)
    return table


def _method(name: str) -> str:
    method = methods.get(name)
    options = "".join(f"\n  --set {key}={json.dumps(value)}" for key, value in methods.option_defaults(method).items())
    return f"{name}: {inspect.cleandoc(method.__doc__ or '')}\n\nDefaults:{options or ' it has no options.'}"


def _datasets() -> Table:
    table = _table("datasets", "name", "what it is", wrap="what it is")
    for name, description in data.SOURCES.items():
        table.add_row(name, description)
    shares = ", ".join(f"{name} {share:.0%}" for name, share in anchors.REMOVED.items())
    table.add_row(
        f"NAME{NO_ANCHORS}", f"without likely anchor points: the surest of each class are left out ({shares})"
    )
    table.add_row("FILE", "a table of your own (.csv, .tsv, .parquet, .npz) with --label COLUMN")
    table.add_row("FILE", "a table of your own that names image files, with --label COLUMN --images")
    table.add_row("FOLDER", "images of your own, a folder per class")
    return table


def _noise() -> Table:
    table = _table("noise", "specification", "where a label goes", wrap="where a label goes")
    for text, meaning in noise.SPECIFICATIONS.items():
        table.add_row(text, meaning)
    return table


def _networks() -> Table:
    table = _table("networks (--network takes another than the preset's)", "name", "what it is", wrap="what it is")
    for name in networks.names():
        table.add_row(name, networks.DESCRIPTIONS[name])
    return table


def _presets() -> Table:
    table = _table("presets", "data set", "preset", "network", "epochs", "optimiser", "decay", "of T")
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
