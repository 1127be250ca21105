"""The convex hull of posteriors: how far it reaches, and what of the simplex it misses first.

Nothing here knows of labels or of T. A direction is a vector with sum zero; a hull is *short* in a direction where a
plane across it cuts off a part of the simplex near the barycentre.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import chain, combinations

import numpy as np
from scipy.optimize import linprog, nnls
from scipy.spatial import ConvexHull, QhullError

from volmin._typing import Array, Labels

MOST_CLASSES_ENUMERATED = 7
"""Facets of the hull are enumerated up to here; their number explodes with the dimension."""

ROUNDING = 1e-9
"""Distances on the simplex below which two things are the same."""


@dataclass(frozen=True)
class Hull:
    """What was found about a hull: the index is at most ``index`` and at least ``inner``."""

    index: float
    inner: float
    directions: Array  # (K, C), the worst first
    missing: Array
    working_rows: Labels


def measure(h: Array, starts: int, generator: np.random.Generator) -> Hull:
    """The index of the rows' hull: exact for few classes, between bounds for more."""
    C = h.shape[1]
    flat = _flat_direction(h)
    if flat is not None:
        return Hull(0.0, 0.0, flat[None], np.full(C, 1 / C), np.arange(min(len(h), C)))
    directions = start_directions(C, starts, generator)
    working = extreme_rows(h, np.concatenate([directions, -directions]))
    if C == 2:
        directions = _unit(np.array([[1.0, -1.0], [-1.0, 1.0]]))
    else:
        found = _enumerate(h, working) if C <= MOST_CLASSES_ENUMERATED else None
        if found is not None:
            return found
        directions, working = _search(h, working, directions, generator)
    distance, nearest = nearest_missed(directions, support_of(h, directions)[0])
    order = distance.argsort()
    # Anchor points for all classes: the hull is the simplex, and no direction cuts anything off.
    index = min(float(distance[order[0]]), C - 1.0)
    inner = index if C == 2 else min(_inner_cap(h), index)
    return Hull(index, inner, directions[order], nearest[order[0]], working)


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


def start_directions(num_classes: int, starts: int, generator: np.random.Generator) -> Array:
    """Unit directions, (3 C + starts, C): towards each class, away from it in two ways, and random ones."""
    towards = np.eye(num_classes)
    # Exactly away from a class, a hull that touches the facet is never short and has no slope: tilt that start.
    tilt = 0.3 / num_classes * generator.standard_normal((num_classes, num_classes))
    random = generator.standard_normal((starts, num_classes))
    return _unit(np.concatenate([towards, -towards, -towards + tilt, random]))


def support_of(h: Array, directions: Array) -> tuple[Array, Labels]:
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


def extreme_rows(h: Array, directions: Array, depth: int = 1) -> Labels:
    """Rows among the ``depth`` farthest in some direction; with many rows, a few more."""
    size = max(depth, 4_000_000 // len(directions))
    found = []
    for start in range(0, len(h), size):
        reach = h[start : start + size] @ directions.T
        top = max(0, len(reach) - depth)
        found.append(start + np.unique(np.argpartition(reach, top, axis=0)[top:]))
    rows = np.concatenate(found)
    # The farthest of each chunk are many more than the farthest of all.
    return rows[extreme_rows(h[rows], directions, depth)] if len(rows) < len(h) / 2 and len(found) > 1 else rows


def nearest_missed(directions: Array, support: Array) -> tuple[Array, Array]:
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


def descend(h: Array, directions: Array, steps: int) -> Array:
    """Directions improved by projected subgradient steps; each is the best on its way.

    Half the squared distance of a cut has the gradient ``h_i - v``, up to a positive factor, where ``h_i`` is the
    farthest row and v the nearest point that is cut off.
    """
    best, least = directions, np.full(len(directions), np.inf)
    for rate in np.geomspace(0.5, 0.005, steps):
        support, rows = support_of(h, directions)
        distance, nearest = nearest_missed(directions, support)
        improved = distance < least
        best, least = np.where(improved[:, None], directions, best), np.minimum(distance, least)
        directions = _unit(directions - rate * _unit(h[rows] - nearest))
    return best


def _search(h: Array, working: Labels, directions: Array, generator: np.random.Generator) -> tuple[Array, Labels]:
    """Directions in which the hull may be short, found on few rows, and those rows."""
    C = h.shape[1]
    starts = directions
    for _ in range(3):
        directions = descend(h[working], directions, steps=60)
        working = np.union1d(working, support_of(h, directions)[1])
    distance, nearest = nearest_missed(directions, support_of(h, directions)[0])
    tries = max(3, min(16, 100 // C))
    # Near the faces of the simplex a hull is short in cones of directions too narrow to descend into, so points
    # on faces are tried too: random ones, and the middles of facets.
    sparse = generator.dirichlet(np.full(C, 1 / C), tries)
    middles = [1 / C + towards_facet(C, k) for k in uncovered_classes(h, working)[:tries]]
    facets = []
    for point in (*nearest[distance.argsort()[:tries]], *sparse, *middles):
        facet, working = _refine(h, working, point)
        facets.append(facet)
    return np.stack([*starts, *directions, *(facet for facet in facets if facet is not None)]), working


def _refine(h: Array, working: Labels, point: Array) -> tuple[Array | None, Labels]:
    """The facet through which the ray to a point leaves the hull, then the ray to what that facet cuts off, ..."""
    best, distance = None, np.inf
    for _ in range(5):
        facet, _, working = leave(h, working, point - 1 / h.shape[1])
        if facet is None:
            break
        (closer,), (point,) = nearest_missed(facet[None], support_of(h, facet[None])[0])
        if not closer < distance - 1e-7:
            break
        best, distance = facet, float(closer)
    return best, working


def leave(h: Array, working: Labels, ray: Array) -> tuple[Array | None, float, Labels]:
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


def _enumerate(h: Array, working: Labels) -> Hull | None:
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
        distance, nearest = nearest_missed(directions, support)
        worst = distance.argsort()[:64]
        reach, rows = support_of(h, directions[worst])
        beyond = reach > support[worst] + ROUNDING
        if not beyond[0]:
            index = min(float(distance[worst[0]]), C - 1.0)
            return Hull(index, index, directions[worst], nearest[worst[0]], working)
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


def towards_facet(num_classes: int, k: int) -> Array:
    """From the barycentre to the middle of the facet without class k, where the inscribed ball touches it."""
    ray = np.full(num_classes, 1 / (num_classes - 1) - 1 / num_classes)
    ray[k] = -1 / num_classes
    return ray


def uncovered_classes(h: Array, working: Labels) -> list[int]:
    """Classes whose facet has a middle that the working rows do not surround.

    The middle lies on the facet, so only rows on the facet count.
    """
    C = h.shape[1]
    uncovered = []
    for k in range(C):
        on_facet = h[working[h[working, k] <= ROUNDING]]
        if len(on_facet) == 0 or nnls(on_facet.T, 1 / C + towards_facet(C, k))[1] > ROUNDING:
            uncovered.append(k)
    return uncovered
