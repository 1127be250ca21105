"""MkDocs hooks that generate the pages of methods, recorded tables, figures and the lists of the API reference."""

from __future__ import annotations

import inspect
import io
import json
import re
import sys
from collections.abc import Mapping, Sequence
from functools import cached_property
from importlib import import_module
from pathlib import Path
from textwrap import indent
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from volmin import methods
from volmin.experiments import render, tables
from volmin.experiments.records import read_records
from volmin.io.atomic import read_json
from volmin.report import simplex
from volmin.report.figures import curve_panels, svg

# benchmarks/, torture/ and the modules beside this one are not part of the package.
sys.path += [str(Path(__file__).parents[1]), str(Path(__file__).parent)]
import methods_choice
import notebooks
from benchmarks.crowds import record as crowds
from benchmarks.real_labels import record as real_labels
from torture import record

from benchmarks import learners, precision

RESULTS = Path(__file__).parents[1] / "results"
API = re.compile(r"<!-- api (volmin[\w.]*) -->")
API_MODULES = [name for path in Path(__file__).parent.glob("api/*.md") for name in API.findall(path.read_text("utf-8"))]
SPEED = {
    "epoch": "An epoch of VolMinNet on MNIST, with validation and test: seconds, and times as fast as a textbook loop",
    "before": "Time relative to the version with compiled losses (commit 5eae2e5)",
    "sweep": "Four such runs against four textbook loops one after another",
    "step": "A step of VolMinNet, in steps of plain cross-entropy",
    "methods": "An epoch of each method, in epochs of plain cross-entropy",
    "growth": "Growth with rows and classes",
    "limit": "Against the limit of the machine",
    "memory": "Peak memory",
    "start-up": "Seconds to start",
}
"""The parts of ``results/speed.json``, as ``benchmarks/speed.py`` names them, and their titles."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """List the pages of the methods, folded below "Methods"."""
    pages = [{name: f"methods/{name}.md"} for name in methods.names()]
    nested = {"Methods": ["methods.md", {"All methods": pages}]}
    config.nav = [nested if "Methods" in item else item for item in config.nav or []]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    files.append(File.generated(config, "methods.md", content=_overview()))
    for name, draw in (("figure1", simplex.minimum_volume_figure), ("figure3", simplex.scattered_figure)):
        drawing = io.BytesIO()
        draw().savefig(drawing, format="png", dpi=150, facecolor="white")
        files.append(File.generated(config, f"figures/{name}.png", content=drawing.getvalue()))
    for name in methods.names():
        files.append(File.generated(config, f"methods/{name}.md", content=_page(name)))
    for path in sorted(notebooks.FOLDER.glob("*.ipynb")):
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=notebooks.page(notebooks.read(path))))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Replace the comments that stand for recorded tables and for the public names of a module."""
    makers = (
        _method_choice,
        _tables,
        _recipe,
        _speed,
        _shared_training,
        _real_labels,
        _learners,
        _precision,
        _crowds,
        _torture,
        _names,
    )
    for make in makers:
        mark = f"<!-- {make.__name__.removeprefix('_')} -->"
        if mark in markdown:
            markdown = markdown.replace(mark, make())
    return API.sub(lambda mark: _api(mark[1]), markdown)


def public_objects(module_name: str) -> dict[str, Any]:
    """A module's public classes and functions by name: those of ``__all__``, or those that it defines."""
    module = import_module(module_name)
    listed = getattr(module, "__all__", None)
    found = {name: getattr(module, name) for name in listed or vars(module) if not name.startswith("_")}
    return {
        name: value
        for name, value in found.items()
        if (inspect.isclass(value) or inspect.isfunction(value))
        and (value.__module__ == module_name or (listed and value.__module__.startswith("volmin.")))
    }


def _api(module_name: str) -> str:
    parts = []
    for name, value in public_objects(module_name).items():
        options = {"heading": _public_name(module_name, name), "toc_label": name}
        inherited = inherited_members(value) if inspect.isclass(value) else []
        if inherited:
            options["inherited_members"] = inherited
        parts.append(f"::: {_full_name(value)}\n    options: {json.dumps(options)}")
    return "\n\n".join(parts)


def inherited_members(kind: type) -> list[str]:
    """The public names that a class has from bases inside the package that have no entry of their own."""
    named = {value for module in API_MODULES for value in public_objects(module).values()}
    bases = [base for base in kind.__mro__[1:] if base.__module__.startswith("volmin.") and base not in named]
    members = dict.fromkeys(
        name
        for base in bases
        for name, value in vars(base).items()
        if not name.startswith("_") and (callable(value) or isinstance(value, property | cached_property))
    )
    return [name for name in members if name not in vars(kind)]


def _names() -> str:
    return "\n".join(
        f"- [`volmin.{name}`][{_full_name(value)}]: {_first_sentence(value)}."
        for name, value in public_objects("volmin").items()
    )


def _full_name(value: Any) -> str:
    return f"{value.__module__}.{value.__qualname__}"


def _public_name(module_name: str, name: str) -> str:
    """The shortest path under which the package exports a name."""
    return f"volmin.{name}" if name in public_objects("volmin") else f"{module_name}.{name}"


