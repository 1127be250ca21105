"""Do the posteriors determine T? The scatter index, its witness, and what can be said without it.

Volume minimisation finds the true T when the clean posteriors are *sufficiently scattered*. On the simplex this
means that their convex hull contains the inscribed ball of the simplex and a little more. The scatter index s is
the radius of the largest ball around the barycentre whose part in the simplex lies inside the hull, in units of
the inscribed ball's:

- s < 1: T is not determined; a smaller matrix than the true one explains the noisy labels as well.
- s = 1: the border. s > 1: the condition holds, with margin. s = C - 1: every class has anchor points.

If the hull is ``{v : max v <= a}``, then ``s = C a - 1``. For two classes only anchor points will do, s = 1.

The hull of *estimated* posteriors is looked at, so a small index refutes T, while a large one never verifies it:
any noisy posteriors are also the clean posteriors of ``T = I``. A softmax never gives the exact zeros that the
condition asks for, so posteriors below a tolerance count as zero, and the index is given for several tolerances.

References: Li et al., "Provably End-to-end Label-noise Learning without Anchor Points" (ICML 2021), for the
condition; Gillis & Luce (arXiv 2402.06019) and Barbarino, Gillis & Saha (arXiv 2511.04291) for checking it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from itertools import chain, combinations
from types import ModuleType

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linprog, nnls
from scipy.spatial import ConvexHull, QhullError
from torch import Tensor

from volmin.posteriors import validate_labels, validate_posteriors
from volmin.quality import (
    Array,
    Indices,
    climb_transition,
    likeliest_transition,
    split_by_label,
)

TOLERANCES = (0.0, 0.005, 0.01, 0.02, 0.05)
"""Posteriors below them count as zero, for up to 10 classes; for more classes they shrink like 10 / C."""

MOST_CLASSES_ENUMERATED = 7
"""Facets of the hull are enumerated up to here; their number explodes with the dimension."""

ROUNDING = 1e-9
"""Distances on the simplex below which two things are the same."""


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
    zeros: Indices
    rank: Indices
    reach: Array
    failing: tuple[int, ...]


@dataclass(frozen=True)
class Scatter:
    """How scattered posteriors are; see the module for the meaning of the index.

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
    def verdict(self) -> str:
        """The finding in plain words; the first two say which of three cases it is."""
        C = len(self.witness)
        if self.refuted:
            return "not identified: T is the most noise compatible with the data" + self._failing_classes()
        enough = 1.0 if C == 2 else 1.5 if C < 10 else 2.0
        sure = min(self.index, self.index if math.isnan(self.quantile) else self.quantile)
        if sure < enough - 1e-6:
            return f"borderline: a scatter index of {self.index:.2f} leaves no margin; expect too much noise in T"
        proof = "" if self.holds else ", as far as a search for counter-examples can tell"
        return f"well identified, if the posteriors are right{proof}: they can contradict T but never verify it"

    def _failing_classes(self) -> str:
        failing = ", ".join(map(str, self.per_class.failing))
        return f" (classes short of evidence: {failing})" if failing else ""


