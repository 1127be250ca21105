"""Scatter index and error of each estimator of T as anchor points disappear.

    python benchmarks/anchors.py --out docs/figures

Clean posteriors of five classes are drawn so that none exceeds a cap: at 1 there are anchor points, below 2/C = 0.4 the
posteriors are not sufficiently scattered. 3,000 rows, 30 % pair noise, labels drawn from the exact noisy posteriors;
the estimators get posteriors with errors of about 0.03 (Dirichlet distributed, kappa = 300); three seeds. Writes
``anchors.json`` and ``anchors.png``.
"""

from __future__ import annotations

import argparse
import json
from itertools import permutations
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from volmin import noise
from volmin._typing import Array
from volmin.estimation import EstimatorName, estimate_transition
from volmin.identifiability import scatter
from volmin.io.atomic import write_json
from volmin.report.figures import COLOURS
from volmin.transition import transition_error

C, ROWS, RATE, KAPPA, SEEDS = 5, 3000, 0.3, 300, 3
CAPS = (0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
METHODS: dict[EstimatorName, str] = {
    "volume": "minimum volume",
    "max": "anchor, maximum",
    "percentile": "anchor, 3 %",
    "dual": "Dual T",
    "confident": "confident joint",
}


def capped(a: float, generator: np.random.Generator) -> Array:
    """Points of the simplex with no entry above ``a``, including the vertices of that set."""
    full = int(1 / a + 1e-9)
    values = [a] * full + [1 - full * a] * (full < C)
    vertices = np.zeros((0, C))
    for places in permutations(range(C), len(values)):
        row = np.zeros((1, C))
        row[0, list(places)] = values
        vertices = np.vstack([vertices, row])
    # The other points are mixtures of three vertices, most of them close to one.
    weights = generator.dirichlet(np.full(3, 0.4), ROWS - len(vertices))
    chosen = vertices[generator.integers(0, len(vertices), (len(weights), 3))]
    return np.vstack([vertices, np.einsum("nk,nkc->nc", weights, chosen)])


def measure(a: float, seed: int) -> dict[str, float]:
    """The scatter index of one draw, and the error of T of each estimator."""
    generator = np.random.default_rng([seed, int(1000 * a)])
    clean = capped(a, generator)
    T = noise.pair(C, RATE)
    noisy = clean @ T.T
    labels = (noisy.cumsum(1) < generator.random((len(noisy), 1))).sum(1)
    probs = generator.standard_gamma(KAPPA * noisy + 1e-9)
    probs /= probs.sum(1, keepdims=True)
    found = {name: transition_error(T, estimate_transition(probs, labels, method=name)) for name in METHODS}
    return {"cap": a, "seed": seed, "index": scatter(clean, bootstraps=0).index, **found}


def draw(rows: list[dict[str, float]]) -> Figure:
    """The index against its closed form, and the errors of T."""
    caps = np.array(CAPS)

    def mean(key: str) -> Array:
        return np.array([float(np.mean([row[key] for row in rows if row["cap"] == a])) for a in CAPS])

    with mpl.rc_context({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(10, 3.9), layout="constrained")
        index, errors = figure.subplots(1, 2)
        index.plot(caps, C * caps - 1, color="#98a2b3", linewidth=5, alpha=0.5, label="closed form C a − 1")
        index.plot(caps, mean("index"), "o", color=COLOURS[0], label="volmin.scatter")
        index.axhline(1, color="#dc2626", linewidth=1, linestyle="--")
        index.annotate("below 1, T is not determined", (0.62, 1.08), color="#dc2626", fontsize=9)
        index.set(xlabel="largest clean posterior a", ylabel="scatter index s", title="T is determined for a > 2/C")
        index.legend(frameon=False)
        for colour, (key, name) in zip(COLOURS, METHODS.items(), strict=False):
            errors.plot(
                caps, mean(key), "o-", color=colour, label=name, markersize=4, linewidth=2 if key == "volume" else 1.3
            )
        errors.axvline(2 / C, color="#dc2626", linewidth=1, linestyle="--")
        errors.set(
            xlabel="largest clean posterior a",
            ylabel="error of T",
            title="Estimators as anchor points disappear",
            ylim=(0, None),
        )
        errors.legend(frameon=False, fontsize=9)
    return figure


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path())
    out = parser.parse_args().out
    results = []
    for a in CAPS:
        for seed in range(SEEDS):
            results.append(measure(a, seed))
            print(json.dumps({key: round(value, 3) for key, value in results[-1].items()}), flush=True)
    write_json(out / "anchors.json", results)
    draw(results).savefig(out / "anchors.png", dpi=160, facecolor="white")
