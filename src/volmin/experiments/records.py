"""Finished runs as records: read from run folders or from the ``.jsonl`` files that keep them for good."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from volmin.exceptions import InputError
from volmin.experiments.run import read_metrics
from volmin.experiments.spec import RunSpec
from volmin.io.atomic import read_json, write_text
from volmin.io.sealed import read_sealed_json

_CURVES = {"accuracy": 4, "transition_error": 5}
"""What is kept of every epoch, and with how many decimals."""


@dataclass(frozen=True)
class RunRecord:
    """One finished run: its spec, its result, and its curves by epoch."""

    spec: Mapping[str, Any]
    result: Mapping[str, Any]
    curves: Mapping[str, Sequence[float]] = field(default_factory=dict)

    def is_of(self, spec: RunSpec) -> bool:
        """Whether this is a run of ``spec``, in however many threads: they only change how sums are rounded.

        Fields that came into being after it was recorded do not count.
        """
        recorded = {key: value for key, value in self.spec.items() if key != "threads"}
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
        raise InputError(f"{path} does not exist: give a folder of runs or a .jsonl file of records.")
    folders = [path] if (path / "result.json").exists() else sorted(p.parent for p in path.glob("*/result.json"))
    files = [file for file in sorted(path.glob("*.jsonl")) if file.name != "metrics.jsonl"]
    found = [record for folder in folders if (record := read_run(folder)) is not None]
    found += [record for file in files for record in _read_lines(file)]
    # A report leaves its records beside the runs: the same run read twice is one run.
    return list({json.dumps(record.spec, sort_keys=True): record for record in reversed(found)}.values())[::-1]


def write_records(path: Path, records: Iterable[RunRecord]) -> None:
    """Keep finished runs, one a line."""
    write_text(path, "".join(json.dumps(asdict(record), allow_nan=False) + "\n" for record in records))


def read_run(folder: Path) -> RunRecord | None:
    """The record of a run folder; None where the run is not finished."""
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
    records = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            content = json.loads(line)
            records.append(RunRecord(content["spec"], content["result"], content.get("curves", {})))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise InputError(f"{path}, line {number}, is not the record of a run ({error!r}).") from None
    return records
