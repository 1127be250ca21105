"""The record of the benchmark as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]
"""Measures of one set, tool and seed."""

HEAD = ("set", "tool", "consensus", "test accuracy", "T error", "intervals", "spammers named", "processor seconds")


def cells(rows: Sequence[Row]) -> list[list[str]]:
    """A list of texts per set and tool: means over the seeds, with the lowest and highest test accuracy."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["set"], row["tool"]), []).append(row)
    lines, before = [], ""
    for (name, tool), own in groups.items():
        lines.append(["" if name == before else f"{name} ({len(own)})", tool, *_figures(own)])
        before = name
    return lines


def _figures(own: Sequence[Row]) -> list[str]:
    test = [row["test"] for row in own if row["test"] is not None]
    spread = f"{_mean(test):.1%} ({min(test):.1%} to {max(test):.1%})" if test else ""
    errors = [row["transition_error"] for row in own if row["transition_error"] is not None]
    return [
        f"{_mean([row['consensus'] for row in own]):.1%}",
        spread,
        f"{_mean(errors):.3f}" if errors else "",
        _sums(own, "intervals", "{} of {}"),
        _sums(own, "spammers", "{} of {}, {} others"),
        f"{_mean([row['seconds'] for row in own]):.1f}",
    ]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _sums(own: Sequence[Row], name: str, form: str) -> str:
    found = [row[name] for row in own if row[name] is not None]
    return form.format(*(sum(column) for column in zip(*found, strict=True))) if found else ""


def markdown(record: Mapping[str, Any]) -> str:
    """The record for the documentation."""
    versions = ", ".join(f"{name} {number}" for name, number in record["versions"].items())
    head = "| " + " | ".join(HEAD) + " |\n|---|---|" + "--:|" * (len(HEAD) - 2)
    lines = ["| " + " | ".join(line) + " |" for line in cells(record["rows"])]
    million = [_million(row) for row in record.get("million", [])]
    return f"Recorded on {record['date']} with {versions}.\n\n" + "\n".join([head, *lines, "", *million]) + "\n"


def _million(row: Row) -> str:
    """A line of a list about the audit of a million answers."""
    data = f"{row['features']} features" if row["features"] else "no features"
    right, all_intervals = row["intervals"]
    return (
        f"- A million answers of 500 annotators to 200,000 items, {data}: {row['seconds']:.0f} processor seconds,"
        f" {row['gigabytes']:.2f} GB; {right} of {all_intervals} intervals contain the share of wrong answers."
    )
