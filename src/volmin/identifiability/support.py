"""Support functions of posteriors on the simplex, and what a bound on them cuts off.

A direction u is a unit vector with sum zero. The support of the hull of posteriors in direction u is the largest
``u'h`` over them; the hull lies in the half-space ``u'v <= support``, which cuts off the rest of the simplex.
"""

from __future__ import annotations

import numpy as np

from volmin._typing import Array, Labels

ROUNDING = 1e-9
"""Distances on the simplex below which two points are the same."""

BLOCK_NUMBERS = 4_000_000
"""Rows times directions processed at a time, to bound memory."""


def unit(directions: Array) -> Array:
    """Rows (K, C) centred and normalised."""
    centred = directions - directions.mean(axis=1, keepdims=True)
    return centred / np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-300)


def simplex_basis(num_classes: int) -> Array:
    """(C, C-1) orthonormal columns that span the directions of the simplex."""
    centred = np.eye(num_classes) - 1 / num_classes
    return np.linalg.svd(centred)[0][:, : num_classes - 1]


def start_directions(num_classes: int, starts: int, generator: np.random.Generator) -> Array:
    """Unit directions, (3 C + starts, C): towards each class, away from it, away with a tilt, and random ones."""
    towards = np.eye(num_classes)
    # A hull that touches a facet gives no subgradient exactly away from its class, hence the tilted starts.
    tilt = 0.3 / num_classes * generator.standard_normal((num_classes, num_classes))
    random = generator.standard_normal((starts, num_classes))
    return unit(np.concatenate([towards, -towards, -towards + tilt, random]))


def support_function(h: Array, directions: Array) -> tuple[Array, Labels]:
    """The support of the rows in each direction, and the row that attains it; (K,) each."""
    farthest = np.full(len(directions), -np.inf)
    rows = np.zeros(len(directions), dtype=np.int64)
    size = max(1, BLOCK_NUMBERS // len(directions))
    for start in range(0, len(h), size):
        reach = h[start : start + size] @ directions.T
        here = reach.argmax(axis=0)
        value = reach[here, np.arange(len(directions))]
        rows = np.where(value > farthest, start + here, rows)
        farthest = np.maximum(farthest, value)
    return farthest, rows


def extreme_rows(h: Array, directions: Array, depth: int = 1) -> Labels:
    """Rows among the ``depth`` farthest in some direction; a superset of these if there are many rows."""
    size = max(depth, BLOCK_NUMBERS // len(directions))
    found = []
    for start in range(0, len(h), size):
        reach = h[start : start + size] @ directions.T
        top = max(0, len(reach) - depth)
        found.append(start + np.unique(np.argpartition(reach, top, axis=0)[top:]))
    rows = np.concatenate(found)
    # The farthest rows of all blocks are many more than the farthest rows overall.
    return rows[extreme_rows(h[rows], directions, depth)] if len(rows) < len(h) / 2 and len(found) > 1 else rows


def nearest_cut_off(directions: Array, support: Array) -> tuple[Array, Array]:
    """The point of the simplex nearest to the barycentre that each half-space cuts off.

    It is the projection of the barycentre on ``{v in simplex : u'v >= support}``. Its positive entries are those of the
    k largest entries of u for some k, and for given k the projection has a closed form; k is the largest number for
    which these entries are indeed positive.

    Returns:
        (K,) distances in units of the radius of the inscribed ball, infinite where nothing is cut off, and (K, C)
        points.
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
    """Directions (K, C) in which the cut is closer to the barycentre, by projected subgradient steps.

    Half the squared distance of a cut has, up to a positive factor, the gradient ``h_i - v``, where ``h_i`` is the
    farthest row and v the nearest point that is cut off. The best iterate of each start is returned.
    """
    best, least = directions, np.full(len(directions), np.inf)
    for rate in np.geomspace(0.5, 0.005, steps):
        support, rows = support_function(h, directions)
        distance, nearest = nearest_cut_off(directions, support)
        improved = distance < least
        best, least = np.where(improved[:, None], directions, best), np.minimum(distance, least)
        directions = unit(directions - rate * unit(h[rows] - nearest))
    return best
