"""What there is to choose from, as tables."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console
from rich.table import Table

from volmin import data, methods, noise
from volmin.experiments.presets import PRESETS


def show(what: str) -> None:
    """Print the tables of ``what``: methods, datasets, noise, presets or all."""
    if what != "all" and what not in _TABLES:
        raise ValueError(f"There is no list of {what!r}. Choose one of: {', '.join(_TABLES)}.")
    console = Console(highlight=False)
    for name in _TABLES if what == "all" else [what]:
        console.print(_TABLES[name]())


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, header_style="dim")
    return table


def _methods() -> Table:
    table = _table("methods", "name", "what it does", "estimates T", "needs", "options")
    for name in methods.names():
        method = methods.get(name)
        summary = (method.__doc__ or "").split("\n")[0]
        options = ", ".join(f"{key}={value}" for key, value in methods.option_defaults(method).items())
        table.add_row(name, summary, "yes" if method.estimates_transition else "no", method.needs, options)
    return table


def _datasets() -> Table:
    table = _table("datasets", "name", "what it is")
    for name, description in data.SOURCES.items():
        table.add_row(name, description)
    return table


def _noise() -> Table:
    table = _table("noise", "specification", "where a label goes")
    for text, meaning in noise.SPECIFICATIONS.items():
        table.add_row(text, meaning)
    return table


def _presets() -> Table:
    table = _table("presets", "data set", "preset", "network", "epochs", "lr", "weight decay", "T by", "chosen by")
    for dataset, found in PRESETS.items():
        for name, preset in found.items():
            recipe = preset.recipe
            by = f"{recipe.transition_optimizer} {recipe.transition_lr:g}"
            rate = f"{recipe.optimizer} {recipe.lr:g}"
            decay = f"{recipe.weight_decay:g}"
            table.add_row(
                dataset,
                name,
                preset.network,
                str(recipe.epochs),
                rate,
                decay,
                by,
                f"noisy {recipe.selection}",
            )
    return table


_TABLES: dict[str, Callable[[], Table]] = {
    "methods": _methods,
    "datasets": _datasets,
    "noise": _noise,
    "presets": _presets,
}