def _first_sentence(value: Any) -> str:
    """The first paragraph of a docstring, up to its first full stop."""
    paragraph = " ".join(inspect.cleandoc(value.__doc__ or "").split("\n\n")[0].split())
    return paragraph.split(". ")[0].rstrip(".")


def _method_choice() -> str:
    return methods_choice.markdown(
        read_records(RESULTS / "mnist-fast.jsonl"), read_json(RESULTS / "speed.json")["methods"]
    )


def _torture() -> str:
    return record.markdown(record.read_record(RESULTS / "torture.json"))


def _speed() -> str:
    recorded = read_json(RESULTS / "speed.json")
    parts = []
    for name, title in ((name, title) for name, title in SPEED.items() if name in recorded):
        parts.append(f"### {title}\n\n{_figures(recorded[name])}")
    return "\n".join(parts)


def _shared_training() -> str:
    return _figures(read_json(RESULTS / "shared-training.json"))


def _figures(recorded: Mapping[str, float]) -> str:
    rows = "\n".join(f"| {key} | {value:,.2f} |" for key, value in recorded.items())
    return f"| | |\n|---|---:|\n{rows}\n"


def _real_labels() -> str:
    return real_labels.markdown(read_json(RESULTS / "real-labels.json"))


def _crowds() -> str:
    return crowds.markdown(read_json(RESULTS / "crowds.json"))


def _learners() -> str:
    return learners.markdown(read_json(RESULTS / "learners.json"))


def _precision() -> str:
    return precision.markdown(read_json(RESULTS / "precision.json"))


def _recipe() -> str:
    head = "| | noisy validation loss | its accuracy | test accuracy | T error |\n|---|---:|---:|---:|---:|\n"
    rows = (
        f"| {name} | {last['val_loss']:.4f} | {last['val_accuracy']:.2%} | {last['accuracy']:.2%} "
        f"| {last['transition_error']:.3f} |\n"
        for name, last in read_json(RESULTS / "cifar10-recipe.json").items()
    )
    return head + "".join(rows)


def _tables() -> str:
    """All recorded tables of each study: those with the most numbers first, data sets without a complete row folded."""
    records = read_records(RESULTS)
    parts = []
    for study in tables.studies_of(records):
        parts.append(f"## {study.title}\n")
        built = {setting: tables.build_table(study, records, *setting) for setting in tables.settings(study, records)}
        for setting in sorted(built, key=lambda setting: -built[setting].count()):
            table, panels = built[setting], tables.curves(study, records, *setting)
            names = sorted(table.filled_datasets, key=lambda name: -table.count(name))
            shown = [name for name in names if table.has_complete_row(name)]
            figure = "".join(svg(curve_panels(panels, study.metric)).splitlines()) if panels else ""
            drawn = f'<div class="figure">{figure}</div>\n'
            if shown:
                parts += [_tables_of(table, shown), drawn]
            if folded := [name for name in names if name not in shown]:
                text = _tables_of(table, folded) + ("" if shown else f"\n{drawn}")
                parts.append(f'??? note "{", ".join(folded)}, {table.setting}: single cells"\n\n{indent(text, "    ")}')
    return "\n".join(parts)


def _tables_of(table: tables.ResultTable, names: Sequence[str]) -> str:
    return "\n".join([f"{render.caption(table)}.\n", *(render.markdown(table, name, only_run=True) for name in names)])


def _overview() -> str:
    rows = [
        f"| [`{name}`](methods/{name}.md) | {_summary(kind)} | {_yes(kind.estimates_transition)} | {kind.needs} |"
        for name, kind in ((name, methods.get(name)) for name in methods.names())
    ]
    head = "# Methods\n\n| name | what it does | estimates T | needs |\n|---|---|---|---|\n"
    return head + "\n".join(rows) + "\n"


def _page(name: str) -> str:
    kind = methods.get(name)
    module = inspect.cleandoc(sys.modules[kind.__module__].__doc__ or "")
    options = methods.option_defaults(kind)
    listed = "\n".join(f"| `{key}` | `{value!r}` |" for key, value in options.items())
    table = f"| option | default |\n|---|---|\n{listed}\n" if options else "It has no options.\n"
    changes = ", ".join(f"`{key}={value!r}`" for key, value in kind.recipe_changes.items()) or "none"
    return (
        f"# {name}\n\n{module}\n\n## Options\n\n{inspect.cleandoc(kind.__doc__ or '')}\n\n{table}\n"
        f"## Training\n\nChanges to the recipe of a data set: {changes}.\n\n"
        f"## Use it\n\n```\nvolmin train --dataset digits --noise pair:0.2 --method {name}\n```\n\n"
        "```python\nfrom volmin import NoisyLabelClassifier\n\n"
        f'NoisyLabelClassifier(method="{name}").fit(X, noisy_labels)\n```\n'
    )


def _summary(kind: type[methods.Method]) -> str:
    return inspect.cleandoc(kind.__doc__ or "").split("\n")[0]


def _yes(flag: bool) -> str:
    return "yes" if flag else "no"
