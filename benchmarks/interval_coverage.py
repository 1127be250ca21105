"""Coverage of the nominal 95 % intervals on simulated data with known truth.

Each repetition draws Gaussian features, clean labels from a linear softmax model, and noisy labels; the intervals are
computed from features and noisy labels alone. Each finished repetition is a line of the output file, and the same
command resumes an interrupted benchmark::

    python benchmarks/interval_coverage.py --repetitions 200 --out coverage.jsonl
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from volmin import noise
from volmin._typing import Array
from volmin.intervals import Intervals, bootstrap_intervals, conditional_intervals

HEAD = 3.0 * np.array([[1.0, 0.0, 0.5, 0.0], [-0.5, 0.9, 0.0, 0.5], [-0.5, -0.9, -0.5, -0.5]])
TRANSITION = np.array([[0.7, 0.2, 0.05], [0.2, 0.7, 0.25], [0.1, 0.1, 0.7]])


def clean_posteriors(x: Array) -> Array:
    scores = np.exp(x @ HEAD.T)
    return scores / scores.sum(axis=1, keepdims=True)


def repetition(seed: int, num_rows: int, replicas: int, truth: dict[str, Array]) -> dict[str, Any]:
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(num_rows, HEAD.shape[1]))
    h = clean_posteriors(x)
    clean = (generator.random((num_rows, 1)) > h.cumsum(axis=1)[:, :-1]).sum(axis=1)
    labels = noise.corrupt(clean, TRANSITION, seed=seed)
    start = time.perf_counter()
    full = bootstrap_intervals(x, labels, replicas=replicas, random_state=seed)
    seconds = time.perf_counter() - start
    conditional = conditional_intervals(h, labels, replicas=replicas, random_state=seed)
    return {
        "seed": seed,
        "seconds": seconds,
        "full": covered(full, truth),
        "conditional": covered(conditional, truth),
    }


def covered(intervals: Intervals, truth: dict[str, Array]) -> dict[str, list[float]]:
    """Coverage, width and absolute error of each quantity, averaged over its entries."""
    result = {}
    for name, value in truth.items():
        interval = getattr(intervals, name)
        inside = (interval.low <= value) & (value <= interval.high)
        width, error = interval.high - interval.low, np.abs(interval.estimate - value)
        result[name] = [float(part.mean()) for part in (inside, width, error)]
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description="Coverage of bootstrap intervals on simulated data.")
    parser.add_argument("--repetitions", type=int, default=200)
    parser.add_argument("--rows", type=int, default=3000)
    parser.add_argument("--replicas", type=int, default=50)
    parser.add_argument("--out", type=Path, default=Path("coverage.jsonl"))
    options = parser.parse_args()
    torch.set_num_threads(1)

    priors = clean_posteriors(np.random.default_rng(0).normal(size=(2_000_000, HEAD.shape[1]))).mean(axis=0)
    rates = 1 - np.diag(TRANSITION)
    truth = {"class_noise_rates": rates, "noise_rate": priors @ rates, "class_priors": priors}

    lines = options.out.read_text().splitlines() if options.out.exists() else []
    done = {record["seed"]: record for record in map(json.loads, lines)}
    with options.out.open("a") as log:
        for seed in range(options.repetitions):
            if seed not in done:
                done[seed] = repetition(seed, options.rows, options.replicas, truth)
                log.write(json.dumps(done[seed]) + "\n")
                log.flush()

    records = [done[seed] for seed in range(options.repetitions)]
    print(f"{len(records)} repetitions, {np.mean([r['seconds'] for r in records]):.2f} s per set of intervals")
    print(f"{'intervals':12} {'quantity':18} {'coverage':>8} {'width':>7} {'error':>7}")
    for kind in ("full", "conditional"):
        for name in truth:
            coverage, width, error = np.mean([record[kind][name] for record in records], axis=0)
            print(f"{kind:12} {name:18} {coverage:8.3f} {width:7.4f} {error:7.4f}")


if __name__ == "__main__":
    main()
