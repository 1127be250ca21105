"""The scatter index of the convex hull of posteriors: exact for few classes, between bounds for more.

The index is the smallest distance from the barycentre to a point of the simplex outside the hull, in units of the
radius of the inscribed ball. Most computations use few *working rows*, whose hull is extended by other rows until none
lies beyond the facets of interest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import chain, combinations

import numpy as np
from scipy.optimize import linprog, nnls
from scipy.spatial import ConvexHull, QhullError

from volmin._typing import Array, Labels
from volmin.identifiability.support import (
    ROUNDING,
    descend,
    extreme_rows,
    nearest_cut_off,
    simplex_basis,
    start_directions,
    support_function,
    unit,
)

MOST_CLASSES_ENUMERATED = 7
"""Largest number of classes for which facets are enumerated; their number grows exponentially with it."""

LARGEST_FACE = 6
"""Largest number of positive entries of the cap vertices that are checked for the lower bound."""

MOST_FACES = 5000
"""Largest number of faces of the simplex that are checked for the lower bound."""


@dataclass(frozen=True)
class Hull:
    """What is known about a hull.

    Attributes:
        index: Upper bound of the scatter index.
        inner: Lower bound of the scatter index.
        directions: (K, C) directions in which the hull is shortest, the shortest first.
        missing: (C,) point of the simplex outside the hull that gives ``index``.
        working_rows: Rows whose hull was examined.
    """

    index: float
    inner: float
    directions: Array
    missing: Array
    working_rows: Labels


def measure(h: Array, starts: int, generator: np.random.Generator) -> Hull:
    """Bounds of the scatter index of the hull of (N, C) posteriors, equal for few classes.

    Args:
        h: (N, C) posteriors.
        starts: Number of random directions from which the search starts.
        generator: Source of the random directions.
    """
    C = h.shape[1]
    flat = _flat_direction(h)
    if flat is not None:
        return Hull(0.0, 0.0, flat[None], np.full(C, 1 / C), np.arange(min(len(h), C)))
    directions = start_directions(C, starts, generator)
    working = extreme_rows(h, np.concatenate([directions, -directions]))
    if C == 2:
        directions = unit(np.array([[1.0, -1.0], [-1.0, 1.0]]))
    else:
        found = _enumerate(h, working) if C <= MOST_CLASSES_ENUMERATED else None
        if found is not None:
            return found
        directions, working = _search(h, working, directions, generator)
    distance, nearest = nearest_cut_off(directions, support_function(h, directions)[0])
    order = distance.argsort()
    # With anchor points for all classes the hull is the simplex, and no direction cuts anything off.
    index = min(float(distance[order[0]]), C - 1.0)
    inner = index if C == 2 else min(_inner_cap(h), index)
    return Hull(index, inner, directions[order], nearest[order[0]], working)


def _flat_direction(h: Array) -> Array | None:
    """A direction of the simplex in which the rows do not vary, if there is one."""
    basis = simplex_basis(h.shape[1])
    spread = (h - h.mean(axis=0)) @ basis
    variances, axes = np.linalg.eigh(spread.T @ spread / len(h))
    return basis @ axes[:, 0] if variances[0] < ROUNDING**2 else None


def _search(h: Array, working: Labels, directions: Array, generator: np.random.Generator) -> tuple[Array, Labels]:
    """Directions in which the hull may be short, and the working rows on which they were found."""
    C = h.shape[1]
    starts = directions
    for _ in range(3):
        directions = descend(h[working], directions, steps=60)
        working = np.union1d(working, support_function(h, directions)[1])
    distance, nearest = nearest_cut_off(directions, support_function(h, directions)[0])
    tries = max(3, min(16, 100 // C))
    # Near the faces of the simplex a hull is short in cones of directions that are too narrow for the descent, so
    # rays to points on faces are tried as well: random ones, and the centres of facets.
    sparse = generator.dirichlet(np.full(C, 1 / C), tries)
    centres = [1 / C + facet_ray(C, k) for k in uncovered_classes(h, working)[:tries]]
    facets = []
    for point in (*nearest[distance.argsort()[:tries]], *sparse, *centres):
        facet, working = _refine(h, working, point)
        facets.append(facet)
    return np.stack([*starts, *directions, *(facet for facet in facets if facet is not None)]), working


def _refine(h: Array, working: Labels, point: Array) -> tuple[Array | None, Labels]:
    """The facet where the ray to a point leaves the hull; repeated with the point that this facet cuts off."""
    best, distance = None, np.inf
    for _ in range(5):
        facet, _, working = exit_facet(h, working, point - 1 / h.shape[1])
        if facet is None:
            break
        (closer,), (point,) = nearest_cut_off(facet[None], support_function(h, facet[None])[0])
        if not closer < distance - 1e-7:
            break
        best, distance = facet, float(closer)
    return best, working


def exit_facet(h: Array, working: Labels, ray: Array) -> tuple[Array | None, float, Labels]:
    """The facet through which a ray from the barycentre leaves the hull.

    A linear program on the working rows, to which rows beyond its solution are added until there are none. If the hull
    does not contain the barycentre, the exit is at 0. If rows remain beyond the solution after the last iteration, the
    normal is that of a supporting plane, and the exit is an upper bound.

    Returns:
        The unit normal of the facet (None if the program failed), the exit in multiples of ``ray``, and the working
        rows.
    """
    C = h.shape[1]
    objective = np.r_[np.zeros(C), 1.0]
    equalities = np.stack([np.r_[ray, 0.0], np.r_[np.ones(C), 0.0]])
    bounds = [(None, None)] * C + [(0, None)]
    normal, support = None, math.nan
    for _ in range(10):
        rows = np.c_[h[working] - 1 / C, -np.ones(len(working))]
        # Presolving so small and dense a program takes longer than it saves.
        answer = linprog(
            objective, rows, np.zeros(len(rows)), equalities, [1.0, 0.0], bounds, "highs", options={"presolve": False}
        )
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
    return None if normal is None else unit(normal[None])[0], support, working


def _enumerate(h: Array, working: Labels) -> Hull | None:
    """The exact index from the facets of the hull; None if Qhull fails, with too many or too flat facets.

    The hull of the working rows gives a lower bound and the facet that attains it. If no row lies beyond this facet, it
    is a facet of the whole hull, and the bound is the index. Otherwise the rows beyond it are added.
    """
    C = h.shape[1]
    basis = simplex_basis(C)
    for _ in range(100):
        try:
            equations = ConvexHull(h[working] @ basis).equations
        except QhullError:
            return None
        directions, support = equations[:, :-1] @ basis.T, -equations[:, -1]
        distance, nearest = nearest_cut_off(directions, support)
        worst = distance.argsort()[:64]
        reach, rows = support_function(h, directions[worst])
        beyond = reach > support[worst] + ROUNDING
        if not beyond[0]:
            index = min(float(distance[worst[0]]), C - 1.0)
            return Hull(index, index, directions[worst], nearest[worst[0]], working)
        working = np.union1d(working, rows[beyond])
    return None


def _inner_cap(h: Array) -> float:
    """A lower bound of the index: ``C a - 1`` for the largest a tried whose cap ``{v : max v <= a}`` is in the hull."""
    C = h.shape[1]
    highest = float(h.max(axis=0).min())
    rows = np.unique(h[(h > 0).sum(axis=1) <= LARGEST_FACE], axis=0)
    by_support: dict[tuple[int, ...], list[int]] = {}
    for row, positive in enumerate(rows > 0):
        by_support.setdefault(tuple(np.flatnonzero(positive).tolist()), []).append(row)
    for a in np.linspace(highest, 2 / C, 8)[:-1]:
        if a > 2 / C and _contains_cap(rows, by_support, float(a)):
            return C * float(a) - 1
    return 0.0


def _contains_cap(rows: Array, by_support: dict[tuple[int, ...], list[int]], a: float) -> bool:
    """Whether the hull contains the vertices of a cap: as many entries a as fit, one for the rest, and zeros.

    A vertex lies on a face of the simplex, so it is a convex combination of rows on that face only.
    """
    full = int(1 / a + ROUNDING)
    rest = 1 - full * a
    values = np.r_[np.full(full, a), [rest] if rest > ROUNDING else []]
    C, size = rows.shape[1], len(values)
    if size > LARGEST_FACE or math.comb(C, size) > MOST_FACES:
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


def facet_ray(num_classes: int, k: int) -> Array:
    """Vector from the barycentre to the centre of the facet without class k, where the inscribed ball touches it."""
    ray = np.full(num_classes, 1 / (num_classes - 1) - 1 / num_classes)
    ray[k] = -1 / num_classes
    return ray


def uncovered_classes(h: Array, working: Labels) -> list[int]:
    """Classes k for which the hull of the working rows does not contain the centre of the facet without class k.

    The centre lies on the facet, so it is a convex combination of rows on the facet only.
    """
    C = h.shape[1]
    uncovered = []
    for k in range(C):
        on_facet = h[working[h[working, k] <= ROUNDING]]
        if len(on_facet) == 0 or nnls(on_facet.T, 1 / C + facet_ray(C, k))[1] > ROUNDING:
            uncovered.append(k)
    return uncovered
