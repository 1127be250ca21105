"""The record of the benchmark, its means over seeds, and its table as text cells."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]
"""Measures of one set, tool and seed, or their means over seeds."""


def means(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """One row per set and tool: means over the seeds for which a measure is defined, and counts of hits."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["set"], row["tool"]), []).append(row)
    return [_mean(group) for group in groups.values()]


def _mean(group: Sequence[Row]) -> dict[str, Any]:
    first = group[0]
    skipped = ("set", "tool", "seed", "hit", "decisions", "codes")
    averaged: dict[str, Any] = {name: _average(row[name] for row in group) for name in first if name not in skipped}
    stated = [row["hit"] for row in group if row["hit"] is not None]
    rates = [row["noise_rate"] for row in group]
    return averaged | {
        "set": first["set"],
        "tool": first["tool"],
        "runs": len(group),
        "stated": len(stated),
        "hits": sum(stated),
        "lowest_rate": min(rates),
        "highest_rate": max(rates),
    }


def _average(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def summaries(rows: Sequence[Row]) -> list[str]:
    """For each tool, means over the sets with wrong labels, and how often its ranges contain the true noise rate."""
    sentences = (_summary([row for row in rows if row["tool"] == tool], tool) for tool in _tools(rows))
    return [sentence for sentence in sentences if sentence]


def _tools(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row["tool"] for row in rows))


def _summary(rows: Sequence[Row], tool: str) -> str:
    parts = []
    if noisy := [row for row in means(rows) if row["auroc"] is not None]:
        auroc, precision, f1 = (_average(row[name] for row in noisy) for name in ("auroc", "average_precision", "f1"))
        number = f"{len(noisy)} set{'s' if len(noisy) > 1 else ''}"
        parts.append(f"mean AUROC {auroc:.3f}, AP {precision:.3f}, F1 {f1:.3f} over {number}")
    if stated := [row for row in rows if row["hit"] is not None]:
        width = _average(row["high"] - row["low"] for row in stated)
        hits = f"{sum(row['hit'] for row in stated)} of {len(stated)} run{'s' if len(stated) > 1 else ''}"
        parts.append(f"the stated range contains the true noise rate in {hits}, mean width {width:.3f}")
    return f"{tool}: {'; '.join(parts)}." if parts else ""


def _number(name: str, digits: int = 3) -> Callable[[Row], str]:
    return lambda row: "" if row[name] is None else f"{row[name]:.{digits}f}"


def _count(name: str) -> Callable[[Row], str]:
    return lambda row: f"{row[name]:,.0f}"


def _rate(row: Row) -> str:
    if row["runs"] == 1:
        return f"{row['noise_rate']:.3f}"
    return f"{row['noise_rate']:.3f} ({row['lowest_rate']:.3f} to {row['highest_rate']:.3f})"


def _range(row: Row) -> str:
    return "" if row["low"] is None else f"{row['low']:.3f} to {row['high']:.3f}"


def _hit(row: Row) -> str:
    if not row["stated"]:
        return ""
    if row["runs"] == 1:
        return "hit" if row["hits"] else "miss"
    return f"{row['hits']} of {row['stated']}"


COLUMNS: dict[str, Callable[[Row], str]] = {
    "set": lambda row: row["set"],
    "tool": lambda row: row["tool"],
    "AUROC": _number("auroc"),
    "AP": _number("average_precision"),
    "flagged": _count("flagged"),
    "precision": _number("precision"),
    "recall": _number("recall"),
    "F1": _number("f1"),
    "FDR": _number("fdr"),
    "stated FDR": _number("expected_fdr"),
    "true noise": _number("true_noise_rate"),
    "noise rate": _rate,
    "stated range": _range,
    "range": _hit,
    "T error": _number("transition_error"),
    "seconds": _number("seconds", 1),
}
"""The columns of the table, as functions of a row of means."""


def cells(rows: Sequence[Row]) -> list[list[str]]:
    """The table's cells, a list per line; the name of a set only in the first of its lines."""
    lines = [[column(row) for column in COLUMNS.values()] for row in means(rows)]
    return [["", *line[1:]] if place and line[0] == lines[place - 1][0] else line for place, line in enumerate(lines)]


def by_kind(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Rows by the title of their kind of set."""
    kinds = {title: [row for row in rows if row["set"].startswith(start)] for start, title in KINDS.items()}
    return {title: own for title, own in kinds.items() if own}


def markdown(record: Mapping[str, Any]) -> str:
    """The record for the documentation: for each kind of set a sentence about each tool, and a table."""
    versions = record["versions"]
    parts = [f"Recorded on {record['date']} with volmin {versions['volmin']} and cleanlab {versions['cleanlab']}.\n"]
    for title, rows in by_kind(record["rows"]).items():
        parts += [f"### {title}\n", *(f"- {sentence}" for sentence in summaries(rows)), "", _table(rows)]
    if decided := [row for row in record["rows"] if "decisions" in row]:
        parts += ["### After decisions\n", decision_table(decided)]
    return "\n".join(parts)


KINDS = {
    "posteriors-": "Given posteriors of networks",
    "embeddings-": "Embeddings of images",
    "text-": "Texts",
    "fashion-": "Simulated noise on Fashion-MNIST",
    "made-": "Simulated sets",
}
"""First parts of the names of sets, and titles of their tables."""


def _table(rows: Sequence[Row]) -> str:
    head = ["| " + " | ".join(COLUMNS) + " |", "|---|---|" + "--:|" * (len(COLUMNS) - 2)]
    return "\n".join(head + ["| " + " | ".join(line) + " |" for line in cells(rows)]) + "\n"


def decision_table(rows: Sequence[Row]) -> str:
    """For each audit, the range before decisions and the intervals after them, as a table in Markdown."""
    counts = sorted({one["decisions"] for row in rows for one in row["decisions"]["suspicious"]})
    columns = ["set", "tool", "true noise", "before", "after random ones", "covered", *(f"top {n}" for n in counts)]
    head = ["| " + " | ".join(columns) + " |", "|---|---|" + "--:|" * (len(columns) - 2)]
    return "\n".join(head + ["| " + " | ".join(_decision_cells(row, counts)) + " |" for row in rows]) + "\n"


def _decision_cells(row: Row, counts: Sequence[int]) -> list[str]:
    found = row["decisions"]
    low, high = found["before"]
    top = {one["decisions"]: one for one in found["suspicious"]}
    shown = (top.get(count) for count in counts)
    return [
        row["set"],
        row["tool"],
        f"{found['true_noise_rate']:.3f}",
        f"{low:.3f} to {high:.3f}",
        f"width {found['random']['mean_width']:.3f}",
        f"{found['random']['coverage']:.0%}",
        *(
            "" if one is None else f"{one['low']:.3f} to {one['high']:.3f}{'' if one['hit'] else ' miss'}"
            for one in shown
        ),
    ]
