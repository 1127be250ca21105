"""How often intervals of the noise rate contain the truth after decisions about some labels, simulated many times.

python -m benchmarks.real_labels.decisions --data-dir DIR --json results/decisions.json
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.real_labels.sets import POSTERIORS, SETS, LabelSet

import volmin
from volmin.auditing.audit import versions
from volmin.io.atomic import write_json


def coverage(name: str, labels: LabelSet, decisions: int, repetitions: int) -> dict[str, Any]:
    """Share of simulated samples of decisions whose interval contains the true noise rate, and its mean width."""
    audit = volmin.audit(
        labels.given, probs=labels.posteriors(0), classes=np.arange(labels.num_classes), random_state=0
    )
    truth = float((labels.given != labels.clean).mean())
    generator = np.random.default_rng(0)
    hits, widths = 0, []
    for _ in range(repetitions):
        rows = generator.permutation(len(labels.given))[:decisions]
        clean = np.full(len(labels.given), np.nan)
        clean[rows] = labels.clean[rows]
        low, high = audit.check(clean, sample="random").noise_range
        hits += low <= truth <= high
        widths.append(high - low)
    return {
        "set": name,
        "decisions": decisions,
        "repetitions": repetitions,
        "true_noise_rate": truth,
        "range_before": list(audit.noise_range),
        "coverage": hits / repetitions,
        "mean_width": float(np.mean(widths)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.real_labels.decisions", description=__doc__)
    parser.add_argument("--data-dir", type=Path, default=Path("real-noise"), help="folder of the files of real noise")
    parser.add_argument("--decisions", type=int, default=100, help="number of decisions about random rows")
    parser.add_argument("--repetitions", type=int, default=50, help="number of simulations")
    parser.add_argument("--json", type=Path, help="file for the record")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    for name in POSTERIORS:
        try:
            labels = SETS[name](options.data_dir)
        except FileNotFoundError as missing:
            print(f"{name}: {missing.filename or missing} not found, skipped")
            continue
        rows.append(coverage(name, labels, options.decisions, options.repetitions))
        print(f"{name}: coverage {rows[-1]['coverage']:.2f}, mean width {rows[-1]['mean_width']:.3f}", flush=True)
    if options.json and rows:
        write_json(options.json, {"versions": versions(), "rows": rows})


if __name__ == "__main__":
    main()
