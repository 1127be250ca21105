"""The code of the pages "What T tells you" runs as printed and gives what the text claims; the API is complete."""

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest

import volmin

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "questions"
ORDER = ("how-noisy", "identified", "which-labels", "how-sure")


@pytest.fixture(scope="module")
def names():
    """The namespace after the code of all pages, executed in order."""
    defined = {}
    for page in ORDER:
        for block in re.findall(r"```python\n(.*?)```", (PAGES / f"{page}.md").read_text(), re.DOTALL):
            exec(compile(block, page, "exec"), defined)
    return defined


def test_every_page_is_executed():
    assert {path.stem for path in PAGES.glob("*.md")} == set(ORDER)


def test_noise_is_estimated(names):
    assert volmin.transition_error(names["T_true"], names["T"]) < 0.15
    assert np.abs(names["noise_rates"] - 0.3).mean() < 0.05


def test_digits_are_identified(names):
    assert names["found"].verdict in ("well_identified", "borderline")
    low, high = names["bracket"].T
    assert (low <= high).all()


def test_flagged_labels_have_high_precision_and_recall(names):
    assert names["precision"] > 0.85
    assert names["recall"] > 0.85


def test_intervals_contain_the_estimate(names):
    rate = names["intervals"].noise_rate
    assert rate.low < rate.estimate < rate.high
    assert names["bounds"].shape == (10, 2)


def test_every_public_name_is_in_the_api_reference():
    pytest.importorskip("mkdocs")
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    text = "".join(path.read_text() for path in (ROOT / "docs" / "api").glob("*.md"))
    documented = [value for module in generate.API.findall(text) for value in generate.public_objects(module).values()]
    assert [name for name, value in generate.public_objects("volmin").items() if value not in documented] == []


def test_every_api_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text()
    pages = sorted((ROOT / "docs" / "api").glob("*.md"))
    assert [page.name for page in pages if f" api/{page.name}\n" not in navigation] == []


def test_architecture_page_lists_the_packages():
    (layout,) = re.findall(r"```\nsrc/volmin/\n(.*?)```", (ROOT / "docs" / "architecture.md").read_text(), re.DOTALL)
    listed = set(re.findall(r"^  (\w+)(?:/|\.py) ", layout, re.M))
    package = Path(volmin.__file__).parent
    modules = {path.stem for path in package.glob("*.py")}
    packages = {path.parent.name for path in package.glob("*/__init__.py")}
    assert listed <= modules | packages
    assert packages <= listed
