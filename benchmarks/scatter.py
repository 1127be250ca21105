"""Accuracy and time of the scatter index for posteriors with ``max v <= a``, whose index is ``C a - 1``.

Up to 7 classes the index is enumerated, beyond it is searched::

    python benchmarks/scatter.py
"""

from __future__ import annotations

import math
import time
from itertools import permutations

import numpy as np

from volmin._typing import Array
from volmin.identifiability import scatter

CASES = [
    *((3, a) for a in (0.6, 0.667, 0.7, 0.9)),
    *((5, a) for a in (0.35, 0.5, 0.9)),
    *((7, a) for a in (0.25, 0.3, 0.5)),
    *((10, a) for a in (0.15, 0.18, 0.3, 0.65)),
    *((100, a) for a in (0.015, 0.018, 0.05, 0.6)),
]


def capped(num_classes: int, a: float, most: int, seed: int = 0) -> Array:
    """Vertices of ``{v in simplex : max v <= a}``: as many entries a as fit, one for the rest, and zeros.

    All vertices, or a random sample of ``most``.
    """
    full = int(1 / a + 1e-9)
    values = [a] * full + [1 - full * a] * (full < num_classes)
    generator = np.random.default_rng(seed)
    if math.perm(num_classes, len(values)) <= most:
        places = list(permutations(range(num_classes), len(values)))
    else:
        places = [generator.permutation(num_classes)[: len(values)] for _ in range(most)]
    rows = np.zeros((len(places), num_classes))
    np.put_along_axis(rows, np.array(places), np.array([values]), axis=1)
    return np.unique(rows.round(12), axis=0)


def main() -> None:
    print(f"{'C':>3} {'a':>6} {'rows':>6} {'theory':>7} {'index':>7} {'exact':>6} {'holds':>6} {'refuted':>7} {'s':>6}")
    for num_classes, a in CASES:
        posteriors = capped(num_classes, a, most=20_000)
        start = time.perf_counter()
        found = scatter(posteriors, tolerance=0, bootstraps=0)
        seconds = time.perf_counter() - start
        print(
            f"{num_classes:3} {a:6.3f} {len(posteriors):6} {num_classes * a - 1:7.3f} {found.index:7.3f} "
            f"{found.exact!s:>6} {found.holds!s:>6} {found.refuted!s:>7} {seconds:6.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
