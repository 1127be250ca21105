"""The version, the linters and the markers are each defined in one place."""

import ast
import re
import sys
import tomllib
from pathlib import Path

import volmin

ROOT = Path(__file__).parents[1]


def lint_commands():
    (target,) = re.findall(r"^lint:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.M)
    return re.findall(r"\$\(BIN\)/(.*)", target)


def test_citation_names_the_version_of_the_package():
    assert f"\nversion: {volmin.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dynamic"] == ["version"]


def test_pre_commit_runs_the_commands_of_make_lint():
    hooks = re.findall(r"entry: \.venv/bin/(.*)", (ROOT / ".pre-commit-config.yaml").read_text())
    assert hooks == lint_commands()


def test_ci_runs_quick_and_heavy_tests_once():
    commands = (ROOT / ".ci" / "run").read_text().splitlines()
    assert [line for line in commands if line.startswith("make test")] == ["make test", "make test-heavy"]


def test_lowest_versions_are_those_of_the_declared_ranges():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = " ".join([*project["dependencies"], *project["optional-dependencies"]["test"]])
    pinned = dict(re.findall(r"^([\w-]+)==(\S+)", (ROOT / "constraints-lowest.txt").read_text(), re.M))
    pinned.pop("torch")  # as the file says
    lowest = {name: version for name, version in re.findall(r"([\w-]+)>=([\d.]+)", declared) if name != "torch"}
    assert pinned.keys() == lowest.keys()
    for name, version in lowest.items():
        parts = version.split(".")
        assert pinned[name] == ".".join([*parts, *["0"] * (3 - len(parts))]), name


DISTRIBUTIONS = {"PIL": "pillow", "sklearn": "scikit-learn", "llvmlite": "numba"}
"""Packages that are installed under another name, or with another package."""


def imported_packages():
    """The packages from elsewhere that the modules import, at any place."""
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                names = [node.module]
            yield from (name.partition(".")[0] for name in names)


def test_every_imported_package_is_declared():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    lines = project["dependencies"] + [line for name in extras for line in extras[name] if name not in ("test", "dev")]
    declared = {re.split(r"[\[><=]", line)[0].replace("-", "_") for line in lines}
    imported = set(imported_packages()) - set(sys.stdlib_module_names) - {"volmin"}
    assert {"torch", "PIL"} <= imported
    missing = {DISTRIBUTIONS.get(name, name).replace("-", "_") for name in imported} - declared
    assert missing == set()
