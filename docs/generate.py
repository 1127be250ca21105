"""Pages that are made from the code: one per method, from its docstring and options."""

from __future__ import annotations

import inspect
import sys

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from volmin import methods


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """List the pages of the methods under "Methods"."""
    pages = [{name: f"methods/{name}.md"} for name in methods.names()]
    config.nav = [
        {"Methods": [{"Overview": "methods.md"}, *pages]} if "Methods" in item else item for item in config.nav
    ]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    files.append(File.generated(config, "methods.md", content=_overview()))
    for name in methods.names():
        files.append(File.generated(config, f"methods/{name}.md", content=_page(name)))
    return files


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
