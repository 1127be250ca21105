"""The paper's tables and figures as data: the runs that each of them needs, and the published numbers.

Published means and standard deviations are over five runs; the paper does not say with which denominator. Errors of T
are only plotted in the paper, so that its figures have no published numbers here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from volmin import methods
from volmin.exceptions import InputError
from volmin.experiments.spec import RunSpec, resolve
from volmin.training import PrecisionName

NOISES = ("sym:0.2", "sym:0.5", "pair:0.2", "pair:0.45")


class Published(NamedTuple):
    """A published mean and standard deviation, as fractions; Clothing1M was run once and has no deviation."""

    mean: float
    std: float | None


@dataclass(frozen=True)
class Row:
    """A row of a table: a method, with the options that the row is about."""

    label: str
    method: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Study:
    """A table or a figure: one run for each row, data set, noise and seed."""

    name: str
    title: str
    metric: Literal["accuracy", "transition_error"]
    rows: tuple[Row, ...]
    datasets: tuple[str, ...]
    noises: tuple[str, ...] = NOISES
    seeds: int = 5
    published: Mapping[tuple[str, str, str], Published] = field(default_factory=dict)
    """Published numbers by data set, noise and method."""

    def select(
        self,
        datasets: Iterable[str] | None = None,
        noises: Iterable[str] | None = None,
        methods: Iterable[str] | None = None,
        seeds: int | None = None,
    ) -> Study:
        """A part of the study; methods, data sets and noises that the paper does not have may be added."""
        rows = self.rows if methods is None else tuple(row for name in methods for row in self._rows_of(name))
        return replace(
            self,
            rows=rows,
            datasets=self.datasets if datasets is None else tuple(datasets),
            noises=self.noises if noises is None else tuple(noises),
            seeds=seeds or self.seeds,
        )

    def _rows_of(self, method: str) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.method == method) or (method_row(method),)

    def spec(
        self,
        row: Row,
        dataset: str,
        noise: str,
        seed: int,
        preset: str = "official",
        epochs: int | None = None,
        accelerated: bool | None = None,
        precision: PrecisionName = "32",
    ) -> RunSpec:
        """The run of one cell and seed; ``accelerated`` and ``precision`` as in ``spec.resolve``."""
        return resolve(
            dataset,
            noise,
            row.method,
            seed=seed,
            preset=preset,
            epochs=epochs,
            options=row.options,
            accelerated=accelerated,
            precision=precision,
        )

    def specs(
        self,
        preset: str = "official",
        epochs: int | None = None,
        accelerated: bool | None = None,
        precision: PrecisionName = "32",
    ) -> list[RunSpec]:
        """All runs, the first seed of every cell first, so that a table fills evenly."""
        return [
            self.spec(row, dataset, noise, seed, preset, epochs, accelerated, precision)
            for seed in range(1, self.seeds + 1)
            for dataset in self.datasets
            for noise in self.noises
            for row in self.rows
        ]


_LABELS = {
    "cross_entropy": "Cross-entropy",
    "decoupling": "Decoupling",
    "mentornet": "MentorNet",
    "co_teaching": "Co-teaching",
    "forward": "Forward",
    "t_revision": "T-Revision",
    "dmi": "DMI",
    "dual_t": "Dual T",
    "ptd": "PTD",
    "volminnet": "VolMinNet",
}


def method_row(method: str) -> Row:
    """A method with its default options."""
    methods.get(method)
    return Row(_LABELS.get(method, method), method)


def _rows(*names: str) -> tuple[Row, ...]:
    return tuple(Row(_LABELS[name], name) for name in names)


_COMPARED = _rows("decoupling", "mentornet", "co_teaching", "forward", "t_revision", "dmi", "dual_t", "volminnet")
# The paper's T-estimator is Forward's estimate of T: by the 3 % percentile, or by the largest posterior.
_WITH_T = (
    Row("Anchors, largest", "forward", {"estimator": "max"}),
    Row("Anchors, 3 %", "forward"),
    *_rows("t_revision", "dual_t", "volminnet"),
)

# Columns: sym:0.2, sym:0.5, pair:0.2, pair:0.45; in per cent.
_TABLE_1 = """
mnist     decoupling   97.04±0.06  94.58±0.08  96.93±0.07  94.34±0.54
mnist     mentornet    97.21±0.06  95.56±0.15  96.89±0.04  91.98±0.46
mnist     co_teaching  97.07±0.10  95.20±0.23  97.00±0.06  96.25±0.01
mnist     forward      98.60±0.19  97.77±0.16  98.84±0.10  75.06±12.61
mnist     t_revision   98.72±0.10  98.23±0.10  98.89±0.08  84.56±8.18
mnist     dmi          98.70±0.02  98.12±0.21  98.84±0.09  97.92±0.76
mnist     dual_t       98.43±0.05  98.15±0.12  98.86±0.04  96.71±0.12
mnist     volminnet    98.74±0.08  98.23±0.16  99.01±0.07  99.00±0.07
cifar10   decoupling   77.32±0.35  54.07±0.46  77.12±0.30  53.71±0.99
cifar10   mentornet    81.35±0.23  73.47±0.15  77.42±0.00  61.03±0.20
cifar10   co_teaching  82.27±0.07  75.55±0.07  80.65±0.20  73.02±0.23
cifar10   forward      85.20±0.80  74.82±0.78  88.21±0.48  77.44±6.89
cifar10   t_revision   87.95±0.36  80.01±0.62  90.33±0.52  78.94±2.58
cifar10   dmi          87.54±0.20  82.68±0.21  89.89±0.45  73.15±7.31
cifar10   dual_t       88.35±0.33  82.54±0.19  89.77±0.25  76.53±2.51
cifar10   volminnet    89.58±0.26  83.37±0.25  90.37±0.30  88.54±0.21
cifar100  decoupling   41.92±0.49  22.63±0.44  40.12±0.26  27.97±0.12
cifar100  mentornet    42.88±0.41  32.66±0.40  39.22±0.47  26.48±0.37
cifar100  co_teaching  48.48±0.66  36.77±0.52  42.79±0.79  27.97±0.20
cifar100  forward      54.90±0.74  41.85±0.71  56.12±0.54  36.88±2.32
cifar100  t_revision   62.72±0.69  49.12±0.22  64.33±0.49  41.55±0.95
cifar100  dmi          62.65±0.39  52.42±0.64  59.56±0.73  38.17±2.02
cifar100  dual_t       62.16±0.58  52.49±0.37  67.21±0.43  47.60±0.43
cifar100  volminnet    64.94±0.40  53.89±1.26  68.45±0.69  58.90±0.89
"""

_TABLE_3 = """
mnist/NA     decoupling   96.72±0.16  92.72±0.33  96.92±0.06  93.29±0.57
mnist/NA     mentornet    97.10±0.10  95.10±0.14  96.88±0.04  88.17±0.70
mnist/NA     co_teaching  97.06±0.12  94.89±0.10  96.96±0.07  95.34±0.09
mnist/NA     forward      98.46±0.07  97.59±0.05  98.61±0.33  78.51±17.48
mnist/NA     t_revision   98.72±0.13  97.86±0.11  98.71±0.31  82.65±14.61
mnist/NA     dmi          98.42±0.03  97.87±0.18  98.78±0.11  97.46±1.38
mnist/NA     dual_t       98.61±0.12  97.91±0.12  98.76±0.13  85.77±7.85
mnist/NA     volminnet    98.72±0.06  97.94±0.07  98.87±0.11  97.80±2.43
cifar10/NA   decoupling   75.51±0.38  49.96±0.51  77.06±0.26  50.81±0.73
cifar10/NA   mentornet    80.25±0.52  71.65±0.28  77.62±0.28  57.60±0.35
cifar10/NA   co_teaching  81.74±0.32  73.38±0.45  80.70±0.18  69.15±0.89
cifar10/NA   forward      84.25±0.22  70.00±3.07  85.87±0.82  53.92±11.39
cifar10/NA   t_revision   86.81±0.19  74.10±2.34  87.52±0.58  53.96±14.67
cifar10/NA   dmi          83.42±0.54  77.82±0.45  86.14±1.52  70.01±5.63
cifar10/NA   dual_t       86.70±0.06  78.92±0.42  89.02±0.40  65.17±0.72
cifar10/NA   volminnet    88.72±0.03  82.38±0.65  89.26±0.22  84.48±3.85
cifar100/NA  decoupling   38.83±0.37  20.42±0.53  40.42±0.47  26.21±0.67
cifar100/NA  mentornet    39.72±0.35  29.39±0.35  39.11±0.41  25.17±0.36
cifar100/NA  co_teaching  44.92±0.11  33.13±0.88  43.04±0.73  26.67±0.29
cifar100/NA  forward      50.58±0.68  36.79±1.86  51.37±0.99  34.69±1.37
cifar100/NA  t_revision   59.57±1.13  43.75±0.84  59.70±1.43  38.35±0.60
cifar100/NA  dmi          56.29±0.28  41.81±0.70  54.05±1.09  35.03±2.91
cifar100/NA  dual_t       56.99±1.00  42.04±1.96  59.07±3.79  36.95±3.19
cifar100/NA  volminnet    63.40±1.25  51.04±1.23  64.88±1.87  56.07±3.35
"""

# The paper quotes all numbers but VolMinNet's from the paper on part-dependent noise.
_TABLE_2 = """
clothing1m  decoupling   54.53
clothing1m  mentornet    56.79
clothing1m  co_teaching  60.15
clothing1m  forward      69.91
clothing1m  t_revision   70.97
clothing1m  dmi          70.12
clothing1m  ptd          71.67
clothing1m  volminnet    72.42
"""


def _published(table: str, noises: tuple[str, ...] = NOISES) -> dict[tuple[str, str, str], Published]:
    found = {}
    for line in table.strip().splitlines():
        dataset, method, *cells = line.split()
        for noise, cell in zip(noises, cells, strict=True):
            mean, _, std = cell.partition("±")
            found[dataset, noise, method] = Published(float(mean) / 100, float(std) / 100 if std else None)
    return found


_FULL = ("mnist", "cifar10", "cifar100")
_WITHOUT_ANCHORS = tuple(f"{name}/NA" for name in _FULL)
_LABELS_AS_GIVEN = ("none",)

STUDIES: dict[str, Study] = {
    study.name: study
    for study in (
        Study(
            "table1",
            "Test accuracy",
            "accuracy",
            (*_rows("cross_entropy"), *_COMPARED),
            _FULL,
            published=_published(_TABLE_1),
        ),
        Study(
            "table2",
            "Test accuracy on Clothing1M",
            "accuracy",
            (*_COMPARED[:-1], *_rows("ptd", "volminnet")),
            ("clothing1m",),
            _LABELS_AS_GIVEN,
            seeds=1,
            published=_published(_TABLE_2, _LABELS_AS_GIVEN),
        ),
        Study(
            "table3",
            "Test accuracy, likely anchor points removed",
            "accuracy",
            (*_rows("cross_entropy"), *_COMPARED),
            _WITHOUT_ANCHORS,
            published=_published(_TABLE_3),
        ),
        Study("figure4", "Error of T", "transition_error", _WITH_T, _FULL),
        Study("figure5", "Error of T, likely anchor points removed", "transition_error", _WITH_T, _WITHOUT_ANCHORS),
        Study(
            "ablation",
            "Error of T by the weight of the volume term, which the paper does not vary",
            "transition_error",
            tuple(Row(f"λ = {lam:g}", "volminnet", {"lam": lam}) for lam in (0.0, 1e-4, 1e-3)),
            ("mnist", "mnist/NA"),
            ("sym:0.2", "pair:0.45"),
            seeds=3,
        ),
    )
}


def study(name: str) -> Study:
    """The named study."""
    if name not in STUDIES:
        raise InputError(f"Unknown table or figure {name!r}. Choose one of: {', '.join(STUDIES)}, figure1, figure3.")
    return STUDIES[name]
