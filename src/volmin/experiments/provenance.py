"""The versions of the software that a run uses."""

from __future__ import annotations

import platform
import subprocess
from functools import cache
from importlib.metadata import version
from pathlib import Path

from volmin.experiments import acceleration
from volmin.experiments.spec import RunSpec


def versions(spec: RunSpec) -> dict[str, str | None]:
    """Versions of the packages that a run of ``spec`` uses, of Python, and the commit of a source checkout."""
    packages = {name: version(name) for name in ("volmin", "torch", "numpy")} | acceleration.versions(spec.accelerated)
    return packages | {"python": platform.python_version(), "commit": commit()}


@cache
def commit() -> str | None:
    """The commit of a source checkout, marked if files were changed; None for an installed package."""
    source = Path(__file__).parents[2]
    if not (source.parent / ".git").exists():
        return None
    command = ["git", "-C", str(source), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
