"""Ternary plots of posteriors of three classes, and of the simplexes that enclose them.

They correspond to Figures 1 and 3 of the VolMinNet paper, with simulated posteriors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpltern  # noqa: F401  (registers the "ternary" projection)
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from scipy.spatial import ConvexHull

from volmin._typing import Array
from volmin.estimation import estimate_transition
from volmin.identifiability import scatter
from volmin.report.figures import COLOURS
from volmin.transition import transition_error

_T = np.array([[0.70, 0.12, 0.20], [0.22, 0.78, 0.08], [0.08, 0.10, 0.72]])
_SIDES = np.array([[1.0, -1.0, 0.0], [0.5, 0.5, -1.0]])
_PLANE = _SIDES / np.linalg.norm(_SIDES, axis=1, keepdims=True)
"""(2, 3) orthonormal directions in which the coordinates sum to zero."""
_INNER_RADIUS = 6**-0.5
"""Radius of the inscribed circle of the triangle, in which the cone of the condition intersects its plane."""


def minimum_volume_figure(seed: int = 0) -> Figure:
    """Noisy posteriors without anchor points, the simplex of the true T, and two estimates of it."""
    noisy = _capped(600, 0.8, seed) @ _T.T
    labels = (noisy.cumsum(1) < np.random.default_rng(seed).random((len(noisy), 1))).sum(1)
    figure = Figure(figsize=(7.4, 5.4), layout="constrained")
    axes = _triangle(figure, 1, 1, 1)
    axes.scatter(*noisy.T, s=7, color="#98a2b3", linewidths=0, label="noisy posteriors P(noisy label | x)")
    for matrix, colour, style, name in (
        (_T, "#dc2626", "-", "columns of the true T"),
        (estimate_transition(noisy, method="max"), COLOURS[0], "--", "largest posteriors (anchor points)"),
        (estimate_transition(noisy, labels, method="volume"), COLOURS[2], ":", "minimum volume"),
    ):
        error = "" if matrix is _T else f", T error {transition_error(_T, matrix):.3f}"
        axes.plot(*np.column_stack([matrix, matrix[:, :1]]), style, color=colour, linewidth=2.2, label=name + error)
        axes.plot(*matrix, "o", color=colour, markersize=5)
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(0.62, 1.02), fontsize=9)
    return figure


def scattered_figure(seed: int = 0) -> Figure:
    """Four sets of clean posteriors, with and without anchor points and sufficient scatter."""
    clouds: tuple[tuple[str, Callable[[], Array]], ...] = (
        ("(a) anchor points", lambda: np.vstack([_capped(150, 1.0, seed), np.eye(3)])),
        ("(b) none, but scattered", lambda: _capped(150, 0.8, seed)),
        ("(c) neither", lambda: _capped(150, 0.58, seed)),
        ("(d) the circle alone", lambda: _disc(150, seed)),
    )
    figure = Figure(figsize=(12.5, 3.9), layout="constrained")
    for position, (name, cloud) in enumerate(clouds, 1):
        points = cloud()
        axes = _triangle(figure, 1, len(clouds), position, labels=False)
        angles = np.linspace(0, 2 * np.pi, 200)
        circle = _from_plane(_INNER_RADIUS * np.column_stack([np.cos(angles), np.sin(angles)]))
        hull = points[ConvexHull(points @ _PLANE.T).vertices]
        axes.scatter(*points.T, s=9, color="#667085", linewidths=0)
        axes.plot(*circle.T, color=COLOURS[0], linewidth=1.8)
        axes.plot(*np.vstack([hull, hull[:1]]).T, color="#dc2626", linewidth=1.8)
        found = scatter(points, bootstraps=0)
        outcome = "holds" if found.holds else "fails" if found.refuted else "on the border"
        axes.set_title(f"{name}\ns = {found.index:.2f}: condition {outcome}", fontsize=10.5, pad=14)
    handles = [
        Line2D([], [], marker="o", linestyle="", color="#667085", markersize=4, label="clean posteriors"),
        Line2D([], [], color="#dc2626", label="their hull"),
        Line2D([], [], color=COLOURS[0], label="circle that it must contain"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
    return figure


def _triangle(figure: Figure, rows: int, columns: int, position: int, labels: bool = True) -> Any:
    axes: Any = figure.add_subplot(rows, columns, position, projection="ternary")
    axes.grid(alpha=0.25)
    if labels:
        axes.set_tlabel("class 1")
        axes.set_llabel("class 2")
        axes.set_rlabel("class 3")
    for axis in (axes.taxis, axes.laxis, axes.raxis):
        axis.set_ticks(np.linspace(0, 1, 6) if labels else [])
    return axes


def _capped(count: int, largest: float, seed: int) -> Array:
    """Posteriors spread over the triangle, none above ``largest``, with the corners of the capped triangle."""
    generator = np.random.default_rng(seed)
    points = generator.dirichlet(np.full(3, 0.5), 20 * count)
    points = points[points.max(1) <= largest][:count]
    rest = 1 - largest
    corners = np.array([[largest, rest, 0.0], [largest, 0.0, rest]])
    # For a cap of at least 1/2 the corners of the capped triangle lie on the sides of the triangle.
    return np.vstack([points, *(np.roll(corners, shift, axis=1) for shift in range(3))])


def _disc(count: int, seed: int) -> Array:
    generator = np.random.default_rng(seed)
    angles = np.concatenate([generator.uniform(0, 2 * np.pi, count), np.linspace(0, 2 * np.pi, 90, endpoint=False)])
    radii = _INNER_RADIUS * np.concatenate([np.sqrt(generator.uniform(0, 1, count)), np.ones(90)])
    return _from_plane(radii[:, None] * np.column_stack([np.cos(angles), np.sin(angles)])).clip(0)


def _from_plane(points: Array) -> Array:
    return 1 / 3 + points @ _PLANE
