"""Files of an audit of several annotators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from volmin.auditing.crowd.result import CrowdResult
from volmin.io.atomic import write_json
from volmin.io.locks import only_process
from volmin.io.spreadsheets import write_csv

FORMAT = "volmin crowd audit 1"


def save(result: CrowdResult, folder: Path, write_report: Callable[[Path], None]) -> None:
    """Write the tables, the report and, last, ``audit.json``."""
    with only_process(folder):
        # An older audit in the folder must not look finished while its files are replaced.
        (folder / "audit.json").unlink(missing_ok=True)
        for name, frame in (("consensus", result.frame()), ("votes", result.next_votes())):
            rows = ([_cell(value) for value in row] for row in frame.iter_rows())
            write_csv(folder / f"{name}.csv", frame.columns, rows)
        header = ("annotator", "answers", "agreement", "noise_rate", "low", "high", "mistakes")
        write_csv(folder / "annotators.csv", header, _annotators(result))
        write_csv(folder / "transitions.csv", ("annotator", "answer", "true", "probability"), _transitions(result))
        write_report(folder / "report.html")
        write_json(folder / "audit.json", _content(result))


def _annotators(result: CrowdResult) -> list[list[Any]]:
    lines = []
    for profile in result.profiles():
        mistakes = "; ".join(
            f"{result.classes[given]} for {result.classes[true]}" for given, true, _ in profile.confusions
        )
        numbers = (profile.agreement, profile.noise_rate, profile.low, profile.high)
        lines.append([profile.name, profile.answers, *map(_cell, numbers), mistakes])
    return lines


def _transitions(result: CrowdResult) -> list[list[Any]]:
    return [
        [result.names[m], result.classes[i], result.classes[j], _cell(float(value))]
        for (m, i, j), value in np.ndenumerate(result.transitions)
    ]


def _cell(value: Any) -> Any:
    """A value as it is written: numbers with six digits, and nothing for missing ones."""
    if value is None or value != value:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else value


def _content(result: CrowdResult) -> dict[str, Any]:
    low, high = result.noise_range
    annotators = result.annotators
    return {
        "format": FORMAT,
        "items": len(result),
        "answers": len(result.answers),
        "classes": [str(name) for name in result.classes],
        "grouped": result.grouped,
        "noise_rate": result.noise_rate,
        "noise_range": [low, high],
        "level": result.level,
        "annotators": [
            {name: str(value) if name == "annotator" else value for name, value in line.items()}
            for line in annotators.iter_rows(named=True)
        ],
        "comparison": None if result.comparison is None else asdict(result.comparison),
        "copies": [
            asdict(pair) | {"first": str(result.names[pair.first]), "second": str(result.names[pair.second])}
            for pair in result.copies
        ],
        "findings": [asdict(finding) for finding in result.findings],
        "provenance": result.provenance,
    }
