"""Records of finished runs, read from run folders or from ``.jsonl`` files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from volmin.exceptions import DataError
from volmin.experiments.folder import read_metrics
from volmin.experiments.spec import RunSpec
from volmin.io.atomic import read_json, write_text
from volmin.io.sealed import read_sealed_json

_CURVES = {"accuracy": 4, "transition_error": 5, "seconds": 1}
"""Figures of every epoch that are kept, with their number of decimals."""
_ROUNDING = ("threads", "accelerated", "precision")
"""Fields of a spec that only change how sums are rounded."""


@dataclass(frozen=True)
class RunRecord:
    """A finished run: its spec, its result, and its curves by epoch."""

    spec: Mapping[str, Any]
    result: Mapping[str, Any]
    curves: Mapping[str, Sequence[float]] = field(default_factory=dict)

    def is_of(self, spec: RunSpec) -> bool:
        """Whether this is a run of ``spec``, disregarding settings that only change how sums are rounded.

        Fields that were introduced after the run was recorded do not count.
        """
        recorded = {key: value for key, value in self.spec.items() if key not in _ROUNDING}
        return _agree(recorded, spec.as_json())


def _agree(recorded: Any, wanted: Any) -> bool:
    if isinstance(recorded, Mapping) and isinstance(wanted, Mapping):
        return all(key in wanted and _agree(value, wanted[key]) for key, value in recorded.items())
    return recorded == wanted


def read_records(path: Path) -> list[RunRecord]:
    """The finished runs of a ``.jsonl`` file, a folder of such files, a folder of run folders, or one run folder."""
    if path.is_file():
        return _read_lines(path)
    if not path.is_dir():
        raise DataError(f"{path} does not exist: give a folder of runs or a .jsonl file of records.")
    folders = [path] if (path / "result.json").exists() else sorted(p.parent for p in path.glob("*/result.json"))
    files = [file for file in sorted(path.glob("*.jsonl")) if file.name != "metrics.jsonl"]
    found = [record for folder in folders if (record := read_run(folder)) is not None]
    found += [record for file in files for record in _read_lines(file)]
    # A report writes its records beside the runs, so that a run may be found twice.
    return list({json.dumps(record.spec, sort_keys=True): record for record in reversed(found)}.values())[::-1]


def write_records(path: Path, records: Iterable[RunRecord]) -> None:
    """Write finished runs, one per line."""
    write_text(path, "".join(json.dumps(asdict(record), allow_nan=False) + "\n" for record in records))


def read_run(folder: Path) -> RunRecord | None:
    """The record of a run folder; None if the run is not finished."""
    if not (folder / "result.json").exists():
        return None
    result = read_sealed_json(folder / "result.json", files=True)
    history = read_metrics(folder)
    curves = {
        key: [round(epoch[key], decimals) for epoch in history]
        for key, decimals in _CURVES.items()
        if all(epoch.get(key) is not None for epoch in history)
    }
    return RunRecord(read_json(folder / "spec.json"), result, curves)


def _read_lines(path: Path) -> list[RunRecord]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        raise DataError(f"{path} is not a file of records: it is not UTF-8 text.") from None
    return [_parse(line, f"{path}, line {number}") for number, line in enumerate(lines, 1)]


def _parse(line: str, place: str) -> RunRecord:
    try:
        content = json.loads(line)
        record = RunRecord(content["spec"], content["result"], content.get("curves", {}))
        complete = set(_FIELDS) <= record.spec.keys() and set(_FIGURES) <= record.result.keys()
        if not complete or "epochs" not in record.spec["recipe"]:
            raise LookupError("fields are missing")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"{place}, is not the record of a run ({error}).") from None
    return record


_FIELDS = ("dataset", "noise", "method", "seed", "preset", "recipe")
_FIGURES = ("accuracy", "transition_error", "selected_epoch", "epochs", "seconds")
"""What tables and reports need of a spec and of a result."""
