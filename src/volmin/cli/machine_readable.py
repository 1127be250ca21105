"""Results as JSON on standard output."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

LEFT_OUT = ("histories", "seal")
"""Parts of ``audit.json`` that are of no use without the files beside it."""


def print_audit(folder: Path, issues: Sequence[int]) -> None:
    """Print the saved audit as one JSON object, with the rows of the flagged labels, the most suspicious first."""
    content = json.loads((folder / "audit.json").read_text(encoding="utf-8"))
    shown = {name: value for name, value in content.items() if name not in LEFT_OUT}
    print(json.dumps(shown | {"issues": list(issues), "folder": str(folder)}, ensure_ascii=False))
