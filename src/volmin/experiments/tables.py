"""Tables as a pure function of finished runs: ours beside the paper's, in every format a reader may want."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, stdev
from typing import NamedTuple

from rich.markup import escape
from rich.table import Table as TerminalTable

from volmin.experiments.paper import STUDIES, Published, Row, Study
from volmin.experiments.records import RunRecord


@dataclass(frozen=True)
class Cell:
    """One row of a study on one data set and noise: the seeds that have run, and what the paper has."""

    label: str
    dataset: str
    noise: str
    values: tuple[float, ...]
    paper: Published | None
    best: bool = False

    @property
    def mean(self) -> float | None:
        return fmean(self.values) if self.values else None

    @property
    def std(self) -> float | None:
        """Of the sample (n - 1); there is none of a single seed."""
        return stdev(self.values) if len(self.values) > 1 else None

    @property
    def difference(self) -> float | None:
        return self.mean - self.paper.mean if self.mean is not None and self.paper is not None else None


@dataclass(frozen=True)
class ResultTable:
    """A study filled with what has been run."""

    study: Study
    setting: str
    cells: tuple[Cell, ...]

    def cell(self, row: Row, dataset: str, noise: str) -> Cell:
        """By its place."""
        return next(c for c in self.cells if (c.label, c.dataset, c.noise) == (row.label, dataset, noise))

    @property
    def is_empty(self) -> bool:
        return not any(cell.values for cell in self.cells)

    @property
    def filled_datasets(self) -> list[str]:
        """Those with at least one run."""
        return [name for name in self.study.datasets if any(c.values for c in self.cells if c.dataset == name)]


def build_table(
    study: Study, records: Iterable[RunRecord], preset: str = "official", epochs: int | None = None
) -> ResultTable:
    """Fill a study from records. Runs with other options, presets or lengths of training do not count."""
    found = list(records)
    cells = []
    for dataset in study.datasets:
        for noise in study.noises:
            column = [_cell(study, row, dataset, noise, found, preset, epochs) for row in study.rows]
            cells += _with_best(column, smallest=study.metric == "transition_error")
    length = "" if epochs is None else f", {epochs} epochs"
    return ResultTable(study, f"preset {preset}{length}", tuple(cells))


def _cell(
    study: Study, row: Row, dataset: str, noise: str, records: Sequence[RunRecord], preset: str, epochs: int | None
) -> Cell:
    values = []
    for seed in range(1, study.seeds + 1):
        spec = study.spec(row, dataset, noise, seed, preset, epochs)
        of_seed = [record.result.get(study.metric) for record in records if record.is_of(spec)]
        values += [value for value in of_seed[:1] if value is not None]
    return Cell(row.label, dataset, noise, tuple(values), study.published.get((dataset, noise, row.method)))


def _with_best(column: Sequence[Cell], smallest: bool) -> list[Cell]:
    means = [cell.mean for cell in column if cell.mean is not None]
    # A single result is not the best of anything.
    best = (min(means) if smallest else max(means)) if len(means) > 1 else None
    return [Cell(**{**vars(cell), "best": cell.mean is not None and cell.mean == best}) for cell in column]


def curves(
    study: Study, records: Iterable[RunRecord], preset: str = "official", epochs: int | None = None
) -> dict[str, dict[str, list[Sequence[float]]]]:
    """The study's metric by epoch, by setting and row: a curve for each seed that has run."""
    found = [record for record in records if study.metric in record.curves]
    panels: dict[str, dict[str, list[Sequence[float]]]] = {}
    for dataset in study.datasets:
        for noise in study.noises:
            for row in study.rows:
                specs = [study.spec(row, dataset, noise, seed, preset, epochs) for seed in range(1, study.seeds + 1)]
                lines = [record.curves[study.metric] for record in found if any(map(record.is_of, specs))]
                if lines:
                    panels.setdefault(f"{dataset}, {noise}", {})[row.label] = lines
    return panels


def covering(study: Study, records: Iterable[RunRecord]) -> Study:
    """A study of the data sets of these runs that also has their noises and methods, where the paper lacks them."""
    specs = [record.spec for record in records]
    return study.select(
        dict.fromkeys(spec["dataset"] for spec in specs),
        dict.fromkeys([*study.noises, *(spec["noise"] for spec in specs)]),
        dict.fromkeys([*(row.method for row in study.rows), *(spec["method"] for spec in specs)]),
        max(study.seeds, *(spec["seed"] for spec in specs), 1),
    )


def studies_of(records: Sequence[RunRecord]) -> list[Study]:
    """The paper's studies on the data sets that were run; the first takes in what the paper does not have."""
    run = dict.fromkeys(record.spec["dataset"] for record in records)
    first, *others = STUDIES.values()
    own = [name for name in run if name in first.datasets or not any(name in study.datasets for study in others)]
    studies = [covering(first, [record for record in records if record.spec["dataset"] in own])]
    studies += [study.select([name for name in study.datasets if name in run]) for study in others]
    return [study for study in studies if set(study.datasets) & set(run)]


def settings(study: Study, records: Iterable[RunRecord]) -> list[tuple[str, int | None]]:
    """The presets and lengths of training (None: the preset's own) with which parts of a study were run."""
    found: dict[tuple[str, int | None], None] = {}
    for record in records:
        spec = record.spec
        if spec["dataset"] not in study.datasets or spec["noise"] not in study.noises:
            continue
        for row in study.rows:
            for epochs in (None, spec["recipe"]["epochs"]):
                wanted = study.spec(row, spec["dataset"], spec["noise"], spec["seed"], spec["preset"], epochs)
                if record.is_of(wanted):
                    found[spec["preset"], epochs] = None
                    break
    return list(found)


