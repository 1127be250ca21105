"""The table that helps to choose a method, from recorded results."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Mapping
from statistics import mean

from volmin import methods
from volmin.experiments.records import RunRecord

NOISES = ("sym:0.2", "sym:0.5", "pair:0.2", "pair:0.45")
CLOSE = 0.002
"""Accuracies that differ by less count as equal to the best."""

Accuracies = Mapping[tuple[str, str], list[float]]


def markdown(records: list[RunRecord], costs: Mapping[str, float]) -> str:
    """One row per method, the most accurate with heavy pair noise first: what it needs, costs and wins.

    Args:
        records: Finished runs.
        costs: Time of an epoch of each method, in epochs of plain cross-entropy.
    """
    found = accuracies(records)
    lines = [
        f"| method | what it does | needs | epoch costs | {' | '.join(NOISES)} | among the best on |",
        f"|---|---|---|---:|{'---:|' * len(NOISES)}---|",
    ]
    for name in sorted(methods.names(), key=lambda name: -mean(found.get((name, NOISES[-1]), [0]))):
        kind = methods.get(name)
        summary = inspect.cleandoc(kind.__doc__ or "").split("\n")[0]
        cost = "1.0" if name == "cross_entropy" else f"{costs[name]:.1f}" if name in costs else "not recorded"
        cells = [_cell(found.get((name, noise))) for noise in NOISES]
        wins = ", ".join(noise for noise in NOISES if name in best(found, noise)) or "–"
        lines.append(
            f"| [`{name}`](methods/{name}.md) | {summary} | {kind.needs} | {cost} | {' | '.join(cells)} | {wins} |"
        )
    return "\n".join(lines) + "\n"


def accuracies(records: list[RunRecord]) -> Accuracies:
    """Recorded accuracies on MNIST with the preset ``fast``, by method and noise."""
    found = defaultdict(list)
    for record in records:
        if (record.spec["dataset"], record.spec["preset"]) == ("mnist", "fast"):
            found[record.spec["method"], record.spec["noise"]].append(record.result["accuracy"])
    return found


def best(found: Accuracies, noise: str) -> set[str]:
    """Methods whose mean accuracy with this noise is the best one, or close to it."""
    means = {method: mean(values) for (method, recorded), values in found.items() if recorded == noise}
    return {method for method, value in means.items() if value >= max(means.values()) - CLOSE}


def _cell(values: list[float] | None) -> str:
    return f"{mean(values):.2%} ({len(values)})" if values else "not run"
