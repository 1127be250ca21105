"""The record of the stress tests, and its tables for the documentation."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

RECORD = Path(__file__).parents[1] / "results" / "torture.json"

_TITLES = {
    "faults": ("Faults", "fault", "same bits", "refused in one line", "lost"),
    "inputs": ("Bad input", "function", "documented result", "clear error", "other errors"),
    "files": ("Mutated files", "kind of file", "read", "clear error", "other errors, hangs, memory"),
    "soak": ("Size", "task", "right", "refused", "wrong"),
    "devices": ("Several processes", "method", "checks passed", "refused", "failed"),
}


def read_record(path: Path = RECORD) -> dict[str, Any]:
    """The recorded parts; empty if there is no record."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def summary(record: Mapping[str, Any]) -> str:
    """One sentence about all parts."""
    parts = []
    for name, part in record.items():
        tried, lost = (sum(one[key] for one in part["outcomes"]) for key in ("tried", "failed"))
        parts.append(f"{name}: {tried:,} tried, {lost} lost, {part['seconds']} s")
    return "; ".join(parts) + "."


def markdown(record: Mapping[str, Any]) -> str:
    """A table for each part, after its totals."""
    return "\n".join(_part(name, record[name]) for name in _TITLES if name in record)


def _part(name: str, part: Mapping[str, Any]) -> str:
    title, what, right, refused, failed = _TITLES[name]
    outcomes = part["outcomes"]
    totals = {key: sum(one[key] for one in outcomes) for key in ("tried", "right", "refused", "failed")}
    shown = (f"**{totals['tried']:,} tried**: {totals['right']:,} {right}, {totals['refused']:,} {refused}, "
             f"**{totals['failed']:,} {failed}**.")  # fmt: skip
    scale = "" if part["share"] == 1 else f" This is {part['share']:.0%} of the full program."
    when = f"Recorded on {part['date']} with `python -m torture {name}` in {part['seconds'] / 60:.0f} minutes.{scale}"
    extra = _EXTRA.get(name, ())
    head = [what, "tried", right, refused, failed, *(heading for heading, _ in extra)]
    lines = [_line(head), _line(["---", *["--:"] * (len(head) - 1)])]
    for one in outcomes:
        counts = [f"{one[key]:,}" for key in ("tried", "right", "refused", "failed")]
        note = f" (not tried: {one['skipped']})" if one["skipped"] else ""
        lines.append(_line([one["what"] + note, *counts, *(_figure(one["figures"].get(key, "")) for _, key in extra)]))
    return "\n".join([f"## {title}\n", f"{shown} {when}\n", *lines, ""])


_EXTRA: dict[str, Sequence[tuple[str, str]]] = {
    "files": (("slowest, s", "slowest_seconds"),),
    "soak": (("CPU, s", "cpu_seconds"), ("MB beyond the input", "megabytes"), ("MB kept", "megabytes_after_the_first")),
    "devices": (("accuracy, one process", "one_process"), ("two processes", "two_processes")),
}


def _figure(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