def scatter(
    posteriors: ArrayLike | Tensor,
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
    hull = _measure(clipped, starts, generator)

    def index_at(tau: float) -> float:
        other = _clipped(h, tau)
        return hull.index if np.array_equal(other, clipped) else _measure(other, starts, generator).index

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
    posteriors: ArrayLike | Tensor,
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
        raise ValueError(f"margin must lie above 1 and below C - 1 = {C - 1}, but is {margin:g}.")
    h = _clipped(h, _checked_tolerance(tolerance, C))
    try:
        scip = import_module("pyscipopt")
    except ImportError:
        raise ImportError("certificate needs the SCIP solver; install it with: pip install pyscipopt") from None
    hull = _measure(h, 64, np.random.default_rng(0))
    if hull.index < margin or hull.inner >= margin:
        return hull.inner >= margin
    working = hull.working_rows
    for _ in range(20):
        cut, proved = _cut_off_ball(scip, h[working], margin, seconds)
        if cut is None:
            return True if proved else None
        # The cut is one of the working rows' hull; it counts if no other row lies beyond it.
        beyond = np.flatnonzero(h @ cut < -ROUNDING)
        if len(beyond) == 0:
            return False
        working = np.union1d(working, beyond[(h[beyond] @ cut).argsort()[: 2 * C]])
    return None


def bracket(probs: ArrayLike | Tensor, *, trim: float = 0.01) -> Array:
    """Bounds of each class's noise rate P(noisy != j | clean = j) that need no scatter, (C, 2).

    If no class gives label j more often than class j does (``T[j, j] >= T[j, k]``), a noisy posterior of j never
    exceeds ``T[j, j]``. So the noise rate lies between 0 and 1 minus the largest posterior.

    Args:
        probs: (N, C) *noisy* class posteriors, out of sample.
        trim: share of a class's N / C rows with the largest posteriors that is left out as estimation error.
    """
    if not 0 <= trim < 1:
        raise ValueError(f"trim must be a share of rows, at least 0 and below 1, but is {trim:g}.")
    p = validate_posteriors(probs)
    rank = len(p) - 1 - int(trim * len(p) / p.shape[1])
    highest = np.partition(p, rank, axis=0)[rank]
    return np.stack([np.zeros(p.shape[1]), 1 - highest], axis=1)


@dataclass(frozen=True)
class Comparison:
    """A likelihood-ratio test, calibrated by labels redrawn under the hypothesis.

    Attributes:
        statistic: twice the log likelihood that the hypothesis loses.
        p_value: the share of redrawn labels that lose at least as much.
        T: likeliest matrices without the hypothesis: (C, C), or (G, C, C) by group.
        classes: classes j whose column speaks against the hypothesis most plainly, see the test.
    """

    statistic: float
    p_value: float
    T: Array
    classes: tuple[int, ...]


def dominance_test(
    clean_probs: ArrayLike | Tensor, labels: ArrayLike | Tensor, *, resamples: int = 99, seed: int = 0
) -> Comparison:
    """Do the labels contradict a T whose diagonal entry is the largest of its column?

    Real noise may: in Clothing1M most sweaters are labelled as knitwear. A T that is forced to be dominant is
    then wrong without notice. The posteriors must not rest on the same assumption, so take them from a model of a
    few clean labels. ``classes`` of the answer are those that get another label more often than their own.

    Args:
        clean_probs: (N, C) clean class posteriors.
        labels: (N,) noisy labels in ``0 .. C-1``.
        resamples: label sets redrawn under the hypothesis.
        seed: of the redrawn labels.
    """
    h = validate_posteriors(clean_probs, "clean_probs")
    y = validate_labels(labels, *h.shape)
    T = likeliest_transition(y, h)
    restricted = likeliest_transition(y, h, dominant=True)

    def lost(y: Indices) -> float:
        rows = split_by_label(y, h)
        free, dominant = (climb_transition(rows, _inner(restricted)[None], flag)[0] for flag in (False, True))
        return 2 * (_log_likelihood(y, h, free) - _log_likelihood(y, h, dominant))

    contradicting = tuple(int(j) for j in np.flatnonzero(T.argmax(axis=0) != np.arange(len(T))))
    return Comparison(*_calibrate(lost, y, h, restricted, resamples, seed), T, contradicting)


def common_transition_test(
    clean_probs: ArrayLike | Tensor,
    labels: ArrayLike | Tensor,
    groups: ArrayLike,
    *,
    resamples: int = 99,
    seed: int = 0,
) -> Comparison:
    """Do the labels contradict one T for all groups of rows, such as sources, annotators or feature clusters?

    ``classes`` of the answer are those whose noise rates differ by more than 0.1 between groups.

    Args:
        clean_probs: (N, C) clean class posteriors.
        labels: (N,) noisy labels in ``0 .. C-1``.
        groups: (N,) group of each row, at least two different ones.
        resamples: label sets redrawn under the hypothesis.
        seed: of the redrawn labels.
    """
    h = validate_posteriors(clean_probs, "clean_probs")
    y = validate_labels(labels, *h.shape)
    try:
        names, group = np.unique(np.asarray(groups), return_inverse=True)
    except TypeError:
        raise TypeError("groups must be of one type that can be ordered, such as all numbers or all texts.") from None
    if group.shape != y.shape or len(names) < 2:
        raise ValueError(
            f"groups must name one of at least 2 groups for each of {len(y)} rows, "
            f"but have shape {np.shape(groups)} and {len(names)} different values."
        )
    pooled = likeliest_transition(y, h)
    members = [group == g for g in range(len(names))]

    def fit(y: Indices, here: NDArray[np.bool_] | slice) -> Array:
        return climb_transition(split_by_label(y[here], h[here]), _inner(pooled)[None])[0]

    def lost(y: Indices) -> float:
        apart = sum(_log_likelihood(y[here], h[here], fit(y, here)) for here in members)
        return 2 * (apart - _log_likelihood(y, h, fit(y, slice(None))))

    T = np.stack([fit(y, here) for here in members])
    spread = np.ptp(np.diagonal(T, axis1=1, axis2=2), axis=0)
    contradicting = tuple(int(j) for j in np.flatnonzero(spread > 0.1))
    return Comparison(*_calibrate(lost, y, h, pooled, resamples, seed), T, contradicting)


@dataclass(frozen=True)
class _Hull:
    """What was found about a hull: the index is at most ``index`` and at least ``inner``."""

    index: float
    inner: float
    directions: Array  # (K, C), the worst first
    missing: Array
    working_rows: Indices


def _border(num_classes: int) -> float:
    """The index that must be exceeded (for two classes: reached), less rounding."""
    return 1 + 1e-6 if num_classes > 2 else 1 - 1e-6


def _ladder(num_classes: int) -> list[float]:
    return [tau * min(1, 10 / num_classes) for tau in TOLERANCES]


def _checked_tolerance(tolerance: float | None, num_classes: int) -> float:
    tolerance = _ladder(num_classes)[3] if tolerance is None else float(tolerance)
    if not 0 <= tolerance < 1 / num_classes:
        bound = f"1/C = {1 / num_classes:.3g}"
        raise ValueError(f"tolerance must be at least 0 and below {bound}, but is {tolerance:g}.")
    return tolerance


def _clipped(h: Array, tolerance: float) -> Array:
    kept = np.where(h < tolerance, 0.0, h)
    return kept / kept.sum(axis=1, keepdims=True)


def _measure(h: Array, starts: int, generator: np.random.Generator) -> _Hull:
    C = h.shape[1]
    flat = _flat_direction(h)
    if flat is not None:
        return _Hull(0.0, 0.0, flat[None], np.full(C, 1 / C), np.arange(min(len(h), C)))
    directions = _start_directions(C, starts, generator)
    working = _extreme_rows(h, np.concatenate([directions, -directions]))
    if C == 2:
        directions = _unit(np.array([[1.0, -1.0], [-1.0, 1.0]]))
    else:
        found = _enumerate(h, working) if C <= MOST_CLASSES_ENUMERATED else None
        if found is not None:
            return found
        directions, working = _search(h, working, directions, generator)
    distance, nearest = _cut(directions, _support(h, directions)[0])
    order = distance.argsort()
    # Anchor points for all classes: the hull is the simplex, and no direction cuts anything off.
    index = min(float(distance[order[0]]), C - 1.0)
    inner = index if C == 2 else min(_inner_cap(h), index)
    return _Hull(index, inner, directions[order], nearest[order[0]], working)


def _flat_direction(h: Array) -> Array | None:
    """A direction in which the rows do not vary at all, if there is one among those of the simplex."""
    basis = _basis(h.shape[1])
    spread = (h - h.mean(axis=0)) @ basis
    variances, axes = np.linalg.eigh(spread.T @ spread / len(h))
    return basis @ axes[:, 0] if variances[0] < ROUNDING**2 else None


def _basis(num_classes: int) -> Array:
    """(C, C-1) orthonormal columns that span the directions of the simplex."""
    centred = np.eye(num_classes) - 1 / num_classes
    return np.linalg.svd(centred)[0][:, : num_classes - 1]


def _unit(directions: Array) -> Array:
    centred = directions - directions.mean(axis=1, keepdims=True)
    return centred / np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-300)


