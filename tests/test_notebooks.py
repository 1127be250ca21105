"""The notebooks of the documentation run as they are printed, and show what they give."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


@pytest.fixture(scope="module")
def notebooks():
    """The module of the documentation, which is not a package."""
    spec = importlib.util.spec_from_file_location("notebooks", ROOT / "docs" / "notebooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def texts(notebook):
    """What the cells print and display, without numbers, which differ between machines in the last digits."""
    return [
        [
            re.sub(r"[\d.,e-]+", "#", "".join(output.get("text", output.get("data", {}).get("text/plain", []))))
            for output in cell["outputs"]
        ]
        for cell in notebook["cells"]
        if cell["cell_type"] == "code"
    ]


@pytest.mark.filterwarnings("ignore:Columns left out")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_gives_its_stored_outputs(notebooks, path):
    stored = notebooks.read(path)
    again = notebooks.executed(stored)
    assert texts(again) == texts(stored)
    figures = [
        output for cell in again["cells"] for output in cell.get("outputs", []) if "image/png" in output.get("data", {})
    ]
    assert figures
    shown = "".join("".join(output.get("text", [])) for cell in again["cells"] for output in cell.get("outputs", []))
    wrong, low, high = map(
        float, re.findall(r"([\d.]+)% of the labels are wrong; stated: ([\d.]+)% to ([\d.]+)%", shown)[0]
    )
    assert low <= wrong <= high
    assert float(re.findall(r"([\d.]+)% of the \d+ flagged labels are wrong", shown)[0]) > 90


def test_page_of_a_notebook_is_self_contained_and_escaped(notebooks):
    page = notebooks.page(notebooks.read(NOTEBOOKS[0]))
    assert 'src="data:image/png;base64,' in page
    assert not re.search(r"<script|(src|href)=[\"']?https?:", page)
    cell = {"cell_type": "code", "source": ["1 < 2"], "outputs": [{"output_type": "stream", "text": ["<script>\n"]}]}
    assert '<pre class="output">&lt;script&gt;' in notebooks.page({"cells": [cell]})
