"""What an audit finds: how wrong the labels are, which ones, and how far that can be trusted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from volmin import quality
from volmin.auditing import storage as files
from volmin.auditing import text as words
from volmin.auditing.labels import encode, is_missing, vector
from volmin.exceptions import InputError
from volmin.identifiability import Scatter
from volmin.intervals import Intervals, noise_bounds

Array = NDArray[np.float64]
Codes = NDArray[np.int64]

FDR = 0.1
"""The share of right labels that a list of flagged ones may be expected to hold, unless told otherwise."""


@dataclass(frozen=True)
class Audit:
    """How wrong labels are, which of them, and how sure that is.

    Attributes:
        classes: (C,) the classes; all arrays over classes are in this order.
        codes: (N,) the given labels, as positions in ``classes``.
        transition: (C, C) ``T[i, j] = P(given = classes[i] | true = classes[j])``; columns sum to one.
        joint: (C, C) ``P(given = classes[i], true = classes[j])`` over these rows.
        quality: (N,) the probability that each label is right.
        suggested_codes: (N,) the likeliest true labels, as positions in ``classes``.
        clean_probs: (N, C) posteriors of the true label given the features; None for an audit read from a folder.
        scatter: whether the posteriors determine T; None for too many classes to examine that.
        bracket: (C, 2) bounds of each class's noise rate that do not need T to be determined.
        sampling: intervals that hold if T is determined; None if that was not examined.
        rare: classes with too few rows to be judged: their labels count as right.
        histories: a network's records per epoch, for each fold.
        provenance: how it was computed: model, folds, seed, versions.
    """

    classes: NDArray[Any]
    codes: Codes
    transition: Array
    joint: Array
    quality: Array
    suggested_codes: Codes
    clean_probs: Array | None
    scatter: Scatter | None
    bracket: Array
    sampling: Intervals | None
    rare: tuple[int, ...] = ()
    histories: Sequence[Sequence[dict[str, Any]]] = ()
    provenance: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def labels(self) -> NDArray[Any]:
        """(N,) the given labels."""
        return self.classes[self.codes]

    @property
    def suggested(self) -> NDArray[Any]:
        """(N,) the likeliest true labels; most are the given ones."""
        return self.classes[self.suggested_codes]

    @property
    def noise_rate(self) -> float:
        """The share of wrong labels."""
        return quality.noise_rate(self.joint)

    @property
    def class_noise_rates(self) -> Array:
        """(C,) how often each true class was given another label."""
        return quality.forward_noise_rates(self.transition)

    @property
    def class_priors(self) -> Array:
        """(C,) shares of the true classes."""
        return quality.class_priors(self.joint)

    @property
    def identified(self) -> bool:
        """Whether it was examined that the data determine T, and nothing speaks against it."""
        return self.scatter is not None and not self.scatter.refuted

    @property
    def intervals(self) -> Intervals | None:
        """Intervals of T, noise rates and priors; None where T is not identified, which leaves the bracket."""
        return self.sampling if self.identified else None

    @property
    def noise_bounds(self) -> Array:
        """(C, 2) what may be said of each class's noise rate: its interval, or else the bracket."""
        return self.bracket if self.scatter is None else noise_bounds(self.scatter, self.intervals, self.bracket)

    def issues(self, fdr: float = FDR) -> Codes:
        """Rows of labels to change, the most suspicious first.

        The longest such list of which at most a share ``fdr`` is expected to be right after all. Rows whose own
        label is still the likeliest are never on it.
        """
        doubted = np.flatnonzero(self.suggested_codes != self.codes)
        return doubted[quality.flag(self.quality[doubted], fdr)]

    def confusions(self, most: int = 10) -> list[tuple[int, int, float]]:
        """(given, true, share of all rows) of the commonest mistakes, as positions in ``classes``."""
        wrong = self.joint.copy()
        np.fill_diagonal(wrong, 0)
        order = np.argsort(-wrong, axis=None, kind="stable")[:most]
        pairs = (np.unravel_index(place, wrong.shape) for place in order)
        return [(int(i), int(j), float(wrong[i, j])) for i, j in pairs if wrong[i, j] > 0]

    def check(self, clean: Any, fdr: float = FDR) -> Check:
        """Compare the audit with labels that are known to be right.

        Args:
            clean: (N,) true labels, None or NaN where they are not known.
            fdr: of the flagged labels whose precision is measured.
        """
        values = vector(clean)
        if len(values) != len(self):
            raise InputError(f"clean must hold an entry for each of {len(self)} rows, but holds {len(values)}.")
        known = np.array([not is_missing(value) for value in values.tolist()])
        if not known.any():
            raise InputError("clean holds no label at all; give true labels for a few dozen rows drawn at random.")
        truth = encode(values[known], self.classes).codes
        return _check(self, known, truth, fdr)

    def summary(self, fdr: float = FDR) -> str:
        """The findings in plain words."""
        return words.summary(self, fdr)

    def to_html(
        self, path: str | Path, *, examples: Any = None, names: Sequence[Any] | None = None, fdr: float = FDR
    ) -> None:
        """Write the report: one page that needs no network.

        Args:
            path: the HTML file.
            examples: what to show of the flagged rows: a table (polars, pandas or a mapping of columns), or images as
                an (N, channels, height, width) array of bytes.
            names: (N,) what the rows are called, file names say; their numbers by default.
            fdr: of the flagged labels.
        """
        files.write_report(self, Path(path), examples, names, fdr)

    def save(
        self, folder: str | Path, *, examples: Any = None, names: Sequence[Any] | None = None, fdr: float = FDR
    ) -> None:
        """Write ``issues.csv``, ``labels.parquet``, ``transition.csv``, ``report.html`` and, last, ``audit.json``.

        The arguments are those of ``to_html``.
        """
        files.save(self, Path(folder), examples, names, fdr)

    @classmethod
    def load(cls, folder: str | Path) -> Audit:
        """The audit that ``save`` left in a folder, without its posteriors."""
        return cls(**files.read(Path(folder)))


