"""Audits of tables as people have them, from the command line: the range of the noise rate, the flags, and the time.

    python -m benchmarks.messy_tables                                             # five tables, made here
    python -m benchmarks.messy_tables questions.csv --label label --clean clean   # a table of your own

Written to ``results/messy-tables.json``: processor seconds of all processes together, the truth, what the audit states,
and what became of each column.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from benchmarks.messy_tables.tables import TABLES, table

import volmin
from volmin.auditing.text import states_expected_correct
from volmin.data.tables import read_table

RECORD = Path("results/messy-tables.json")


def measure(path: Path, label: str, clean: str) -> dict[str, Any]:
    """Audit a table from the command line."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "volmin", "audit", str(path), "--label", label, "--ignore", clean, "--quiet"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([*command, "--seed", "1", "--out", folder], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found = volmin.Audit.load(folder)
    frame = read_table(path)
    wrong = (frame[label].cast(pl.String) != frame[clean].cast(pl.String)).to_numpy()
    rows = found.issues()
    flagged = np.isin(np.arange(len(wrong)), rows)
    return {
        "rows": len(wrong),
        "wrong": round(float(wrong.mean()), 4),
        "noise_range": [round(bound, 4) for bound in found.noise_range],
        "flagged": int(flagged.sum()),
        "correct": round(float((~wrong[flagged]).mean()), 4),
        "most_correct": round(found.most_correct(rows), 4) if states_expected_correct(found) else None,
        "found": round(float(flagged[wrong].mean()), 4),
        "columns": {use["name"]: f"{use['kind']}; {use['note']}".rstrip("; ") for use in found.provenance["columns"]},
        "processor_seconds": round(sum(after[:2]) - sum(before[:2]), 1),
    }


def main() -> None:
    """Measure the tables made here, or one of the user's, and add them to the record."""
    parser = argparse.ArgumentParser(description="Audits of tables as people have them.")
    parser.add_argument("path", type=Path, nargs="?", help="a table of your own, recorded by the name of the file")
    parser.add_argument("--label", default="label")
    parser.add_argument("--clean", default="clean", help="column of the true labels")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.path:
            _record(options.path.name, measure(options.path, options.label, options.clean))
            return
        for name in TABLES:
            path = Path(folder) / f"{name}.csv"
            table(name).write_csv(path)
            _record(name, measure(path, "label", "clean"))


def _record(name: str, found: dict[str, Any]) -> None:
    record = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.is_file() else {}
    record[name] = found
    print(name, json.dumps(found), flush=True)
    RECORD.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
