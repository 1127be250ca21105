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
from scipy.special import gammaln

from volmin import quality
from volmin._typing import AnyArray, Array, Labels, Mask
from volmin.auditing.labels import encode, is_missing, vector
from volmin.auditing.reading import Readings, most_suspicious
from volmin.exceptions import InputError
from volmin.identifiability import Scatter
from volmin.intervals import Intervals, binomial_interval, noise_bounds


@dataclass(frozen=True)
class AuditResult:
    """Estimates of how many labels are wrong, which ones, and how certain that is.

    Attributes:
        classes: (C,) classes; all arrays over classes are in this order.
        codes: (N,) given labels, as positions in ``classes``.
        transition: (C, C) ``T[i, j] = P(given = classes[i] | true = classes[j])``; columns sum to one.
        joint: (C, C) ``P(given = classes[i], true = classes[j])`` over these rows.
        quality: (N,) probabilities that the labels are correct.
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
        histories: Records of a network per epoch, for each fold.
        provenance: How the result was computed: model, folds, seed, versions.
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
    histories: Sequence[Sequence[dict[str, Any]]] = ()
    provenance: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def labels(self) -> AnyArray:
        """(N,) given labels."""
        return self.classes[self.codes]

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

        They are the shares under the two readings of hard examples, widened by the sampling error of as many rows and,
        where T is identified, by the interval. The lower bound is zero with two classes (see ``two_classes``) and,
        under the class-dependent reading, where T is not identified: the estimate is then the largest possible noise.
        """
        rates = (self.noise_rate, *(self.readings.noise_rates if self.readings else ()))
        level = self.sampling.level if self.sampling else 0.95
        low, high = binomial_interval([min(rates), max(rates)], [len(self)] * 2, level)
        bounds = [float(low[0]), float(high[1])]
        if self.intervals is not None:
            bounds = [
                min(bounds[0], float(self.intervals.noise_rate.low)),
                max(bounds[1], float(self.intervals.noise_rate.high)),
            ]
        refuted = self.class_dependent and self.scatter is not None and self.scatter.refuted
        return (0.0 if self.two_classes or refuted else bounds[0]), bounds[1]

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
        the range between the readings.
        """
        if not self.class_dependent:
            return self.class_noise_range
        return self.bracket if self.scatter is None else noise_bounds(self.scatter, self.intervals, self.bracket)

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
        doubtful = np.flatnonzero(self.suggested_codes != self.codes)
        return doubtful[quality.flag(self.quality[doubtful], fdr)]

    def frame(self, fdr: float | None = None) -> pl.DataFrame:
        """A table with one line per label: row, given, suggested, probability_wrong, flagged.

        Labels that are neither numbers nor text are converted to text.

        Args:
            fdr: Largest expected share of correct labels among the flagged, as in ``issues``.
        """
        plain = self.classes.dtype != object
        classes = pl.Series(self.classes if plain else [str(name) for name in self.classes])
        flagged = np.zeros(len(self), dtype=bool)
        flagged[self.issues(fdr)] = True
        return pl.DataFrame(
            {
                "row": np.arange(len(self)),
                "given": classes.gather(self.codes),
                "suggested": classes.gather(self.suggested_codes),
                "probability_wrong": 1 - self.quality,
                "flagged": flagged,
            }
        )

    def confusions(self, most: int = 10) -> list[tuple[int, int, float]]:
        """(given, true, share of all rows) of the most frequent confusions, as positions in ``classes``."""
        wrong = self.joint.copy()
        np.fill_diagonal(wrong, 0)
        order = np.argsort(-wrong, axis=None, kind="stable")[:most]
        pairs = (np.unravel_index(place, wrong.shape) for place in order)
        return [(int(i), int(j), float(wrong[i, j])) for i, j in pairs if wrong[i, j] > 0]

    def check(self, clean: Any, fdr: float | None = None) -> Check:
        """Compare the result with known true labels.

        Args:
            clean: (N,) true labels, None or NaN where they are not known.
            fdr: Largest expected share of correct labels among the flagged, whose precision is measured.
        """
        values = vector(clean)
        if len(values) != len(self):
            raise InputError(f"clean must hold an entry for each of {len(self)} rows, but holds {len(values)}.")
        known = np.array([not is_missing(value) for value in values.tolist()])
        if not known.any():
            raise InputError("clean holds no label; give the true labels of a few dozen rows drawn at random.")
        truth = encode(values[known], self.classes).codes
        return _check(self, known, truth, fdr)


@dataclass(frozen=True)
class Check:
    """Comparison of an audit with known true labels.

    Attributes:
        rows: Number of rows with a known true label.
        noise_rate: Share of wrong labels among these rows.
        transition: (C, C) shares of given labels by true class among these rows; NaN for classes without any.
        transition_error: Relative L1 distance of the audit's T from ``transition``, over the classes that have rows.
        flagged: Number of these rows that are flagged.
        precision: Share of the flagged rows whose label is wrong; NaN if none is flagged.
        recall: Share of the wrong labels that are flagged; NaN if none is wrong.
        suggestion_accuracy: Share of the flagged rows whose suggested label is the true one; NaN if none is flagged.
        updated: (C, C) the audit's T, corrected by these rows. Valid only if they were drawn at random.
        strength: Weight of the audit's T in that correction, in rows per class.
        updated_noise_rate: Share of wrong labels according to ``updated``.
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


def _check(result: AuditResult, known: Mask, truth: Labels, fdr: float | None) -> Check:
    given, suggested = result.codes[known], result.suggested_codes[known]
    flagged = np.zeros(len(result), dtype=bool)
    flagged[result.issues(fdr)] = True
    flagged, wrong = flagged[known], given != truth
    counts = np.zeros_like(result.transition)
    np.add.at(counts, (given, truth), 1)
    seen = counts.sum(axis=0) > 0
    shares = np.divide(counts, counts.sum(axis=0), out=np.full_like(counts, np.nan), where=seen)
    updated, strength = update_transition(result.transition, counts)
    return Check(
        rows=len(truth),
        noise_rate=float(wrong.mean()),
        transition=shares,
        transition_error=float(np.abs(shares - result.transition)[:, seen].sum() / shares[:, seen].sum()),
        flagged=int(flagged.sum()),
        precision=_mean(wrong[flagged]),
        recall=_mean(flagged[wrong]),
        suggestion_accuracy=_mean(suggested[flagged] == truth[flagged]),
        updated=updated,
        strength=strength,
        updated_noise_rate=float(1 - result.class_priors @ updated.diagonal()),
    )


def update_transition(T: Array, counts: Array) -> tuple[Array, float]:
    """Correct T by counted labels.

    Column j of T is the mean of a Dirichlet prior worth ``strength`` rows. The strength maximises the likelihood of
    the counts (empirical Bayes), so a T that the counts contradict gets little weight.

    Args:
        T: (C, C) transition matrix.
        counts: (C, C) numbers of rows by given label and true class.

    Returns:
        (C, C) corrected transition matrix, and the strength.
    """
    floor = 1e-3 / len(T)
    prior = np.maximum(T, floor)
    prior /= prior.sum(axis=0)

    def log_evidence(strength: float) -> float:
        gained = gammaln(strength * prior + counts) - gammaln(strength * prior)
        return float(gained.sum() + (gammaln(strength) - gammaln(strength + counts.sum(axis=0))).sum())

    strength = max(np.geomspace(1, 1e4, 81), key=log_evidence)
    return (strength * prior + counts) / (strength + counts.sum(axis=0)), float(strength)


def _mean(flags: Mask) -> float:
    return float(flags.mean()) if len(flags) else float("nan")
