"""The result of an audit as plain data, and the quantities derived from it.

Nothing here prints, reads or writes: ``text``, ``page`` and ``storage`` take an ``AuditResult``, and ``audit.Audit``
adds them to it as methods.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from volmin import quality
from volmin._typing import AnyArray, Array, Labels
from volmin.auditing import tables
from volmin.auditing.check import Check, Sample, compare_with_labels, more_decisions
from volmin.auditing.findings import Finding
from volmin.auditing.judges import Judge
from volmin.auditing.reading import MODEL_ERROR, Readings, most_suspicious
from volmin.auditing.weights import effective_count
from volmin.identifiability import Scatter
from volmin.intervals import Intervals, binomial_interval, noise_bounds


@dataclass(frozen=True)
class AuditResult:
    """Estimates of how many labels are wrong, which ones, and how certain that is.

    Attributes:
        classes: (C,) classes; all arrays over classes are in this order.
        codes: (N,) given labels, as positions in ``classes``; -1 for rows without a label.
        transition: (C, C) ``T[i, j] = P(given = classes[i] | true = classes[j])``; columns sum to one.
        joint: (C, C) ``P(given = classes[i], true = classes[j])`` over these rows.
        quality: (N,) probabilities that the labels are correct; NaN for rows without a label, like ``suspicion`` and
            ``qualities``.
        suggested_codes: (N,) most probable true labels, as positions in ``classes``; of the labels that are flagged by
            default, the most probable other ones.
        clean_probs: (N, C) posteriors of the true label given the features; None for an audit that was loaded.
        scatter: Whether the posteriors determine T; None if there are too many classes to examine that.
        bracket: (C, 2) bounds of each class's noise rate that do not require T to be determined.
        sampling: Intervals that are valid if T is determined; None if that was not examined.
        rare: Classes with too few rows to be audited; their labels are assumed to be correct.
        suspicion: (N,) scores that rank the labels, larger for more suspicious ones: the negative sum of the log-odds
            of the quality under the class-dependent reading and of the posterior of the given label. None for audits
            that an earlier version saved, like the next two.
        num_flagged: Number of labels that are flagged by default.
        readings: The two readings of hard examples, and the one that these estimates follow.
        qualities: (N, 2) qualities under the two readings; None for audits that an earlier version saved.
        judges: The models whose posteriors were used, the one with the largest weight first.
        findings: Named reasons why the statements can be trusted less, and what to do about them.
        repeated_rates: (R, 2) noise rates under the two readings for each repetition of the cross-fitting.
        histories: Records of a network per epoch, for each fold.
        embedding: (n,) rows drawn at random and their (n, 2) positions by the first two principal components of the
            features; None without features.
        provenance: How the result was computed: model, folds, seed, versions.
        certainty: (m,) probabilities of the suggested labels of the m rows without a label, in their order.
        weights: (N,) weights of the rows in all shares (rates, T, joint distribution), with a mean of one over the
            labels; None if all weigh the same. Ranks, flags and shares of the flagged rows do not depend on them.
    """

    classes: AnyArray
    codes: Labels
    transition: Array
    joint: Array
    quality: Array
    suggested_codes: Labels
    clean_probs: Array | None
    scatter: Scatter | None
    bracket: Array
    sampling: Intervals | None
    rare: tuple[int, ...] = ()
    suspicion: Array | None = None
    num_flagged: int | None = None
    readings: Readings | None = None
    qualities: Array | None = None
    judges: list[Judge] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    repeated_rates: Array = field(default_factory=lambda: np.empty((0, 2)))
    histories: Sequence[Sequence[dict[str, Any]]] = ()
    embedding: tuple[Labels, Array] | None = None
    provenance: dict[str, Any] = field(default_factory=dict)
    certainty: Array = field(default_factory=lambda: np.empty(0))
    weights: Array | None = None

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def labels(self) -> AnyArray:
        """(N,) given labels; None for rows without one."""
        found, missing = self.classes[self.codes], self.codes < 0
        if missing.any():
            found = found.astype(object)
            found[missing] = None
        return found

    @property
    def num_labels(self) -> int:
        """Number of rows that have a label."""
        return int((self.codes >= 0).sum())

    @property
    def unlabelled(self) -> pl.DataFrame:
        """Rows without a label, with the most probable label and its probability: row, suggested, probability."""
        return tables.suggestions(self)

    @property
    def suggested(self) -> AnyArray:
        """(N,) most probable true labels, of flagged labels the most probable other ones; mostly the given ones."""
        return self.classes[self.suggested_codes]

    @property
    def noise_rate(self) -> float:
        """Share of wrong labels."""
        return quality.noise_rate(self.joint)

    @property
    def class_noise_rates(self) -> Array:
        """(C,) shares of each true class that carry another label."""
        return quality.forward_noise_rates(self.transition)

    @property
    def class_priors(self) -> Array:
        """(C,) shares of the true classes."""
        return quality.class_priors(self.joint)

    @property
    def noise_range(self) -> tuple[float, float]:
        """Lower and upper bound of the share of wrong labels; contains ``noise_rate``.

        They are the shares under the two readings of hard examples and in all repetitions of the cross-fitting, widened
        by the sampling error of as many rows and, where T is identified, by the interval; and then by ``MODEL_ERROR``,
        downwards also by ``mistakes``. The lower bound is zero where the estimate is only the largest noise that
        explains the labels (see ``may_be_lower``).
        """
        rates = (self.noise_rate, *(self.readings.noise_rates if self.readings else ()), *self.repeated_rates.ravel())
        level = self.sampling.level if self.sampling else 0.95
        low, high = binomial_interval([min(rates), max(rates)], [self.effective_labels] * 2, level)
        bounds = [float(low[0]), float(high[1])]
        if self.intervals is not None:
            bounds = [
                min(bounds[0], float(self.intervals.noise_rate.low)),
                max(bounds[1], float(self.intervals.noise_rate.high)),
            ]
        low, high = max(0.0, bounds[0] - MODEL_ERROR - self.mistakes), min(1.0, bounds[1] + MODEL_ERROR)
        return (0.0 if self.may_be_lower else low), high

    @property
    def mistakes(self) -> float:
        """Share of labels that may count as wrong because of mistakes of the model, as far as near-ties suggest."""
        return float(_mistakes(self.readings, np.array(self.readings.noise_rates))) if self.readings else 0.0

    @property
    def effective_labels(self) -> float:
        """Number of labels of equal weight whose shares would have the sampling error of the weighted ones."""
        return self.num_labels if self.weights is None else effective_count(self.weights[self.codes >= 0])

    @property
    def wrong_by_reading(self) -> Array:
        """(N, 2) probabilities that the labels are wrong under the two readings."""
        return 1 - (np.stack([self.quality, self.quality], axis=1) if self.qualities is None else self.qualities)

    @property
    def decisions_needed(self) -> int:
        """Number of rows drawn at random whose decisions would settle how many labels are wrong.

        It is the number after which the interval of the noise rate is expected to be five percentage points wide.
        """
        level = self.sampling.level if self.sampling else 0.95
        labelled = self.codes >= 0
        weights = None if self.weights is None else self.weights[labelled]
        return more_decisions(1 - self.quality[labelled], self.wrong_by_reading[labelled], level, weights=weights)

    @property
    def may_be_lower(self) -> bool:
        """Whether nothing excludes less noise than any reading finds, down to none.

        With two classes (see ``two_classes``); where T is not identified under the class-dependent reading; and where
        undecided examples are so frequent that classes overlap or the model is weak, whose mistakes look like noise.
        """
        refuted = self.class_dependent and self.scatter is not None and self.scatter.refuted
        return self.two_classes or refuted or (self.readings is not None and self.readings.overlapping)

    @property
    def two_classes(self) -> bool:
        """Whether only two classes are audited.

        Their T is identified only by anchor points, rows that belong to a class with certainty, and no check of the
        posteriors can tell whether there are any. Without them, less noise explains the labels equally well.
        """
        return len(self.classes) - len(self.rare) == 2

    @property
    def class_noise_range(self) -> Array:
        """(C, 2) shares of wrong labels of each true class under the two readings, without sampling error."""
        rates = [self.class_noise_rates[:, None]] + ([self.readings.class_noise_rates] if self.readings else [])
        every = np.concatenate(rates, axis=1)
        return np.stack([every.min(axis=1), every.max(axis=1)], axis=1)

    @property
    def class_dependent(self) -> bool:
        """Whether the estimates follow the class-dependent reading."""
        return self.readings is None or self.readings.sharpness == 1

    @property
    def identified(self) -> bool:
        """Whether identifiability of T was examined and not rejected, and T is that of the class-dependent reading.

        Never with two classes.
        """
        examined = self.scatter is not None and not self.scatter.refuted
        return examined and self.class_dependent and not self.two_classes

    @property
    def intervals(self) -> Intervals | None:
        """Intervals of T, noise rates and priors; None where T is not identified and only the bracket is valid."""
        return self.sampling if self.identified else None

    @property
    def noise_bounds(self) -> Array:
        """(C, 2) bounds of each class's noise rate.

        Its interval where T is identified, otherwise the bracket; under another reading than the class-dependent one,
        the range between the readings. The lower bounds allow for the same mistakes of the model as ``noise_range``.
        """
        if not self.class_dependent:
            bounds = self.class_noise_range
        else:
            bounds = self.bracket if self.scatter is None else noise_bounds(self.scatter, self.intervals, self.bracket)
        if self.may_be_lower:
            return bounds * [0.0, 1.0]
        mistakes = _mistakes(self.readings, self.readings.class_noise_rates) if self.readings else 0.0
        return np.stack([np.maximum(0, bounds[:, 0] - mistakes), bounds[:, 1]], axis=1)

    def issues(self, fdr: float | None = None) -> Labels:
        """Rows of the flagged labels, the most suspicious first.

        By default, as many labels are flagged as have another most probable label, the ones of largest ``suspicion``.

        Args:
            fdr: Largest expected share of correct labels among the flagged. The flagged labels are then the longest
                list that satisfies it under the chosen reading, ordered by ``quality``, without labels that are the
                most probable ones.
        """
        if fdr is None:
            if self.suspicion is not None and self.num_flagged is not None:
                return most_suspicious(self.suspicion, self.num_flagged)
            fdr = 0.1  # the default of the version that saved this audit
        doubtful = np.flatnonzero((self.suggested_codes != self.codes) & (self.codes >= 0))
        return doubtful[quality.flag(self.quality[doubtful], fdr)]

    def most_correct(self, rows: Labels) -> float:
        """Upper bound of the share of correct labels among some rows, where the reading and T are right.

        It is the expected share, widened by the sampling error and by as many rows as ``MODEL_ERROR`` and ``mistakes``
        of all are.
        """
        if not len(rows):
            return 1.0
        level = self.sampling.level if self.sampling else 0.95
        _, high = binomial_interval(self.quality[rows].mean(), len(rows), level)
        return min(1.0, float(high) + (MODEL_ERROR + self.mistakes) * self.num_labels / len(rows))

    def frame(self, fdr: float | None = None) -> pl.DataFrame:
        """A table with one line per row: row, given, suggested, probability_wrong, flagged.

        Labels that are neither numbers nor text are converted to text. Rows without a label have null for ``given`` and
        ``probability_wrong``; ``unlabelled`` has the probabilities of their suggestions.

        Args:
            fdr: Largest expected share of correct labels among the flagged, as in ``issues``.
        """
        return tables.row_table(self, fdr)

    def confusions(self, most: int = 10) -> list[tuple[int, int, float]]:
        """(given, true, share of all rows) of the most frequent confusions, as positions in ``classes``."""
        wrong = self.joint.copy()
        np.fill_diagonal(wrong, 0)
        order = np.argsort(-wrong, axis=None, kind="stable")[:most]
        pairs = (np.unravel_index(place, wrong.shape) for place in order)
        return [(int(i), int(j), float(wrong[i, j])) for i, j in pairs if wrong[i, j] > 0]

    def check(self, clean: Any, fdr: float | None = None, *, sample: Sample | None = None) -> Check:
        """Compare the result with known true labels, and estimate the noise rate anew from them.

        Args:
            clean: (N,) true labels, None or NaN where they are not known.
            fdr: Largest expected share of correct labels among the flagged, whose precision is measured.
            sample: How the rows with a known label were drawn: at "random", or among the "flagged"; None to tell it
                from the rows.
        """
        return compare_with_labels(self, clean, fdr, sample)


def _mistakes(found: Readings, rates: Array) -> Array:
    """Share of labels by which noise rates under the two readings, (..., 2), may be too high."""
    return found.mistaken * np.maximum(0, rates[..., 1] - rates[..., 0])
