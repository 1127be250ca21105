"""What decisions about the true labels of some rows say about all rows.

Decisions settle what the labels alone cannot: which reading of hard examples is right, and how many labels are wrong.

- For rows drawn at random, the noise rate is estimated by prediction-powered inference: the mean over all rows of the
  probability ``w`` that a label is wrong, plus the mean over the decided rows of ``wrong - w``. It is unbiased whether
  or not ``w`` is right, and its interval is the narrower, the better ``w`` is.
- For suspicious rows, which were not drawn at random, it rests on the posterior of the reading (``posterior``).

Weights of the rows act on noise rates and T; shares of the flagged rows are of rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy import stats
from scipy.special import gammaln

from volmin._typing import Array, Labels, Mask
from volmin.auditing.labels import encode, is_missing, vector
from volmin.auditing.posterior import WEIGHTS, ReadingPosterior
from volmin.auditing.reading import MODEL_ERROR
from volmin.auditing.unlabelled import of_labelled
from volmin.auditing.weights import effective_count
from volmin.exceptions import InputError

if TYPE_CHECKING:
    from volmin.auditing.result import AuditResult

Sample = Literal["random", "flagged"]

FEW_DECISIONS = 30
"""With fewer decisions, the interval is that of the counted share, which needs no normal approximation."""

CHANCE = 0.001
"""Rows do not count as drawn at random if as many flagged ones among them are less probable than this."""

SETTLED_WIDTH = 0.05
"""Width of the interval of the noise rate at which the question of how many labels are wrong counts as settled."""


@dataclass(frozen=True)
class Check:
    """Comparison of an audit with known true labels.

    Attributes:
        rows: Number of rows with a known true label.
        sample: How these rows were drawn: at "random", or among the "flagged".
        noise_rate: Share of wrong labels among these rows.
        noise_range: Interval of the share of wrong labels among all rows, after these decisions.
        noise_rate_estimate: Estimate of that share.
        correct_range: Interval of the share of correct labels among all flagged ones; None if nothing is flagged.
        reading_weight: Weight of the one-right-label reading, from 0 to 1: posterior mean and interval.
        reading_weights: Weights that were compared.
        reading_probabilities: Posterior probability of each of them.
        more_decisions: Number of further decisions about random rows after which the interval of the noise rate is
            expected to be ``SETTLED_WIDTH`` wide; 0 if it is already.
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
    sample: Sample
    noise_rate: float
    noise_range: tuple[float, float]
    noise_rate_estimate: float
    correct_range: tuple[float, float] | None
    reading_weight: tuple[float, float, float]
    reading_weights: Array
    reading_probabilities: Array
    more_decisions: int
    transition: Array
    transition_error: float
    flagged: int
    precision: float
    recall: float
    suggestion_accuracy: float
    updated: Array
    strength: float
    updated_noise_rate: float


def compare_with_labels(result: AuditResult, clean: Any, fdr: float | None, sample: Sample | None) -> Check:
    """The comparison of an audit with true labels of any type; arguments as in ``AuditResult.check``."""
    values = vector(clean)
    if len(values) != len(result):
        raise InputError(f"clean must hold an entry for each of {len(result)} rows, but holds {len(values)}.")
    if sample not in (None, "random", "flagged"):
        raise InputError(f"sample must be random, flagged or None, but is {sample!r}.")
    labelled, rows = of_labelled(result)
    values = values[rows]
    known = np.array([not is_missing(value) for value in values.tolist()])
    if not known.any():
        raise InputError("clean holds no label; give the true labels of a few dozen rows drawn at random.")
    truth = encode(values[known], result.classes).codes
    return compare(labelled, known, truth, fdr, sample)