@dataclass(frozen=True)
class Check:
    """An audit next to labels that are known to be right.

    Attributes:
        rows: how many true labels were given.
        noise_rate: share of wrong labels among these rows.
        transition: (C, C) shares of given labels by true class among these rows; NaN for classes without any.
        transition_error: relative L1 distance of the audit's T from it, over the classes that have rows.
        flagged: how many of these rows were flagged.
        precision: share of the flagged rows whose label is wrong indeed; NaN if none was flagged.
        recall: share of the wrong labels that were flagged; NaN if none is wrong.
        suggestion_accuracy: share of the flagged rows whose suggested label is the true one; NaN if none was flagged.
        updated: (C, C) the audit's T, corrected by these rows. Right only if they were drawn at random.
        strength: rows of each class that the audit's T counted for in that correction.
        updated_noise_rate: share of wrong labels by the corrected T.
    """

    rows: int
    noise_rate: float
    transition: Array
    transition_error: float
    flagged: int
    precision: float
    recall: float
    suggestion_accuracy: float
    updated: Array
    strength: float
    updated_noise_rate: float


def _check(audit: Audit, known: NDArray[np.bool_], truth: Codes, fdr: float) -> Check:
    given, suggested = audit.codes[known], audit.suggested_codes[known]
    flagged = np.zeros(len(audit), dtype=bool)
    flagged[audit.issues(fdr)] = True
    flagged, wrong = flagged[known], given != truth
    counts = np.zeros_like(audit.transition)
    np.add.at(counts, (given, truth), 1)
    seen = counts.sum(axis=0) > 0
    shares = np.divide(counts, counts.sum(axis=0), out=np.full_like(counts, np.nan), where=seen)
    updated, strength = update_transition(audit.transition, counts)
    return Check(
        rows=len(truth),
        noise_rate=float(wrong.mean()),
        transition=shares,
        transition_error=float(np.abs(shares - audit.transition)[:, seen].sum() / shares[:, seen].sum()),
        flagged=int(flagged.sum()),
        precision=_mean(wrong[flagged]),
        recall=_mean(flagged[wrong]),
        suggestion_accuracy=_mean(suggested[flagged] == truth[flagged]),
        updated=updated,
        strength=strength,
        updated_noise_rate=float(1 - audit.class_priors @ updated.diagonal()),
    )


def update_transition(T: Array, counts: Array) -> tuple[Array, float]:
    """T corrected by counted labels, and how many rows of each class the old T counted for.

    Column j of T is the mean of a Dirichlet prior worth ``strength`` rows, the strength that makes the counts
    likeliest (empirical Bayes): a T that the counts contradict counts for little.

    Args:
        T: (C, C) transition matrix.
        counts: (C, C) rows by given label and true class.
    """
    floor = 1e-3 / len(T)
    prior = np.maximum(T, floor)
    prior /= prior.sum(axis=0)

    def log_evidence(strength: float) -> float:
        gained = gammaln(strength * prior + counts) - gammaln(strength * prior)
        return float(gained.sum() + (gammaln(strength) - gammaln(strength + counts.sum(axis=0))).sum())

    strength = max(np.geomspace(1, 1e4, 81), key=log_evidence)
    return (strength * prior + counts) / (strength + counts.sum(axis=0)), float(strength)


def _mean(flags: NDArray[np.bool_]) -> float:
    return float(flags.mean()) if len(flags) else float("nan")
