"""Run the benchmark, print its table and write its record."""

from __future__ import annotations

import argparse
import warnings
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks.crowds import record
from benchmarks.crowds.measures import measures
from benchmarks.crowds.sets import REAL, SETS
from benchmarks.crowds.tools import Aggregate, aggregates
from rich.console import Console
from rich.table import Table

from volmin.io.atomic import read_json, write_json

COMPARED = ("volmin", "cleanlab", "crowd-kit")


def write(path: Path, rows: list[dict]) -> None:
    """Write the record; rows of sets and seeds that were not run are kept from an earlier one."""
    run = {(row["set"], row["seed"]) for row in rows}
    old = read_json(path) if path.exists() else {}
    every = [row for row in old.get("rows", []) if (row["set"], row["seed"]) not in run] + rows
    every.sort(key=lambda row: (list(SETS).index(row["set"]), row["seed"]))
    versions = {name: found for name in COMPARED if (found := _version(name))}
    write_json(path, old | {"date": date.today().isoformat(), "versions": versions, "rows": every})


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.crowds", description=__doc__)
    parser.add_argument("--data-dir", type=Path, default=Path("real-noise"), help="folder of the files of real answers")
    parser.add_argument("--sets", nargs="+", default=[""], metavar="NAME", help="names of sets, or how they begin")
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds")
    parser.add_argument("--json", type=Path, help="file for the record; sets that are not run are kept in it")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows: list[dict] = []
    for name in (name for name in SETS if name.startswith(tuple(options.sets))):
        known: dict[str, Aggregate] = {}
        for seed in range(options.seeds):
            try:
                crowd = SETS[name](options.data_dir, seed)
            except FileNotFoundError as missing:
                print(f"{name}: {missing.filename} not found, skipped")
                break
            for tool, found in aggregates(crowd, seed, known if name in REAL else {}):
                rows.append({"set": name, "seed": seed, "tool": tool, **measures(found, crowd, seed)})
            print(f"{name}, seed {seed}: done", flush=True)
            if options.json:
                write(options.json, rows)
    table = Table(*record.HEAD, box=None, pad_edge=False)
    for line in record.cells(rows):
        table.add_row(*line)
    Console(highlight=False, width=180).print(table)


if __name__ == "__main__":
    main()
