"""Proof of sufficient scatter by global optimisation, for more classes than facets can be enumerated."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

import numpy as np

from volmin._typing import Array, Numbers
from volmin.exceptions import InputError
from volmin.identifiability.hull import measure
from volmin.identifiability.scatter_index import checked_tolerance, clip_small
from volmin.identifiability.support import ROUNDING
from volmin.validation import validate_posteriors


def certificate(
    posteriors: Numbers,
    *,
    margin: float = 1.05,
    tolerance: float | None = None,
    seconds: float = 60.0,
) -> bool | None:
    """Whether the scatter index provably reaches ``margin``; None if the time limit was reached first.

    For 8 to about 12 classes. The proof allows each facet of the hull to be moved by a thousandth of its distance from
    the barycentre. Requires PySCIPOpt.

    Args:
        posteriors: (N, C) clean class posteriors.
        margin: Index to be reached, above 1 and below C - 1.
        tolerance: Posterior below which zero is assumed, as in ``scatter``.
        seconds: Time limit of each of a few optimisations.
    """
    h = validate_posteriors(posteriors, "posteriors")
    C = h.shape[1]
    if not 1 < margin < C - 1:
        raise InputError(f"margin must lie above 1 and below C - 1 = {C - 1}, but is {margin:g}.")
    h = clip_small(h, checked_tolerance(tolerance, C))
    try:
        scip = import_module("pyscipopt")
    except ImportError:
        raise InputError("certificate needs the SCIP solver; install it with: pip install pyscipopt") from None
    hull = measure(h, 64, np.random.default_rng(0))
    if hull.index < margin or hull.inner >= margin:
        return hull.inner >= margin
    working = hull.working_rows
    for _ in range(20):
        plane, proved = _cut_off_ball(scip, h[working], margin, seconds)
        if plane is None:
            return True if proved else None
        # The plane bounds the hull of the working rows; it is a counterexample only if no other row lies beyond it.
        beyond = np.flatnonzero(h @ plane < -ROUNDING)
        if len(beyond) == 0:
            return False
        working = np.union1d(working, beyond[(h[beyond] @ plane).argsort()[: 2 * C]])
    return None


def _cut_off_ball(scip: ModuleType, rows: Array, margin: float, seconds: float) -> tuple[Array | None, bool]:
    """A plane with all rows on one side that cuts off a part of the ball within the simplex, if there is one.

    Minimises ``x'v`` over planes ``{x : x'h >= 0 for all rows, 1'x = 1}`` and points v of the simplex within the ball.
    At 0 the plane is a facet of the simplex and cuts nothing off. The box of x is wider than the facets of the simplex
    require, because otherwise a class without any zero would be missed.

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
