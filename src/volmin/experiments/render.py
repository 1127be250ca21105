"""Tables of results as text: Markdown, LaTeX, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from volmin.experiments.paper import Study
from volmin.experiments.tables import Cell, ResultTable
from volmin.io.atomic import write_text
from volmin.io.locks import only_process

WARNED = "†"
"""Mark of a number to which runs with warnings contribute."""
_FOOTNOTE = "at least one run gave warnings, listed in its result.json"


def _number(study: Study, mean: float, std: float | None) -> str:
    scale, decimals = (100, 2) if study.metric == "accuracy" else (1, 3)
    deviation = "" if std is None else f" ± {scale * std:.{decimals}f}"
    return f"{scale * mean:.{decimals}f}{deviation}"


def _ours(study: Study, cell: Cell) -> str:
    return "" if cell.mean is None else _number(study, cell.mean, cell.std) + (WARNED if cell.warned else "")


def _difference(study: Study, cell: Cell) -> str:
    if cell.difference is None:
        return ""
    sign = "−" if cell.difference < 0 else "+"
    return sign + _number(study, abs(cell.difference), None)


def caption(table: ResultTable) -> str:
    """A description of the numbers of a table."""
    unit = "in per cent" if table.study.metric == "accuracy" else "0 is exact"
    counts = sorted({len(cell.values) for cell in table.cells if cell.values}) or [0]
    few, many = counts[0], counts[-1]
    seeds = (
        "one seed" if many == 1 else f"mean ± standard deviation of {few if few == many else f'{few} to {many}'} seeds"
    )
    footnote = f"; {WARNED} {_FOOTNOTE}" if any(cell.warned for cell in table.cells) else ""
    return f"{table.study.title} ({unit}); {table.setting}; {seeds}{footnote}"


class CellText(NamedTuple):
    """The texts of a cell; empty for what was not run or not published."""

    ours: str
    seeds: int
    paper: str
    difference: str
    best: bool


def columns(table: ResultTable, dataset: str) -> list[str]:
    """The noises of one data set for which there is a number, ours or the paper's."""
    known = [cell for cell in table.cells if cell.dataset == dataset and (cell.values or cell.paper)]
    return [noise for noise in table.study.noises if any(cell.noise == noise for cell in known)]


def texts(table: ResultTable, dataset: str) -> dict[str, list[CellText]]:
    """The rows of one data set by label, with a cell for each column; rows without any number are left out."""
    rows = {
        row.label: [_text(table.study, table.cell(row, dataset, noise)) for noise in columns(table, dataset)]
        for row in table.study.rows
    }
    return {label: cells for label, cells in rows.items() if any(cell.ours or cell.paper for cell in cells)}


def _text(study: Study, cell: Cell) -> CellText:
    paper = "" if cell.paper is None else _number(study, *cell.paper)
    return CellText(_ours(study, cell), len(cell.values), paper, _difference(study, cell), cell.best)


def markdown(table: ResultTable, dataset: str, *, only_run: bool = False) -> str:
    """A Markdown table: our number, with the number of seeds in brackets, and the paper's below.

    Args:
        table: Table with all data sets.
        dataset: Data set to show.
        only_run: Whether to list methods without any run below the table instead of showing their published numbers.
    """
    noises, rows = columns(table, dataset), texts(table, dataset)
    lines = [f"| {dataset} | {' | '.join(noises)} |", f"|---|{'---|' * len(noises)}"]
    missing = [label for label, cells in rows.items() if only_run and not any(cell.ours for cell in cells)]
    for label, cells in rows.items():
        if label not in missing:
            lines.append(f"| {label} | {' | '.join(map(_in_markdown, cells))} |")
    if missing:
        lines += ["", f"No run yet: {', '.join(missing)}."]
    if any(cell.warned for cell in table.cells if cell.dataset == dataset):
        lines += ["", f"{WARNED} {_FOOTNOTE}."]
    return "\n".join(lines) + "\n"


def _in_markdown(cell: CellText) -> str:
    number = f"**{cell.ours}**" if cell.best else cell.ours
    ours = f"{number} ({cell.seeds})" if cell.ours else "not run"
    difference = f", {cell.difference}" if cell.difference else ""
    return f"{ours}<br><small>{cell.paper}{difference}</small>" if cell.paper else ours


def latex(table: ResultTable, dataset: str) -> str:
    """A LaTeX table with booktabs: a line of our numbers and a line of the paper's for each method."""
    noises = columns(table, dataset)
    lines = [
        f"% {caption(table)}; {dataset}",
        rf"\begin{{tabular}}{{ll{'c' * len(noises)}}}",
        r"\toprule",
        " & & " + " & ".join(noises) + r" \\",
        r"\midrule",
    ]
    for label, cells in texts(table, dataset).items():
        ours = [rf"$\mathbf{{{_in_latex(c.ours)}}}$" if c.best else _in_math(c.ours) for c in cells]
        lines.append(" & ".join([label.replace("λ", r"$\lambda$"), "ours", *ours]) + r" \\")
        if any(cell.paper for cell in cells):
            lines.append(" & ".join(["", "paper", *(_in_math(cell.paper) for cell in cells)]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def _in_math(text: str) -> str:
    return f"${_in_latex(text)}$" if text else "--"


def _in_latex(text: str) -> str:
    return text.replace(" ± ", r" \pm ").replace(WARNED, r"^\dagger")


_COLUMNS: tuple[str, ...] = (
    "row",
    "dataset",
    "noise",
    "mean",
    "std",
    "seeds",
    "paper_mean",
    "paper_std",
    "difference",
    "best",
    "warned",
)


def _as_line(cell: Cell) -> dict[str, object]:
    place, ours = (cell.label, cell.dataset, cell.noise), (cell.mean, cell.std, len(cell.values))
    values = (*place, *ours, *(cell.paper or (None, None)), cell.difference, cell.best, cell.warned)
    return dict(zip(_COLUMNS, values, strict=True))


def as_csv(table: ResultTable) -> str:
    """A CSV table with a line per cell; numbers are fractions."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(_as_line(cell) for cell in table.cells)
    return buffer.getvalue()


def as_json(table: ResultTable) -> str:
    """A JSON object with all cells and the values of single seeds; numbers are fractions."""
    cells = [_as_line(cell) | {"values": cell.values} for cell in table.cells]
    study = {key: value for key, value in asdict(table.study).items() if key in ("name", "title", "metric")}
    return json.dumps(study | {"setting": table.setting, "cells": cells}, indent=1) + "\n"


def write_tables(table: ResultTable, out: Path) -> list[Path]:
    """Write a table as Markdown, LaTeX, CSV and JSON, and return the paths."""
    files = {
        ".md": "\n".join(markdown(table, dataset) for dataset in table.filled_datasets),
        ".tex": "\n".join(latex(table, dataset) for dataset in table.filled_datasets),
        ".csv": as_csv(table),
        ".json": as_json(table),
    }
    paths = [out / f"{table.study.name}{suffix}" for suffix in files]
    with only_process(out, seconds=60):
        for path, text in zip(paths, files.values(), strict=True):
            write_text(path, text)
    return paths
