"""Units behind numbers in text, such as ``1.2 kg`` beside ``800 g``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

UNIT = r"[a-zµμ°]{1,6}[²³]?(?:/[a-z]{1,3})?|/\s*\d+|[a-z]+(?: [a-z\d]+)*"
"""Pattern of what may follow a number in lower case: a unit, the largest value (``4/5``), or words."""

MAGNITUDES = {
    "k": 1e3, "tsd": 1e3, "m": 1e6, "mm": 1e6, "mn": 1e6, "mio": 1e6, "b": 1e9, "bn": 1e9, "mrd": 1e9,
}  # fmt: skip
"""Abbreviated powers of ten. A number without one is what it is; one without a unit is in the most frequent unit."""

_THOUSAND = "k"
_CERTAIN = {"k", "tsd", "mio", "bn", "mrd"}
"""Abbreviations that are no units."""

QUANTITIES: tuple[Mapping[str, float], ...] = (
    {"µg": 1e-6, "μg": 1e-6, "mcg": 1e-6, "mg": 1e-3, "g": 1.0, "kg": 1e3, "t": 1e6, "oz": 28.349523, "lb": 453.59237},
    {"µm": 1e-6, "μm": 1e-6, "mm": 1e-3, "cm": 1e-2, "m": 1.0, "km": 1e3, "in": 0.0254, "inch": 0.0254, "ft": 0.3048,
     "feet": 0.3048, "mi": 1609.344, "mile": 1609.344},
    {"µl": 1e-6, "μl": 1e-6, "ml": 1e-3, "cl": 1e-2, "dl": 0.1, "l": 1.0},
    {"ms": 1e-3, "s": 1.0, "sec": 1.0, "second": 1.0, "min": 60.0, "minute": 60.0, "h": 3600.0, "hr": 3600.0,
     "hour": 3600.0, "d": 86400.0, "day": 86400.0, "week": 604800.0, "mo": 2629746.0, "month": 2629746.0,
     "yr": 31556952.0, "year": 31556952.0},
    {"kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12},
)  # fmt: skip
"""Sizes of the units of one quantity; a column may mix them."""


def relative_sizes(units: Sequence[str], counts: Sequence[int], wanted: str = "") -> tuple[dict[str, float], str]:
    """Sizes of those units that measure the same as most, relative to the one in which to read, and that one.

    Args:
        units: Distinct units, the most frequent first.
        counts: Number of rows of each.
        wanted: Unit in which to read; empty for the most frequent one.
    """
    known = [_singular(unit) for unit in units]
    if wanted == _THOUSAND or (not wanted and _CERTAIN & {*known}):
        return {unit: MAGNITUDES[unit] for unit in units if unit in MAGNITUDES}, _THOUSAND
    base = wanted or units[0]

    def rows(group: Mapping[str, float]) -> int:
        return sum(count for unit, count in zip(known, counts, strict=True) if unit in group)

    group = max((group for group in QUANTITIES if _singular(base) in group), key=rows, default=None)
    if group is None:
        return {unit: 1.0 for unit in units if _singular(unit) == _singular(base)}, ""
    one = group[_singular(base)]
    return {unit: group[name] / one for unit, name in zip(units, known, strict=True) if name in group}, base


def _singular(unit: str) -> str:
    return unit[:-1] if len(unit) > 2 and unit.endswith("s") else unit
