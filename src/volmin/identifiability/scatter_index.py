"""The scatter index of posteriors, its witness, and the conditions on each class."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from volmin._typing import Array, Labels, Numbers
from volmin.exceptions import InputError
from volmin.identifiability.hull import exit_facet, facet_ray, measure, uncovered_classes
from volmin.identifiability.support import (
    ROUNDING,
    descend,
    extreme_rows,
    nearest_cut_off,
    start_directions,
    support_function,
)
from volmin.validation import validate_posteriors

TOLERANCES = (0.0, 0.005, 0.01, 0.02, 0.05)
"""Posteriors below which zero is assumed, for up to 10 classes; scaled by 10 / C for more classes."""


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
        peak: Largest posterior of the class; at least 2 / C is required.
        zeros: Number of rows whose posterior of the class is zero.
        rank: Number of linearly independent rows among these; C - 1 is required.
        reach: Distance that the hull extends from the barycentre towards the centre of the facet without the class, in
            units of the distance to that centre; 1 is required.
        failing: Classes that violate a condition.
    """

    peak: Array
    zeros: Labels
    rank: Labels
    reach: Array
    failing: tuple[int, ...]


@dataclass(frozen=True)
class Scatter:
    """How scattered posteriors are; ``volmin.identifiability`` defines the index.

    Attributes:
        index: Scatter index s, between 0 and C - 1; an upper bound if ``exact`` is false.
        holds: Whether the condition is *proved* to hold for the posteriors at this tolerance.
        exact: Whether ``index`` is proved, by enumeration of facets or by an equal lower bound.
        witness: (C,) unit direction with sum zero in which the hull is shortest.
        missing: (C,) point of the simplex outside the hull that is nearest to the barycentre.
        per_class: Necessary conditions, and the classes that violate them.
        tolerance: Posterior below which zero was assumed.
        profile: Index by tolerance.
        quantile: 10 % quantile of the index over bootstrap samples of the rows; NaN without bootstrap.
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

        For two classes, whose border is at the anchor points, it is ``log s``.
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
    profile: Sequence[float] | None = None,
    bootstraps: int = 50,
    starts: int = 64,
    random_state: int = 0,
) -> Scatter:
    """Measure how well posteriors determine T by volume minimisation.

    Up to 7 classes the index is exact. Beyond, a search gives an upper bound: an index below 1 proves that the
    condition fails, and ``holds`` is true only if a lower bound proves it (``certificate`` can prove more). Rows that
    do not span the simplex, such as fewer rows than classes or constant posteriors, have index 0.

    Args:
        posteriors: (N, C) out-of-sample clean class posteriors.
        tolerance: Posterior below which zero is assumed; by default 0.02, and 0.2 / C for more than 10 classes. Twice
            the standard error of small posteriors is a good choice.
        profile: Further tolerances at which the index is measured, each at the same cost; by default ``TOLERANCES``,
            times 10 / C for more than 10 classes.
        bootstraps: Number of bootstrap samples for ``quantile``; 0 for none, e.g. if the rows are a whole population.
        starts: Number of random directions from which the search starts, besides those of the classes.
        random_state: Seed of directions and bootstrap samples.
    """
    h = validate_posteriors(posteriors, "posteriors")
    C = h.shape[1]
    tolerance = checked_tolerance(tolerance, C)
    generator = np.random.default_rng(random_state)
    clipped = clip_small(h, tolerance)
    hull = measure(clipped, starts, generator)
    quantile = _bootstrap_quantile(clipped, hull.directions, bootstraps, generator)
    others = _tolerances(C) if profile is None else [checked_tolerance(tau, C) for tau in profile]

    def index_at(tau: float) -> float:
        other = clip_small(h, tau)
        return hull.index if np.array_equal(other, clipped) else measure(other, starts, generator).index

    return Scatter(
        index=hull.index,
        holds=hull.inner >= _border(C) if C == 2 else hull.inner > _border(C),
        exact=hull.inner >= hull.index - 1e-6,
        witness=hull.directions[0],
        missing=hull.missing,
        per_class=_class_conditions(clipped, hull.working_rows),
        tolerance=tolerance,
        profile={tau: index_at(tau) for tau in sorted({*others, tolerance})},
        quantile=quantile,
    )


def checked_tolerance(tolerance: float | None, num_classes: int) -> float:
    """The tolerance, or its default if it is None; an ``InputError`` if it does not lie in [0, 1/C)."""
    tolerance = _tolerances(num_classes)[3] if tolerance is None else float(tolerance)
    if not 0 <= tolerance < 1 / num_classes:
        bound = f"1/C = {1 / num_classes:.3g}"
        raise InputError(f"tolerance must be at least 0 and below {bound}, but is {tolerance:g}.")
    return tolerance


def clip_small(h: Array, tolerance: float) -> Array:
    """Posteriors with entries below the tolerance set to zero, renormalised, (N, C)."""
    kept = np.where(h < tolerance, 0.0, h)
    return kept / kept.sum(axis=1, keepdims=True)


def _tolerances(num_classes: int) -> list[float]:
    return [tau * min(1, 10 / num_classes) for tau in TOLERANCES]


def _border(num_classes: int) -> float:
    """The index that must be exceeded (for two classes: reached), up to rounding."""
    return 1 + 1e-6 if num_classes > 2 else 1 - 1e-6


def _class_conditions(h: Array, working: Labels) -> ClassConditions:
    C = h.shape[1]
    peak = h.max(axis=0)
    zero = h <= ROUNDING
    rank = np.array([_rank(h[zero[:, k]]) for k in range(C)])
    reach = np.ones(C)
    for k in uncovered_classes(h, working):
        _, reach[k], working = exit_facet(h, working, facet_ray(C, k))
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
    # A sample lacks a given row with probability 0.37, and all of the 6 farthest with probability 0.003.
    pool = extreme_rows(h, around, depth=6)
    indices = []
    for _ in range(bootstraps):
        drawn = generator.poisson(1, len(h)) > 0
        drawn[pool[0]] |= not drawn[pool].any()
        found = descend(h[pool[drawn[pool]]], directions[:32], steps=10)
        # The search uses few rows; the support in the directions found is that of all rows of the sample.
        distance, _ = nearest_cut_off(found, support_function(h[drawn], found)[0])
        indices.append(min(float(distance.min()), h.shape[1] - 1.0))
    return float(np.quantile(indices, 0.1))
