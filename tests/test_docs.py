"""The code of the pages "What T tells you" runs as printed and gives what the text claims; the API is complete."""

import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import volmin
from volmin.experiments.records import read_records

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


def loaded(name):
    """A module of the documentation, which is not a package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_public_name_is_in_the_api_reference():
    pytest.importorskip("mkdocs")
    generate = loaded("generate")
    text = "".join(path.read_text() for path in (ROOT / "docs" / "api").glob("*.md"))
    documented = [value for module in generate.API.findall(text) for value in generate.public_objects(module).values()]
    assert [name for name, value in generate.public_objects("volmin").items() if value not in documented] == []


def test_inherited_members_are_in_the_api_reference():
    pytest.importorskip("mkdocs")
    generate = loaded("generate")
    members = generate.inherited_members(volmin.Audit)
    assert {"noise_range", "issues", "check", "class_noise_rates", "plot"} <= set(members)
    assert "save" not in members  # its own
    assert generate.inherited_members(volmin.methods.VolMinNet) == []  # the base has an entry
    text = generate._api("volmin.auditing")
    (entry,) = (line for line in text.splitlines() if '"toc_label": "Audit"' in line)
    assert '"noise_range"' in entry


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


def layers():
    """The packages and modules of each layer, as import-linter holds them."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (contract,) = (contract for contract in contracts if contract["type"] == "layers")
    return [set(re.findall(r"volmin\.(\w+)", layer)) for layer in contract["layers"]]


MINOR = {"lbfgs", "ridge", "validation", "formatting", "progress", "exceptions"}


def test_picture_of_the_layers_shows_every_layer():
    picture = (ROOT / "docs" / "figures" / "layers.svg").read_text()
    names = [set(re.findall(r"\w+", title)) for title in re.findall(r'font-weight="600"[^>]*>([^<]*)<', picture)]
    shown = set.union(*names)
    assert set.union(*layers()) - MINOR == shown
    assert all(any(title <= layer for layer in layers()) for title in names)


def test_contributing_lists_every_layer():
    (layout,) = re.findall(r"```\n(cli/.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL)
    for line, layer in zip(layout.splitlines(), layers(), strict=True):
        assert set(re.findall(r"(\w+)(?:/|\.py)", line)) == layer - MINOR


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text()
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert {page for page in pages if f" {page}\n" not in navigation} == set()


def test_chooser_names_the_best_recorded_method():
    choice = loaded("methods_choice")
    records = read_records(ROOT / "results" / "mnist-fast.jsonl")
    found = choice.accuracies(records)
    assert choice.best(found, "pair:0.45") == {"volminnet"}
    lines = choice.markdown(records, {"forward": 1.3}).splitlines()
    (line,) = (line for line in lines if line.startswith("| [`volminnet`]"))
    assert f"| {np.mean(found['volminnet', 'pair:0.45']):.2%} (5) |" in line
    assert "pair:0.45 |" in line.split("|")[-2] + "|"
    (forward,) = (line for line in lines if line.startswith("| [`forward`]"))
    assert "| 1.3 |" in forward


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The documentation as it is published."""
    pytest.importorskip("mkdocs")
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", out]
    subprocess.run(command, cwd=ROOT, check=True, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"})
    return out


@pytest.mark.cluster
def test_site_loads_nothing_from_outside_and_publishes_no_scripts(site):
    assert not list(site.rglob("*.py"))
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        tags = re.findall(r"<(?:script|img|iframe)[^>]*>|<link[^>]*(?:stylesheet|preconnect)[^>]*>", text)
        without_data = [re.sub(r'"data:[^"]*"', '""', tag) for tag in tags]  # base64 may contain two slashes
        assert [tag for tag in without_data if "//" in tag] == [], page
    assert "volminnet" in (site / "search" / "search_index.json").read_text()


@pytest.mark.cluster
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_site_is_accessible(site, browser, violations, scheme):
    context = browser.new_context(color_scheme=scheme, offline=True)
    page = context.new_page()
    for name in ("", "choose", "results", "faq", "api/auditing", "findings/weak_judge"):
        page.goto((site / name / "index.html").as_uri())
        assert violations(page, ["wcag2a", "wcag2aa", "wcag21aa"]) == [], name
    context.close()
