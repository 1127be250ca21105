"""Notebooks of the documentation: run in this process with ``python docs/notebooks.py``, and shown as pages.

The cells are plain Python, so they need no Jupyter kernel. What a notebook would display of a cell is stored: printed
lines, HTML, or a figure as PNG.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import re
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "notebooks"


def executed(notebook: dict[str, Any]) -> dict[str, Any]:
    """The notebook with the outputs of its cells, which are run in order with common names."""
    names: dict[str, Any] = {"__name__": "__main__"}
    cells, count = [], 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            count += 1
            outputs = [dict(output) for output in _outputs("".join(cell["source"]), names, count)]
            cell = cell | {"outputs": outputs, "execution_count": count}
        cells.append(cell)
    return notebook | {"cells": cells}


def _outputs(source: str, names: dict[str, Any], count: int) -> Iterator[dict[str, Any]]:
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, f"cell {count}", "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), f"cell {count}", "eval"), names)
    if printed.getvalue():
        yield {"output_type": "stream", "name": "stdout", "text": _lines(printed.getvalue())}
    if value is not None:
        yield {"output_type": "execute_result", "execution_count": count, "metadata": {}, "data": _displayed(value)}


def _displayed(value: Any) -> dict[str, Any]:
    """What a notebook displays of a value, by MIME type."""
    data: dict[str, Any] = {"text/plain": _lines(repr(value))}
    if hasattr(value, "_repr_html_") and (html := value._repr_html_()) is not None:
        data["text/html"] = _lines(html)
    if hasattr(value, "savefig"):
        drawing = io.BytesIO()
        value.savefig(drawing, format="png", dpi=80, metadata={"Software": None})
        data = {"text/plain": ["a figure"], "image/png": base64.b64encode(drawing.getvalue()).decode()}
    return data


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def page(notebook: dict[str, Any]) -> str:
    """The notebook as Markdown: its text, its code, and its outputs as they are stored."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        parts += [_shown(output) for output in cell["outputs"]]
    return "\n\n".join(parts) + "\n"


def _shown(output: dict[str, Any]) -> str:
    data = output.get("data", {})
    if "image/png" in data:
        return (
            f'<div class="output"><img src="data:image/png;base64,{data["image/png"]}" alt="figure of this cell"></div>'
        )
    if "text/html" in data:
        html = re.sub(r"<style.*?</style>", "", "".join(data["text/html"]), flags=re.DOTALL)
        # Markdown ends a block of HTML at an empty line.
        html = re.sub(r"\s*\n\s*", " ", html)
        return f'<div class="output">{html}</div>'
    text = "".join(output.get("text", data.get("text/plain", [])))
    return f'<pre class="output">{escape(text)}</pre>'


def read(path: Path) -> dict[str, Any]:
    """The content of a notebook."""
    return json.loads(path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    for path in sorted(FOLDER.glob("*.ipynb")):
        path.write_text(json.dumps(executed(read(path)), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        print(path)
