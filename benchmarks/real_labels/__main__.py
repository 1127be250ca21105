"""Run the benchmark, print its table and write its record."""

from __future__ import annotations

import argparse
import warnings
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.real_labels import record, sets
from benchmarks.real_labels.decisions import coverage
from benchmarks.real_labels.measures import agreement, measures
from benchmarks.real_labels.sets import LabelSet
from benchmarks.real_labels.tools import findings
from rich.console import Console
from rich.table import Table

from volmin.auditing.audit import versions
from volmin.io.atomic import read_json, write_json

WIDTH = 230
"""Characters in a line of the table; a narrower terminal wraps it, which keeps every figure."""


def measure(name: str, labels: LabelSet, seed: int, features: bool) -> list[dict[str, Any]]:
    """The measures of all tools on one set, with the first seed also after decisions."""
    probs = labels.posteriors(seed)
    found = findings(labels, probs, seed, features=features and (seed == 0 or name in sets.FEWEST_SEEDS))
    about = {
        "set": name,
        "seed": seed,
        "rows": len(labels.given),
        "classes": labels.num_classes,
        "agreement": agreement(probs, labels.given),
    }
    rows = [{**about, "tool": tool, **measures(one, labels.given, labels.clean)} for tool, one in found.items()]
    for row, one in zip(rows, found.values(), strict=True):
        if one.audit is not None and seed == 0:
            row["decisions"] = coverage(one.audit, labels.clean)
        if one.audit is not None:
            row["codes"] = [finding.code for finding in one.audit.findings]
    return rows


def show(rows: list[dict[str, Any]]) -> None:
    """Print the table and, for each kind of set, the means of each tool."""
    console = Console(highlight=False, width=WIDTH)
    table = Table(box=None, pad_edge=False)
    for number, name in enumerate(record.COLUMNS):
        table.add_column(name, justify="left" if number < 2 else "right", no_wrap=True)
    for line in record.cells(rows):
        table.add_row(*line)
    console.print(table)
    for title, own in record.by_kind(rows).items():
        console.print(f"\n{title}", *record.summaries(own), sep="\n")


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write the record; rows of sets that were not run are kept from an earlier one."""
    run = {row["set"] for row in rows}
    earlier = [row for row in read_json(path)["rows"] if row["set"] not in run] if path.exists() else []
    order = list(sets.SETS)
    every = sorted(earlier + rows, key=lambda row: order.index(row["set"]))
    about = {"date": date.today().isoformat(), "versions": versions() | {"cleanlab": version("cleanlab")}}
    write_json(path, about | {"rows": every})


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.real_labels", description=__doc__)
    parser.add_argument("--data-dir", type=Path, default=Path("real-noise"), help="folder of the files of real noise")
    parser.add_argument("--sets", nargs="+", default=[], metavar="NAME", help="names of sets, or how they begin")
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds of folds and models (wine: at least 10)")
    parser.add_argument("--given-only", action="store_true", help="without the default audits of features")
    parser.add_argument("--quick", action="store_true", help=f"{sets.QUICK_ROWS:,} rows of each set, one seed")
    parser.add_argument("--json", type=Path, help="file for the record; sets that are not run are kept in it")
    options = parser.parse_args()
    names = sets.chosen(options.sets)
    if not names:
        parser.error(f"No set begins with {' or '.join(options.sets)}. The sets are: {', '.join(sets.SETS)}.")
    warnings.simplefilter("ignore")
    rows: list[dict[str, Any]] = []
    for name in names:
        try:
            labels = sets.SETS[name](options.data_dir)
        except FileNotFoundError as missing:
            print(f"{name}: {missing.filename or missing} not found, skipped")
            continue
        labels = labels.sample(sets.QUICK_ROWS) if options.quick else labels
        seeds = 1 if options.quick else max(options.seeds, sets.FEWEST_SEEDS.get(name, 1))
        rows += [row for seed in range(seeds) for row in measure(name, labels, seed, not options.given_only)]
        print(f"{name}: done", flush=True)
        if options.json:
            write(options.json, rows)
    if rows:
        show(rows)


if __name__ == "__main__":
    main()