def _start_directions(num_classes: int, starts: int, generator: np.random.Generator) -> Array:
    towards = np.eye(num_classes)
    # Exactly away from a class, a hull that touches the facet is never short and has no slope: tilt that start.
    tilt = 0.3 / num_classes * generator.standard_normal((num_classes, num_classes))
    random = generator.standard_normal((starts, num_classes))
    return _unit(np.concatenate([towards, -towards, -towards + tilt, random]))


def _support(h: Array, directions: Array) -> tuple[Array, Indices]:
    """How far the rows reach in each direction, and the row that reaches farthest; (K,) each."""
    farthest = np.full(len(directions), -np.inf)
    rows = np.zeros(len(directions), dtype=np.int64)
    size = max(1, 4_000_000 // len(directions))
    for start in range(0, len(h), size):
        reach = h[start : start + size] @ directions.T
        here = reach.argmax(axis=0)
        value = reach[here, np.arange(len(directions))]
        rows = np.where(value > farthest, start + here, rows)
        farthest = np.maximum(farthest, value)
    return farthest, rows


def _extreme_rows(h: Array, directions: Array, depth: int = 1) -> Indices:
    """Rows among the ``depth`` farthest in some direction; with many rows, a few more."""
    size = max(depth, 4_000_000 // len(directions))
    found = []
    for start in range(0, len(h), size):
        reach = h[start : start + size] @ directions.T
        top = max(0, len(reach) - depth)
        found.append(start + np.unique(np.argpartition(reach, top, axis=0)[top:]))
    rows = np.concatenate(found)
    # The farthest of each chunk are many more than the farthest of all.
    return rows[_extreme_rows(h[rows], directions, depth)] if len(rows) < len(h) / 2 and len(found) > 1 else rows


def _cut(directions: Array, support: Array) -> tuple[Array, Array]:
    """The point of the simplex nearest to the barycentre that the hull misses in each direction.

    It is the projection of the barycentre on ``{v in simplex : u'v >= support}``. Its positive entries are those
    of the k largest entries of u, for some k, and given k everything is in closed form; the largest k whose
    entries are indeed positive is the right one.

    Returns:
        (K,) distances in units of the inscribed ball's radius, infinite where the hull reaches the end of the
        simplex, and (K, C) points.
    """
    K, C = directions.shape
    order = (-directions).argsort(axis=1)
    u = np.take_along_axis(directions, order, axis=1)
    size = np.arange(1, C + 1)
    mean = u.cumsum(axis=1) / size
    spread = np.maximum((u**2).cumsum(axis=1) - size * mean**2, 0)
    step = np.divide(support[:, None] - mean, spread, out=np.zeros((K, C)), where=spread > 1e-30)
    positive = 1 / size + step * (u - mean) >= 0
    k = C - 1 - positive[:, ::-1].argmax(axis=1)
    row = np.arange(K)
    entries = 1 / (k + 1)[:, None] + step[row, k][:, None] * (u - mean[row, k][:, None])
    points = np.zeros((K, C))
    np.put_along_axis(points, order, np.where(np.arange(C) <= k[:, None], np.maximum(entries, 0), 0), axis=1)
    squared = 1 / (k + 1) - 1 / C + step[row, k] ** 2 * spread[row, k]
    distance = np.sqrt(np.maximum(squared, 0) * C * (C - 1))
    outside = support <= 0
    distance[outside], points[outside] = 0, 1 / C
    distance[support >= u[:, 0] - ROUNDING] = np.inf
    return distance, points


def _descend(h: Array, directions: Array, steps: int) -> Array:
    """Directions improved by projected subgradient steps; each is the best on its way.

    Half the squared distance of a cut has the gradient ``h_i - v``, up to a positive factor, where ``h_i`` is the
    farthest row and v the nearest point that is cut off.
    """
    best, least = directions, np.full(len(directions), np.inf)
    for rate in np.geomspace(0.5, 0.005, steps):
        support, rows = _support(h, directions)
        distance, nearest = _cut(directions, support)
        improved = distance < least
        best, least = np.where(improved[:, None], directions, best), np.minimum(distance, least)
        directions = _unit(directions - rate * _unit(h[rows] - nearest))
    return best


def _search(h: Array, working: Indices, directions: Array, generator: np.random.Generator) -> tuple[Array, Indices]:
    """Directions in which the hull may be short, found on few rows, and those rows."""
    C = h.shape[1]
    starts = directions
    for _ in range(3):
        directions = _descend(h[working], directions, steps=60)
        working = np.union1d(working, _support(h, directions)[1])
    distance, nearest = _cut(directions, _support(h, directions)[0])
    tries = max(3, min(16, 100 // C))
    # Near the faces of the simplex a hull is short in cones of directions too narrow to descend into, so points
    # on faces are tried too: random ones, and the middles of facets.
    sparse = generator.dirichlet(np.full(C, 1 / C), tries)
    middles = [1 / C + _towards_facet(C, k) for k in _uncovered_classes(h, working)[:tries]]
    facets = []
    for point in (*nearest[distance.argsort()[:tries]], *sparse, *middles):
        facet, working = _refine(h, working, point)
        facets.append(facet)
    return np.stack([*starts, *directions, *(facet for facet in facets if facet is not None)]), working


def _refine(h: Array, working: Indices, point: Array) -> tuple[Array | None, Indices]:
    """The facet through which the ray to a point leaves the hull, then the ray to what that facet cuts off, ..."""
    best, distance = None, np.inf
    for _ in range(5):
        facet, _, working = _leave(h, working, point - 1 / h.shape[1])
        if facet is None:
            break
        (closer,), (point,) = _cut(facet[None], _support(h, facet[None])[0])
        if not closer < distance - 1e-7:
            break
        best, distance = facet, float(closer)
    return best, working


def _leave(h: Array, working: Indices, ray: Array) -> tuple[Array | None, float, Indices]:
    """The unit normal of the facet through which a ray from the barycentre leaves the hull, and how far along.

    A linear program on the working rows, which are joined by rows that its answer cuts off until there are none.
    A hull without the barycentre is left at once, at 0. If rows still are cut off in the end, the normal is that
    of a face which they touch, and the distance an upper bound.
    """
    C = h.shape[1]
    objective = np.r_[np.zeros(C), 1.0]
    equalities = np.stack([np.r_[ray, 0.0], np.r_[np.ones(C), 0.0]])
    bounds = [(None, None)] * C + [(0, None)]
    normal, support = None, math.nan
    for _ in range(10):
        rows = np.c_[h[working] - 1 / C, -np.ones(len(working))]
        answer = linprog(objective, rows, np.zeros(len(rows)), equalities, [1.0, 0.0], bounds, method="highs")
        if answer.status != 0:
            break
        normal, support = answer.x[:C], float(answer.x[C])
        reach = h @ normal
        beyond = np.flatnonzero(reach > support + 1e-9 * np.abs(normal).max())
        new = np.setdiff1d(beyond[reach[beyond].argsort()[-2 * C :]], working)
        if len(new) == 0:
            break
        support = float(reach.max())
        working = np.union1d(working, new)
    return None if normal is None else _unit(normal[None])[0], support, working


def _enumerate(h: Array, working: Indices) -> _Hull | None:
    """The exact index, from the facets of the hull; None if they are too many or too flat for Qhull.

    The hull of few rows gives a lower bound and the facet behind it. If all rows are on its inner side it is a
    facet of the whole hull, and the bound is the index; else the rows beyond it join, and so on.
    """
    C = h.shape[1]
    basis = _basis(C)
    for _ in range(100):
        try:
            equations = ConvexHull(h[working] @ basis).equations
        except QhullError:
            return None
        directions, support = equations[:, :-1] @ basis.T, -equations[:, -1]
        distance, nearest = _cut(directions, support)
        worst = distance.argsort()[:64]
        reach, rows = _support(h, directions[worst])
        beyond = reach > support[worst] + ROUNDING
        if not beyond[0]:
            index = min(float(distance[worst[0]]), C - 1.0)
            return _Hull(index, index, directions[worst], nearest[worst[0]], working)
        working = np.union1d(working, rows[beyond])
    return None


def _inner_cap(h: Array) -> float:
    """A lower bound on the index: ``C a - 1`` for the largest tried a whose ``{v : max v <= a}`` is inside."""
    C = h.shape[1]
    highest = float(h.max(axis=0).min())
    rows = np.unique(h[(h > 0).sum(axis=1) <= 6], axis=0)
    by_support: dict[tuple[int, ...], list[int]] = {}
    for row, positive in enumerate(rows > 0):
        by_support.setdefault(tuple(np.flatnonzero(positive).tolist()), []).append(row)
    for a in np.linspace(highest, 2 / C, 8)[:-1]:
        if a > 2 / C and _contains_cap(rows, by_support, float(a)):
            return C * float(a) - 1
    return 0.0


def _contains_cap(rows: Array, by_support: dict[tuple[int, ...], list[int]], a: float) -> bool:
    """Whether the hull contains the vertices of the cap: as many entries a as fit, one for the rest, else zeros.

    A vertex lies on a face of the simplex, so only rows on that face can surround it.
    """
    full = int(1 / a + ROUNDING)
    rest = 1 - full * a
    values = np.r_[np.full(full, a), [rest] if rest > ROUNDING else []]
    C, size = rows.shape[1], len(values)
    if size > 6 or math.comb(C, size) > 5000:
        return False
    for face in combinations(range(C), size):
        subsets = chain.from_iterable(combinations(face, k) for k in range(1, size + 1))
        here = [row for subset in subsets for row in by_support.get(subset, ())]
        if not here:
            return False
        corners = rows[here][:, face].T
        vertices = {tuple(np.roll(values, shift)) for shift in range(size)}
        if any(nnls(corners, np.array(vertex))[1] > 1e-8 for vertex in vertices):
            return False
    return True


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


def _class_conditions(h: Array, working: Indices) -> ClassConditions:
    C = h.shape[1]
    peak = h.max(axis=0)
    zero = h <= ROUNDING
    rank = np.array([_rank(h[zero[:, k]]) for k in range(C)])
    reach = np.ones(C)
    for k in _uncovered_classes(h, working):
        _, reach[k], working = _leave(h, working, _towards_facet(C, k))
    fails = (peak < 2 / C - 1e-9) | (rank < C - 1) | (reach < 1 - 1e-6)
    return ClassConditions(peak, zero.sum(axis=0), rank, reach, tuple(int(k) for k in np.flatnonzero(fails)))


def _towards_facet(num_classes: int, k: int) -> Array:
    """From the barycentre to the middle of the facet without class k, where the inscribed ball touches it."""
    ray = np.full(num_classes, 1 / (num_classes - 1) - 1 / num_classes)
    ray[k] = -1 / num_classes
    return ray


def _uncovered_classes(h: Array, working: Indices) -> list[int]:
    """Classes whose facet has a middle that the working rows do not surround.

    The middle lies on the facet, so only rows on the facet count.
    """
    C = h.shape[1]
    uncovered = []
    for k in range(C):
        on_facet = h[working[h[working, k] <= ROUNDING]]
        if len(on_facet) == 0 or nnls(on_facet.T, 1 / C + _towards_facet(C, k))[1] > ROUNDING:
            uncovered.append(k)
    return uncovered


def _rank(rows: Array) -> int:
    values = np.linalg.eigvalsh(rows.T @ rows / max(len(rows), 1))
    return int((values > ROUNDING**1.5).sum())


def _bootstrap_quantile(h: Array, directions: Array, bootstraps: int, generator: np.random.Generator) -> float:
    """10 % quantile of the index over Poisson bootstraps; each is a short search from the worst directions."""
    if bootstraps == 0:
        return math.nan
    around = np.concatenate([directions, -directions, _start_directions(h.shape[1], 128, generator)])
    # A row is left out with probability 0.37; all of the 6 farthest ones with 0.003.
    pool = _extreme_rows(h, around, depth=6)
    indices = []
    for _ in range(bootstraps):
        drawn = generator.poisson(1, len(h)) > 0
        drawn[pool[0]] |= not drawn[pool].any()
        found = _descend(h[pool[drawn[pool]]], directions[:32], steps=10)
        # The search saw few rows; its verdict counts all that were drawn.
        distance, _ = _cut(found, _support(h[drawn], found)[0])
        indices.append(min(float(distance.min()), h.shape[1] - 1.0))
    return float(np.quantile(indices, 0.1))


def _inner(T: Array) -> Array:
    """T moved off the boundary, which EM could not leave."""
    return 0.95 * T + 0.05 / len(T)


def _log_likelihood(y: Indices, h: Array, T: Array) -> float:
    return float(np.log(np.maximum((h * T[y]).sum(axis=1), 1e-300)).sum())


def _calibrate(
    lost: Callable[[Indices], float], y: Indices, h: Array, T: Array, resamples: int, seed: int
) -> tuple[float, float]:
    """The statistic of the labels, and its p-value among labels redrawn from T."""
    if resamples < 19:
        raise ValueError(f"resamples must be at least 19, for a p-value of 0.05 to exist, but is {resamples}.")
    generator = np.random.default_rng(seed)
    cumulative = (h @ T.T).cumsum(axis=1)[:, :-1]
    observed = lost(y)
    redrawn = [lost((generator.random((len(h), 1)) > cumulative).sum(axis=1)) for _ in range(resamples)]
    return observed, (1 + sum(value >= observed for value in redrawn)) / (1 + resamples)
