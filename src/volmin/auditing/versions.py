"""Versions of the packages that results depend on."""

from __future__ import annotations

import platform
from importlib.metadata import version


def versions() -> dict[str, str]:
    """Versions by name of the package, and that of Python."""
    return {name: version(name) for name in ("volmin", "torch", "numpy", "scikit-learn")} | {
        "python": platform.python_version()
    }