def _number(study: Study, mean: float, std: float | None) -> str:
    scale, decimals = (100, 2) if study.metric == "accuracy" else (1, 3)
    deviation = "" if std is None else f" ± {scale * std:.{decimals}f}"
    return f"{scale * mean:.{decimals}f}{deviation}"


def _ours(study: Study, cell: Cell) -> str:
    return "" if cell.mean is None else _number(study, cell.mean, cell.std)


def _difference(study: Study, cell: Cell) -> str:
    if cell.difference is None:
        return ""
    sign = "−" if cell.difference < 0 else "+"
    return sign + _number(study, abs(cell.difference), None)


def caption(table: ResultTable) -> str:
    """What the numbers of a table are."""
    unit = "in per cent" if table.study.metric == "accuracy" else "0 is exact"
    counts = sorted({len(cell.values) for cell in table.cells if cell.values}) or [0]
    few, many = counts[0], counts[-1]
    seeds = (
        "one seed" if many == 1 else f"mean ± standard deviation of {few if few == many else f'{few} to {many}'} seeds"
    )
    return f"{table.study.title} ({unit}); {table.setting}; {seeds}"


class CellText(NamedTuple):
    """A cell as a person reads it; what was not run or not published is empty."""

    ours: str
    seeds: int
    paper: str
    difference: str
    best: bool


def columns(table: ResultTable, dataset: str) -> list[str]:
    """The noises of one data set under which there is a number, ours or the paper's."""
    known = [cell for cell in table.cells if cell.dataset == dataset and (cell.values or cell.paper)]
    return [noise for noise in table.study.noises if any(cell.noise == noise for cell in known)]


def texts(table: ResultTable, dataset: str) -> dict[str, list[CellText]]:
    """The rows of one data set by label, a cell for each of its columns; rows without any number are left out."""
    rows = {
        row.label: [_text(table.study, table.cell(row, dataset, noise)) for noise in columns(table, dataset)]
        for row in table.study.rows
    }
    return {label: cells for label, cells in rows.items() if any(cell.ours or cell.paper for cell in cells)}


def _text(study: Study, cell: Cell) -> CellText:
    paper = "" if cell.paper is None else _number(study, *cell.paper)
    return CellText(_ours(study, cell), len(cell.values), paper, _difference(study, cell), cell.best)


def terminal(table: ResultTable, dataset: str) -> TerminalTable:
    """For a terminal: below each of our numbers, in grey, the paper's and the difference."""
    # Four columns of mean, deviation and seeds just fit 80 characters; a narrower terminal would cut numbers off.
    view = TerminalTable(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    view.add_column(escape(dataset), header_style="bold", no_wrap=True)
    for noise in columns(table, dataset):
        view.add_column(noise, header_style="dim", justify="right", no_wrap=True)
    second_line = any(cell.paper for cell in table.cells if cell.dataset == dataset)
    for label, cells in texts(table, dataset).items():
        view.add_row(escape(label), *(_in_terminal(cell, second_line) for cell in cells))
    return view


def _in_terminal(cell: CellText, second_line: bool) -> str:
    number = cell.ours.replace(" ± ", "±")
    number = f"[bold green]{number}[/bold green]" if cell.best else number
    ours = f"{number} ({cell.seeds})" if cell.ours else "·"
    # The paper's deviation is left out: four columns of it do not fit a terminal.
    paper = f"{cell.paper.partition(' ± ')[0]} {cell.difference}".rstrip()
    return f"{ours}\n[dim]{paper}[/dim]" if second_line else ours


def markdown(table: ResultTable, dataset: str) -> str:
    """For a page: ours, with the number of seeds in brackets, and the paper's below."""
    noises = columns(table, dataset)
    lines = [f"| {dataset} | {' | '.join(noises)} |", f"|---|{'---|' * len(noises)}"]
    for label, cells in texts(table, dataset).items():
        lines.append(f"| {label} | {' | '.join(map(_in_markdown, cells))} |")
    return "\n".join(lines) + "\n"


def _in_markdown(cell: CellText) -> str:
    number = f"**{cell.ours}**" if cell.best else cell.ours
    ours = f"{number} ({cell.seeds})" if cell.ours else "not run"
    difference = f", {cell.difference}" if cell.difference else ""
    return f"{ours}<br><small>{cell.paper}{difference}</small>" if cell.paper else ours


def latex(table: ResultTable, dataset: str) -> str:
    """For a paper, with booktabs: a line of ours and a line of the paper's for each method."""
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
    return text.replace(" ± ", r" \pm ")


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
)


def _as_line(cell: Cell) -> dict[str, object]:
    place, ours = (cell.label, cell.dataset, cell.noise), (cell.mean, cell.std, len(cell.values))
    values = (*place, *ours, *(cell.paper or (None, None)), cell.difference, cell.best)
    return dict(zip(_COLUMNS, values, strict=True))


def as_csv(table: ResultTable) -> str:
    """A line per cell, as fractions."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(_as_line(cell) for cell in table.cells)
    return buffer.getvalue()


def as_json(table: ResultTable) -> str:
    """Everything, with the values of single seeds, as fractions."""
    cells = [_as_line(cell) | {"values": cell.values} for cell in table.cells]
    study = {key: value for key, value in asdict(table.study).items() if key in ("name", "title", "metric")}
    return json.dumps(study | {"setting": table.setting, "cells": cells}, indent=1) + "\n"
