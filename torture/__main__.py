"""Runs the stress tests, prints one table and writes one record.

python -m torture                        # everything
python -m torture files faults           # these parts; the record keeps the others
python -m torture --share 0.1 --json ""  # a tenth of it, without a record
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from torture import devices, faults, files, inputs, soak
from torture.outcome import Outcome
from torture.record import RECORD, read_record, summary
from volmin.auditing.audit import versions
from volmin.io.atomic import write_json

MUTATED_FILES = 105_000
EXAMPLES = 150
"""Examples of arguments for each public function."""


def _parts(share: float) -> dict[str, Callable[[], list[Outcome]]]:
    return {
        "faults": lambda: faults.run(share),
        "inputs": lambda: inputs.run(round(share * EXAMPLES)),
        "files": lambda: files.run(round(share * MUTATED_FILES)),
        "soak": soak.run,
        "devices": lambda: [*devices.run(), *devices.run(("volminnet",), torchrun=True)],
    }


def main() -> int:
    """Run the parts and return the exit code: 1 if anything was lost."""
    parser = argparse.ArgumentParser(prog="python -m torture", description="Faults, bad input, damaged files, size.")
    parser.add_argument("parts", nargs="*", help=f"Parts to run, of {', '.join(_parts(1))}; all by default.")
    parser.add_argument("--share", type=float, default=1.0, help="Share of the full program.")
    parser.add_argument("--json", default=str(RECORD), help="Path of the record; empty for none.")
    options = parser.parse_args()
    parts = _parts(options.share)
    if unknown := [part for part in options.parts if part not in parts]:
        parser.error(f"unknown parts: {', '.join(unknown)}")
    os.environ["OMP_NUM_THREADS"] = "1"
    done: dict[str, Any] = {}
    lost = 0
    for name in options.parts or parts:
        start = time.perf_counter()
        outcomes = parts[name]()
        done[name] = {
            "date": date.today().isoformat(),
            "seconds": round(time.perf_counter() - start),
            "share": options.share,
            "cores": os.cpu_count(),
            "machine": platform.machine(),
            "versions": versions(),
            "outcomes": [outcome.as_json() for outcome in outcomes],
        }
        lost += sum(outcome.failed for outcome in outcomes)
        show(done[name]["outcomes"])
        if options.json:  # read again, because another part may have been recorded in the meantime
            write_json(Path(options.json), read_record(Path(options.json)) | {name: done[name]})
    Console(highlight=False).print(summary(done), soft_wrap=True)
    return 1 if lost else 0


def show(outcomes: list[dict[str, Any]]) -> None:
    """Print one table of all attempts."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("part", "what", "tried", "right", "refused", "lost", "seconds", ""):
        table.add_column(
            column, justify="right" if column in ("tried", "right", "refused", "lost", "seconds") else "left"
        )
    for one in outcomes:
        counts = (f"{one[key]:,}" for key in ("tried", "right", "refused", "failed"))
        figures = ", ".join(f"{key} {value}" for key, value in one["figures"].items())
        table.add_row(one["part"], one["what"], *counts, f"{one['seconds']:.0f}", one["skipped"] or figures)
        for failure in one["failures"]:
            table.add_row("", f"  {failure}", style="red")
    Console(highlight=False, markup=False, width=200).print(table)


if __name__ == "__main__":
    sys.exit(main())
