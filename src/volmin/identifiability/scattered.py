"""Are posteriors sufficiently scattered? The scatter index, its witness, and a proof for more classes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from types import ModuleType

import numpy as np

from volmin._typing import Array, Labels, Numbers
from volmin.exceptions import InputError
from volmin.identifiability.hull import (
    ROUNDING,
    descend,
    extreme_rows,
    leave,
    measure,
    nearest_missed,
    start_directions,
    support_of,
    towards_facet,
    uncovered_classes,
)
from volmin.validation import validate_posteriors

TOLERANCES = (0.0, 0.005, 0.01, 0.02, 0.05)
"""Posteriors below them count as zero, for up to 10 classes; for more classes they shrink like 10 / C."""


class Verdict(StrEnum):
    """Whether posteriors determine T by volume minimisation."""

    WELL_IDENTIFIED = "well_identified"
    """The scatter index exceeds 1 with a margin; for two classes there are anchor points."""
    BORDERLINE = "borderline"
    """The scatter index is not proved to fail, but leaves no margin for errors of the posteriors."""
    NOT_IDENTIFIED = "not_identified"
    """The condition is proved to fail: T is the largest noise compatible with the data."""


@dataclass(frozen=True)
class ClassConditions:
    """Necessary conditions on each class, all (C,).

    Attributes:
        peak: largest posterior of the class; at least 2 / C is needed.
        zeros: rows whose posterior of the class is zero; C - 1 of them are needed, linearly independent.
        rank: how many of those rows are linearly independent.
        reach: how far the hull reaches from the barycentre towards the middle of the facet without the class, in
            units of that distance; 1 is needed.
        failing: classes that break a condition.
    """

    peak: Array
    zeros: Labels
    rank: Labels
    reach: Array
    failing: tuple[int, ...]


@dataclass(frozen=True)
class Scatter:
    """How scattered posteriors are; see ``volmin.identifiability`` for the meaning of the index.

    Attributes:
        index: s, between 0 and C - 1. An upper bound where ``exact`` is false.
        holds: whether the condition is *proved* to hold for the posteriors at this tolerance.
        exact: whether ``index`` is proved, by enumeration of facets or by an inner bound that meets it.
        witness: (C,) unit direction with sum zero in which the hull is too short first.
        missing: (C,) the posterior nearest to the barycentre that no rows surround.
        per_class: necessary conditions, and the classes that fail them.
        tolerance: posteriors below it were counted as zero.
        profile: the index by tolerance.
        quantile: 10 % quantile of the index over bootstrap samples of the rows; NaN if not asked for.
    """

    index: float
    holds: bool
    exact: bool
    witness: Array
    missing: Array
    per_class: ClassConditions
    tolerance: float
    profile: dict[float, float]
    quantile: float

    @property
    def refuted(self) -> bool:
        """Whether the condition is proved to fail."""
        return not self.holds and self.index < _border(len(self.witness))

    @property
    def score(self) -> float:
        """``log s / log(C - 1)``: 0 at the border, 1 with anchor points, negative where the condition fails.

        For two classes, where the border is the anchor points, it is ``log s``.
        """
        scale = math.log(len(self.witness) - 1) if len(self.witness) > 2 else 1.0
        return math.log(self.index) / scale if self.index > 0 else -math.inf

    @property
    def verdict(self) -> Verdict:
        """Whether the posteriors determine T; ``explanation`` gives the reason."""
        if self.refuted:
            return Verdict.NOT_IDENTIFIED
        C = len(self.witness)
        needed = 1.0 if C == 2 else 1.5 if C < 10 else 2.0
        lower = self.index if math.isnan(self.quantile) else min(self.index, self.quantile)
        return Verdict.BORDERLINE if lower < needed - 1e-6 else Verdict.WELL_IDENTIFIED

    @property
    def explanation(self) -> str:
        """What ``verdict`` means for T, in one sentence."""
        if self.verdict is Verdict.NOT_IDENTIFIED:
            failing = ", ".join(map(str, self.per_class.failing))
            classes = f" (classes that fail a necessary condition: {failing})" if failing else ""
            return f"T is not identified: the estimate is the largest noise compatible with the data{classes}."
        if self.verdict is Verdict.BORDERLINE:
            return f"T is at the border of identifiability (scatter index {self.index:.2f}): it may overstate noise."
        proof = "" if self.holds else " (no counterexample was found, but there is no proof)"
        return f"T is well identified{proof} if the posteriors are accurate; the check can reject T but never prove it."


def scatter(
    posteriors: Numbers,
    *,
    tolerance: float | None = None,
    bootstraps: int = 50,
    starts: int = 64,
    seed: int = 0,
) -> Scatter:
    """How well posteriors determine T by volume minimisation.

    Up to 7 classes the index is exact. Beyond, a search gives an upper bound: below 1 it is a proof of failure,
    and ``holds`` is true only where an inner bound proves it (``certificate`` tries harder). Rows that do not
    span the simplex, such as fewer rows than classes or constant posteriors, have index 0.

    Args:
        posteriors: (N, C) clean class posteriors, out of sample.
        tolerance: count smaller posteriors as zero; by default 0.02, and 0.2 / C for more than 10 classes. Twice
            the standard error of small posteriors is a good choice.
        bootstraps: samples behind ``quantile``; 0 for none, e.g. when the rows are a whole population.
        starts: random directions that the search starts from, next to those of the classes.
        seed: of directions and samples.
    """
    h = validate_posteriors(posteriors, "posteriors")
    C = h.shape[1]
    tolerance = _checked_tolerance(tolerance, C)
    generator = np.random.default_rng(seed)
    clipped = _clipped(h, tolerance)
    hull = measure(clipped, starts, generator)

    def index_at(tau: float) -> float:
        other = _clipped(h, tau)
        return hull.index if np.array_equal(other, clipped) else measure(other, starts, generator).index

    return Scatter(
        index=hull.index,
        holds=hull.inner >= _border(C) if C == 2 else hull.inner > _border(C),
        exact=hull.inner >= hull.index - 1e-6,
        witness=hull.directions[0],
        missing=hull.missing,
        per_class=_class_conditions(clipped, hull.working_rows),
        tolerance=tolerance,
        profile={tau: index_at(tau) for tau in sorted({*_ladder(C), tolerance})},
        quantile=_bootstrap_quantile(clipped, hull.directions, bootstraps, generator),
    )


def certificate(
    posteriors: Numbers,
    *,
    margin: float = 1.05,
    tolerance: float | None = None,
    seconds: float = 60.0,
) -> bool | None:
    """Whether the scatter index reaches ``margin``, proved by global optimisation; None if time ran out.

    For 8 to about 12 classes, where facets are too many to enumerate. The proof allows each facet of the hull to be
    moved by a thousandth of its distance from the barycentre. Needs PySCIPOpt.

    Args:
        posteriors: (N, C) clean class posteriors.
        margin: the index to be reached, above 1 and below C - 1.
        tolerance: count smaller posteriors as zero, as in ``scatter``.
        seconds: time limit of each of a few optimisations.
    """
    h = validate_posteriors(posteriors, "posteriors")
    C = h.shape[1]
    if not 1 < margin < C - 1:
        raise InputError(f"margin must lie above 1 and below C - 1 = {C - 1}, but is {margin:g}.")
    h = _clipped(h, _checked_tolerance(tolerance, C))
    try:
        scip = import_module("pyscipopt")
    except ImportError:
        raise ImportError("certificate needs the SCIP solver; install it with: pip install pyscipopt") from None
    hull = measure(h, 64, np.random.default_rng(0))
    if hull.index < margin or hull.inner >= margin:
        return hull.inner >= margin
    working = hull.working_rows
    for _ in range(20):
        plane, proved = _cut_off_ball(scip, h[working], margin, seconds)
        if plane is None:
            return True if proved else None
        # The plane is one of the working rows' hull; it counts if no other row lies beyond it.
        beyond = np.flatnonzero(h @ plane < -ROUNDING)
        if len(beyond) == 0:
            return False
        working = np.union1d(working, beyond[(h[beyond] @ plane).argsort()[: 2 * C]])
    return None


def _border(num_classes: int) -> float:
    """The index that must be exceeded (for two classes: reached), less rounding."""
    return 1 + 1e-6 if num_classes > 2 else 1 - 1e-6


def _ladder(num_classes: int) -> list[float]:
    return [tau * min(1, 10 / num_classes) for tau in TOLERANCES]


def _checked_tolerance(tolerance: float | None, num_classes: int) -> float:
    tolerance = _ladder(num_classes)[3] if tolerance is None else float(tolerance)
    if not 0 <= tolerance < 1 / num_classes:
        bound = f"1/C = {1 / num_classes:.3g}"
        raise InputError(f"tolerance must be at least 0 and below {bound}, but is {tolerance:g}.")
    return tolerance


def _clipped(h: Array, tolerance: float) -> Array:
    kept = np.where(h < tolerance, 0.0, h)
    return kept / kept.sum(axis=1, keepdims=True)


def _cut_off_ball(scip: ModuleType, rows: Array, margin: float, seconds: float) -> tuple[Array | None, bool]:
    """A plane with all rows on one side that cuts a piece off the ball's part in the simplex, if there is one.

    Minimises ``x'v`` over planes ``{x : x'h >= 0 for all rows, 1'x = 1}`` and points v of the simplex within the
    ball. At 0 the plane is a facet of the simplex and cuts nothing off. The box around x is wider than a facet
    of the simplex needs, or a class without any zero would be missed.

    Returns:
        (C,) the plane, or None; and whether there is proved to be none.
    """
    C, total = rows.shape[1], scip.quicksum
    model = scip.Model()
    model.hideOutput()
    model.setParam("limits/time", seconds)
    slack = 1e-3 / C
    model.setParam("limits/absgap", slack / 2)
    x = [model.addVar(lb=-2, ub=2) for _ in range(C)]
    v = [model.addVar(lb=0, ub=1) for _ in range(C)]
    depth = model.addVar(lb=-2, ub=2)
    for row in rows:
        model.addCons(total(float(row[k]) * x[k] for k in np.flatnonzero(row)) >= 0)
    model.addCons(total(x) == 1)
    model.addCons(total(v) == 1)
    model.addCons(total(entry * entry for entry in v) <= 1 / C + margin**2 / (C * (C - 1)))
    model.addCons(total(a * b for a, b in zip(x, v, strict=True)) <= depth)
    model.setObjective(depth, "minimize")
    model.optimize()
    if model.getNSols() and model.getPrimalbound() < -slack:
        return np.array([model.getVal(entry) for entry in x]), False
    return None, model.getDualbound() >= -slack


def _class_conditions(h: Array, working: Labels) -> ClassConditions:
    C = h.shape[1]
    peak = h.max(axis=0)
    zero = h <= ROUNDING
    rank = np.array([_rank(h[zero[:, k]]) for k in range(C)])
    reach = np.ones(C)
    for k in uncovered_classes(h, working):
        _, reach[k], working = leave(h, working, towards_facet(C, k))
    fails = (peak < 2 / C - 1e-9) | (rank < C - 1) | (reach < 1 - 1e-6)
    return ClassConditions(peak, zero.sum(axis=0), rank, reach, tuple(int(k) for k in np.flatnonzero(fails)))


def _rank(rows: Array) -> int:
    values = np.linalg.eigvalsh(rows.T @ rows / max(len(rows), 1))
    return int((values > ROUNDING**1.5).sum())


def _bootstrap_quantile(h: Array, directions: Array, bootstraps: int, generator: np.random.Generator) -> float:
    """10 % quantile of the index over Poisson bootstraps; each is a short search from the worst directions."""
    if bootstraps == 0:
        return math.nan
    around = np.concatenate([directions, -directions, start_directions(h.shape[1], 128, generator)])
    # A row is left out with probability 0.37; all of the 6 farthest ones with 0.003.
    pool = extreme_rows(h, around, depth=6)
    indices = []
    for _ in range(bootstraps):
        drawn = generator.poisson(1, len(h)) > 0
        drawn[pool[0]] |= not drawn[pool].any()
        found = descend(h[pool[drawn[pool]]], directions[:32], steps=10)
        # The search saw few rows; its verdict counts all that were drawn.
        distance, _ = nearest_missed(found, support_of(h[drawn], found)[0])
        indices.append(min(float(distance.min()), h.shape[1] - 1.0))
    return float(np.quantile(indices, 0.1))
