"""A million answers of 500 annotators to 200,000 items: processor time and memory of an audit.

``python -m benchmarks.crowds.million --json results/crowds.json``
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np

import volmin
from volmin.io.atomic import read_json, write_json

NUM_ITEMS, NUM_ANNOTATORS, PER_ITEM, C = 200_000, 500, 5, 5


def measured(features: int) -> dict[str, Any]:
    """Audit simulated answers, with or without features of the items."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(NUM_ITEMS, max(features, 8))).astype(np.float32)
    h = np.exp(0.7 * x @ generator.normal(size=(x.shape[1], C)))
    clean = _draw(h / h.sum(axis=1, keepdims=True), generator)
    right = generator.uniform(0.5, 0.9, NUM_ANNOTATORS)
    item = np.repeat(np.arange(NUM_ITEMS), PER_ITEM)
    # Different annotators for each item: steps of at most 89 return to nobody.
    first, step = generator.integers(NUM_ANNOTATORS, size=NUM_ITEMS), generator.integers(1, 90, NUM_ITEMS)
    annotator = ((first[:, None] + np.arange(PER_ITEM) * step[:, None]) % NUM_ANNOTATORS).ravel()
    wrong = generator.random(len(item)) > right[annotator]
    label = (clean[item] + wrong * generator.integers(1, C, len(item))) % C
    table = {"row": item, "annotator": annotator, "label": label}
    start = time.process_time()
    found = volmin.audit(table, features=x if features else None, random_state=0)
    seconds = time.process_time() - start
    share = np.bincount(annotator, wrong, NUM_ANNOTATORS) / np.bincount(annotator, minlength=NUM_ANNOTATORS)
    return {
        "features": features,
        "seconds": seconds,
        "gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
        "consensus": float((found.consensus == clean).mean()),
        "intervals": [int(((found.rates.low <= share) & (share <= found.rates.high)).sum()), NUM_ANNOTATORS],
    }


def _draw(probs: Any, generator: np.random.Generator) -> Any:
    return (generator.random((len(probs), 1)) > probs.cumsum(axis=1)[:, :-1]).sum(axis=1)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.crowds.million", description=__doc__)
    parser.add_argument("--json", type=Path, help="record of the benchmark, of which the other parts are kept")
    options = parser.parse_args()
    rows = []
    for features in (0, 32):
        with multiprocessing.get_context("spawn").Pool(1) as pool:  # a process each, for its peak of memory
            rows.append(pool.apply(measured, (features,)))
        print(rows[-1], flush=True)
    if options.json:
        write_json(options.json, (read_json(options.json) if options.json.exists() else {}) | {"million": rows})


if __name__ == "__main__":
    main()
