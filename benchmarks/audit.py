"""Time and memory of an audit of given probabilities, compared with cleanlab.

A million rows of ten overlapping classes with asymmetric noise, and posteriors with errors; each tool runs in its own
process::

    python benchmarks/audit.py --rows 1000000 --classes 10
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable

import numpy as np

from volmin import noise, transition_error
from volmin._typing import Array, Labels

Run = Callable[[Labels, Array], tuple[Labels, Array]]
"""Function from labels and posteriors to flagged rows and T."""


def simulated(rows: int, classes: int) -> tuple[Array, Labels, Labels, Array]:
    """T, true labels, noisy labels, and noisy posteriors with Gaussian errors of their logarithms."""
    generator = np.random.default_rng(0)
    clean = generator.dirichlet(np.full(classes, 0.1), rows)
    truth = (generator.random((rows, 1)) > clean.cumsum(axis=1)[:, :-1]).sum(axis=1)
    T = noise.asymmetric(classes, 0.3, seed=0)
    labels = noise.corrupt(truth, T, seed=0)
    probs = clean @ T.T
    probs *= np.exp(0.2 * generator.normal(size=probs.shape))
    return T, truth, labels, probs / probs.sum(axis=1, keepdims=True)


def prepared_volmin() -> Run:
    """An audit of volmin, imported in advance so that the time of the import does not count."""
    from volmin.auditing import audit

    def run(labels: Labels, probs: Array) -> tuple[Labels, Array]:
        found = audit(labels, probs=probs, random_state=0)
        return found.issues(), found.transition

    return run


def prepared_cleanlab() -> Run:
    """The corresponding functions of cleanlab, imported in advance."""
    from cleanlab.count import compute_confident_joint, estimate_latent
    from cleanlab.filter import find_label_issues

    def run(labels: Labels, probs: Array) -> tuple[Labels, Array]:
        flagged = find_label_issues(labels, probs, return_indices_ranked_by="self_confidence", n_jobs=2)
        joint = np.asarray(compute_confident_joint(labels, probs))
        return flagged, estimate_latent(joint, labels)[1]

    return run


TOOLS: dict[str, Callable[[], Run]] = {"volmin": prepared_volmin, "cleanlab": prepared_cleanlab}


def measure(tool: str, rows: int, classes: int) -> dict[str, float | str]:
    """Run one tool in this process."""
    T, truth, labels, probs = simulated(rows, classes)
    run = TOOLS[tool]()
    start, worked = time.perf_counter(), time.process_time()
    flagged, estimate = run(labels, probs)
    seconds, worked = time.perf_counter() - start, time.process_time() - worked
    wrong = labels != truth
    return {
        "tool": tool,
        "seconds": seconds,
        "cpu_seconds": worked,
        "gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "transition_error": transition_error(T, estimate),
        "flagged": len(flagged),
        "precision": float(wrong[flagged].mean()),
        "recall": float(wrong[flagged].sum() / wrong.sum()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Time and memory of an audit, compared with cleanlab.")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--tool", choices=TOOLS, help="measure only this tool, in this process")
    options = parser.parse_args()
    if options.tool:
        warnings.simplefilter("ignore")
        print(json.dumps(measure(options.tool, options.rows, options.classes)))
        return
    print(f"{options.rows:,} rows, {options.classes} classes")
    print(
        f"{'':10} {'seconds':>8} {'of CPU':>7} {'GB':>6} {'T error':>8} {'flagged':>9} {'precision':>10} {'recall':>7}"
    )
    for tool in TOOLS:
        command = [sys.executable, __file__, "--tool", tool]
        command += ["--rows", str(options.rows), "--classes", str(options.classes)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        m = json.loads(done.stdout.splitlines()[-1])
        cost = f"{m['seconds']:8.1f} {m['cpu_seconds']:7.1f} {m['gigabytes']:6.2f}"
        result = f"{m['transition_error']:8.3f} {m['flagged']:9,} {m['precision']:10.3f} {m['recall']:7.3f}"
        print(f"{tool:10} {cost} {result}")


if __name__ == "__main__":
    main()