def compare(result: AuditResult, known: Mask, truth: Labels, fdr: float | None, sample: Sample | None) -> Check:
    """The comparison of an audit with the true labels of some rows.

    Args:
        result: The audit.
        known: (N,) whether the true label of a row is known.
        truth: (n,) true labels of the known rows.
        fdr: As in ``AuditResult.issues``.
        sample: How the known rows were drawn; None to infer it.
    """
    given, suggested = result.codes[known], result.suggested_codes[known]
    flags = np.zeros(len(result), dtype=bool)
    flags[result.issues(fdr)] = True
    sample = sample or guessed_sample(flags, known)
    flagged, wrong = flags[known], given != truth
    weights = np.ones(len(result)) if result.weights is None else result.weights
    sizes = weights[known] * effective_count(weights[known]) / weights[known].sum()
    level = result.sampling.level if result.sampling else 0.95
    by_reading = result.wrong_by_reading
    posterior = ReadingPosterior.of(by_reading, known, wrong, random=sample == "random")
    if sample == "random":
        estimate, low, high = powered_rate(1 - result.quality, known, wrong, level, weights)
        correct = counted_interval(int((~wrong[flagged]).sum()), int(flagged.sum()), level)
    else:
        estimate, low, high = posterior.wrong_share(np.arange(len(result)), level, weights)
        low, high = max(0.0, low - MODEL_ERROR), min(1.0, high + MODEL_ERROR)
        correct = _correct_share(posterior, np.flatnonzero(flags), level)
    counts = np.zeros_like(result.transition)
    np.add.at(counts, (given, truth), sizes)
    seen = counts.sum(axis=0) > 0
    shares = np.divide(counts, counts.sum(axis=0), out=np.full_like(counts, np.nan), where=seen)
    updated, strength = update_transition(result.transition, counts)
    return Check(
        rows=len(truth),
        sample=sample,
        noise_rate=float(np.average(wrong, weights=sizes)),
        noise_range=(low, high),
        noise_rate_estimate=estimate,
        correct_range=correct,
        reading_weight=posterior.weight(level),
        reading_weights=WEIGHTS,
        reading_probabilities=posterior.of_weights,
        more_decisions=more_decisions(
            1 - result.quality, by_reading, level, len(truth) if sample == "random" else 0, high - low, result.weights
        ),
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


def _correct_share(posterior: ReadingPosterior, flagged: Labels, level: float) -> tuple[float, float] | None:
    if not len(flagged):
        return None
    _, low, high = posterior.wrong_share(flagged, level)
    return 1 - high, 1 - low


def guessed_sample(flags: Mask, known: Mask) -> Sample:
    """How the decided rows were drawn: as flagged ones if chance would hardly have chosen as many of these."""
    decided = flags[known]
    as_many = stats.binom.sf(decided.sum() - 1, len(decided), flags.mean())
    return "flagged" if as_many < CHANCE else "random"


def powered_rate(
    probability_wrong: Array, known: Mask, wrong: Mask, level: float, weights: Array | None = None
) -> tuple[float, float, float]:
    """Estimate and interval of the share of wrong labels from rows drawn at random (prediction-powered inference).

    Args:
        probability_wrong: (N,) estimated probabilities that the labels are wrong.
        known: (N,) whether a row was decided.
        wrong: (n,) whether the labels of the decided rows are wrong.
        level: Nominal coverage.
        weights: (N,) weights of the rows in the share; by default all weigh the same.
    """
    weights = np.ones(len(known)) if weights is None else weights
    sizes = weights[known] / weights[known].mean()
    n, counted = len(wrong), float(np.average(wrong, weights=sizes))
    if n < FEW_DECISIONS or n == len(known):
        effective = math.floor(effective_count(sizes) + 1e-9)
        exact = counted_interval(math.floor(counted * effective + 0.5), effective, level)
        return counted, *(exact if exact is not None else (0.0, 1.0))
    w = probability_wrong[known]
    # The weight of the predictions that minimises the variance; predictions that do not help get none.
    covariance = np.cov(w, wrong, aweights=sizes)
    power = float(np.clip(covariance[0, 1] / max(covariance[0, 0], 1e-12), 0, 1))
    residuals = wrong - power * w
    centre = float(np.average(residuals, weights=sizes))
    estimate = power * float(np.average(probability_wrong, weights=weights)) + centre
    # Two imagined rows, one wrong and one right, keep the error from vanishing where all decisions agree.
    spread = np.concatenate([sizes * (residuals - centre), [1, -1]]).std(ddof=1)
    reach = float(stats.t.ppf((1 + level) / 2, n - 1) * spread * math.sqrt((1 - n / len(known)) / n))
    return float(np.clip(estimate, 0, 1)), max(0.0, estimate - reach), min(1.0, estimate + reach)


def more_decisions(
    probability_wrong: Array,
    by_reading: Array,
    level: float,
    done: int = 0,
    width: float = 1.0,
    weights: Array | None = None,
) -> int:
    """Further decisions about random rows that make the interval of the noise rate ``SETTLED_WIDTH`` wide.

    Before any decision, the interval's width follows from the variance of ``wrong - w``, under the reading for which
    it is larger.

    Args:
        probability_wrong: (N,) estimated probabilities w that the labels are wrong.
        by_reading: (N, 2) these probabilities under the two readings.
        level: Nominal coverage.
        done: Number of rows drawn at random that are decided already.
        width: Width of the interval after these.
        weights: (N,) weights of the rows in the noise rate; by default all weigh the same.
    """
    if done and width <= SETTLED_WIDTH:
        return 0
    if done:
        needed = done * (width / SETTLED_WIDTH) ** 2
    else:
        variances = by_reading * (1 - by_reading) + (by_reading - probability_wrong[:, None]) ** 2
        variance = float(variances.mean(axis=0).max())
        needed = 4 * variance * (stats.norm.ppf((1 + level) / 2) / SETTLED_WIDTH) ** 2
        needed *= 1 if weights is None else len(weights) / effective_count(weights)
    return max(0, min(len(probability_wrong), max(FEW_DECISIONS, math.ceil(needed))) - done)


def counted_interval(count: int, total: int, level: float) -> tuple[float, float] | None:
    """Clopper–Pearson interval of a share; None without observations."""
    if total == 0:
        return None
    tail = (1 - level) / 2
    low = float(stats.beta.ppf(tail, count, total - count + 1)) if count else 0.0
    high = float(stats.beta.ppf(1 - tail, count + 1, total - count)) if count < total else 1.0
    return low, high


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
