"""Time, memory and progress of ``volmin audit`` on a large table with text, from the command line.

    python benchmarks/large_table.py --rows 1000000

The table has 30 columns as people have them: numbers, also with separators and strays, dates, truth values, categories
with few and with many values, identifiers, text, and a label with 10 % errors. Written to ``results/large-table.json``:
seconds, the largest memory of all processes together, and the longest time without a line of progress.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import polars as pl
import psutil
from numpy.random import Generator

WORDS = 20_000
"""Number of distinct words of the texts, drawn by Zipf's law."""


def table(rows: int, seed: int = 0) -> pl.DataFrame:
    """A table of 30 columns; numbers, categories and words depend on the true class."""
    generator = np.random.default_rng(seed)
    classes = np.array(["stay", "leave", "pause"])
    truth = generator.choice(3, rows, p=[0.5, 0.3, 0.2])
    wrong = generator.random(rows) < 0.1
    given = np.where(wrong, (truth + generator.integers(1, 3, rows)) % 3, truth)
    columns: dict[str, object] = {"customer_id": [f"C{row:08d}" for row in range(rows)]}
    for place in range(12):
        columns[f"number{place}"] = generator.normal(0.4 * truth * (place % 3 == 0), 1).round(3)
    for place in range(3):
        amounts = generator.lognormal(6, 1, rows)
        columns[f"amount{place}"] = pl.Series(amounts).round(2).map_elements("{:,.2f}".format, pl.String)
    strays = generator.integers(0, 90, rows).astype(str)
    strays[generator.random(rows) < 0.03] = "unknown"
    columns["months"] = strays
    for place in range(2):
        days = pl.Series(np.datetime64("2018-01-01") + generator.integers(0, 2000, rows))
        columns[f"date{place}"] = days.dt.strftime("%d/%m/%Y")
    for place in range(2):
        columns[f"agreed{place}"] = generator.choice(["Yes", "No", ""], rows)
    for place in range(4):
        columns[f"kind{place}"] = (generator.integers(0, 12, rows) + truth).astype(str).astype(object) + np.array("k")
    columns["town"] = [f"town {number}" for number in generator.zipf(1.3, rows).clip(max=5000)]
    columns["country"] = np.full(rows, "US")
    columns["note"] = _texts(generator, truth)
    columns["status"] = classes[given]
    columns["truth"] = classes[truth]
    return pl.DataFrame(columns)


def _texts(generator: Generator, truth: np.ndarray) -> list[str]:
    """Twelve words for each row; a fifth of them come from the vocabulary of its class."""
    number = generator.zipf(1.2, (len(truth), 12)).clip(max=WORDS)
    own = generator.random(number.shape) < 0.2
    number = np.where(own, number % 200 + WORDS * (1 + truth[:, None]), number)
    syllables = np.array(["ka", "lo", "mi", "ner", "tus", "vo", "ra", "shi", "pel", "un"])
    spelled = ["".join(syllables[[int(digit) for digit in str(word)]]) for word in range(4 * WORDS + 200)]
    return [" ".join(spelled[word] for word in row) for row in number]


def measure(path: Path, out: Path) -> dict[str, float]:
    """Run the audit and measure it."""
    command = [sys.executable, "-m", "volmin", "audit", str(path), "--label", "status", "--clean", "truth"]
    start = time.perf_counter()
    process = subprocess.Popen(
        [*command, "--seed", "1", "--out", str(out)],
        stdout=(out.parent / "summary.txt").open("w"),
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    peak: list[float] = [0.0]
    sampler = threading.Thread(target=_sample_memory, args=(process, peak))
    sampler.start()
    last, gap = start, 0.0
    assert process.stderr is not None
    for line in process.stderr:
        now = time.perf_counter()
        gap, last = max(gap, now - last), now
        print(f"{now - start:6.1f} s  {line}", end="", flush=True)
    process.wait()
    sampler.join()
    end = time.perf_counter()
    return {
        "exit_code": process.returncode,
        "seconds": round(end - start, 1),
        "peak_gigabytes": round(peak[0] / 1e9, 2),
        "longest_silence": round(max(gap, end - last), 1),
    }


def _sample_memory(process: subprocess.Popen[str], peak: list[float]) -> None:
    root = psutil.Process(process.pid)
    while process.poll() is None:
        total = 0
        for part in [root, *root.children(recursive=True)]:
            try:
                # Memory that several processes share is counted once.
                total += part.memory_full_info().pss
            except psutil.Error:
                continue
        peak[0] = max(peak[0], total)
        time.sleep(1)


def main() -> None:
    """Make the table, audit it and write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--format", default="csv", choices=["csv", "parquet"])
    parser.add_argument("--record", type=Path, default=Path("results/large-table.json"))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"customers.{arguments.format}"
        frame = table(arguments.rows)
        frame.write_csv(path) if arguments.format == "csv" else frame.write_parquet(path)
        shape = {"rows": frame.height, "columns": frame.width - 1, "megabytes": round(path.stat().st_size / 1e6)}
        del frame
        found = measure(path, Path(folder) / "audit")
        print((Path(folder) / "summary.txt").read_text())
    record = {**shape, "format": arguments.format, **found, "cores": os.cpu_count()}
    print(json.dumps(record, indent=1))
    arguments.record.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
