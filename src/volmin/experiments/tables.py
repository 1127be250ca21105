"""Tables of results as a pure function of finished runs: ours beside the paper's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev

from volmin.experiments import presets
from volmin.experiments.paper import STUDIES, Published, Row, Study
from volmin.experiments.records import RunRecord


@dataclass(frozen=True)
class Cell:
    """One row of a study on one data set and noise: the results of our seeds, and the published one."""

    label: str
    dataset: str
    noise: str
    values: tuple[float, ...]
    paper: Published | None
    warned: int = 0
    """Number of these runs that ended with warnings."""
    best: bool = False

    @property
    def mean(self) -> float | None:
        return fmean(self.values) if self.values else None

    @property
    def std(self) -> float | None:
        """Standard deviation of the sample (n - 1); None for a single seed."""
        return stdev(self.values) if len(self.values) > 1 else None

    @property
    def difference(self) -> float | None:
        return self.mean - self.paper.mean if self.mean is not None and self.paper is not None else None


@dataclass(frozen=True)
class ResultTable:
    """A study with the results of the runs that have finished."""

    study: Study
    setting: str
    cells: tuple[Cell, ...]

    def cell(self, row: Row, dataset: str, noise: str) -> Cell:
        """The cell of a row, data set and noise."""
        return next(c for c in self.cells if (c.label, c.dataset, c.noise) == (row.label, dataset, noise))

    @property
    def is_empty(self) -> bool:
        return not any(cell.values for cell in self.cells)

    @property
    def filled_datasets(self) -> list[str]:
        """Data sets with at least one run."""
        return [name for name in self.study.datasets if any(c.values for c in self.cells if c.dataset == name)]

    def count(self, dataset: str | None = None) -> int:
        """Number of cells with a run, of one data set or of all."""
        return sum(bool(cell.values) for cell in self.cells if dataset in (None, cell.dataset))

    def has_complete_row(self, dataset: str) -> bool:
        """Whether a method has been run with all noises of a data set that have a number, ours or the paper's."""
        known = [cell for cell in self.cells if cell.dataset == dataset and (cell.values or cell.paper)]
        noises = {cell.noise for cell in known}
        run = Counter(cell.label for cell in known if cell.values)
        return any(count == len(noises) for count in run.values())


def build_table(
    study: Study, records: Iterable[RunRecord], preset: str = "official", epochs: int | None = None
) -> ResultTable:
    """Fill a study from records. Runs with other options, presets or lengths of training are left out."""
    study, found = _having(study, preset), list(records)
    cells = []
    for dataset in study.datasets:
        for noise in study.noises:
            column = [_cell(study, row, dataset, noise, found, preset, epochs) for row in study.rows]
            cells += _with_best(column, smallest=study.metric == "transition_error")
    length = "" if epochs is None else f", {epochs} epochs"
    return ResultTable(study, f"preset {preset}{length}", tuple(cells))


def _having(study: Study, preset: str) -> Study:
    """The study on the data sets that have a preset of this name."""
    return replace(study, datasets=tuple(name for name in study.datasets if presets.has(name, preset)))


def _cell(
    study: Study, row: Row, dataset: str, noise: str, records: Sequence[RunRecord], preset: str, epochs: int | None
) -> Cell:
    results = []
    for seed in range(1, study.seeds + 1):
        spec = study.spec(row, dataset, noise, seed, preset, epochs)
        of_seed = [record.result for record in records if record.is_of(spec)]
        results += [result for result in of_seed[:1] if result.get(study.metric) is not None]
    values = tuple(result[study.metric] for result in results)
    warned = sum(bool(result.get("warnings")) for result in results)
    return Cell(row.label, dataset, noise, values, study.published.get((dataset, noise, row.method)), warned)


def _with_best(column: Sequence[Cell], smallest: bool) -> list[Cell]:
    means = [cell.mean for cell in column if cell.mean is not None]
    # A single result is not marked as the best.
    best = (min(means) if smallest else max(means)) if len(means) > 1 else None
    return [replace(cell, best=cell.mean is not None and cell.mean == best) for cell in column]


def curves(
    study: Study, records: Iterable[RunRecord], preset: str = "official", epochs: int | None = None
) -> dict[str, dict[str, list[Sequence[float]]]]:
    """The study's metric by epoch, for each setting and row: one curve per seed that has run."""
    study, found = _having(study, preset), [record for record in records if study.metric in record.curves]
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
    """The study on the data sets of these runs, extended by their noises and methods where the paper lacks them."""
    specs = [record.spec for record in records]
    return study.select(
        dict.fromkeys(spec["dataset"] for spec in specs),
        dict.fromkeys([*study.noises, *(spec["noise"] for spec in specs)]),
        dict.fromkeys([*(row.method for row in study.rows), *(spec["method"] for spec in specs)]),
        max(study.seeds, *(spec["seed"] for spec in specs), 1),
    )


def studies_of(records: Sequence[RunRecord]) -> list[Study]:
    """The paper's studies of the data sets that were run; the first includes whatever the paper does not have."""
    run = dict.fromkeys(record.spec["dataset"] for record in records)
    first, *others = STUDIES.values()
    own = [name for name in run if name in first.datasets or not any(name in study.datasets for study in others)]
    studies = [covering(first, [record for record in records if record.spec["dataset"] in own])]
    studies += [study.select([name for name in study.datasets if name in run]) for study in others]
    return [study for study in studies if set(study.datasets) & set(run)]


def settings(study: Study, records: Iterable[RunRecord]) -> list[tuple[str, int | None]]:
    """The presets and numbers of epochs (None: the preset's own) with which parts of a study were run."""
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
