"""Classes with too few rows to be audited: left out of the estimates, and put back with neutral values afterwards."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np

from volmin._typing import Array, Labels
from volmin.auditing.labels import Encoded
from volmin.exceptions import InputError
from volmin.intervals import Interval, Intervals

FEWEST_ROWS = 5
"""Classes with fewer rows are not audited: the folds would have too few of them to train on and to estimate T from."""


def common_classes(given: Encoded) -> Labels:
    """Positions of the classes with enough rows to be audited; warns of the others."""
    counts = np.bincount(given.codes[given.codes >= 0], minlength=len(given.classes))
    common = np.flatnonzero(counts >= FEWEST_ROWS)
    if len(common) < 2:
        raise InputError(
            f"At least 2 classes need {FEWEST_ROWS} rows or more, but {len(common)} of {len(given.classes)} classes in"
            f" {counts.sum()} labelled rows have as many: merge rare classes. Are these labels classes at all?"
        )
    if rare := [str(given.classes[code]) for code in np.flatnonzero((counts > 0) & (counts < FEWEST_ROWS))]:
        shown = ", ".join(rare[:5]) + (", …" if len(rare) > 5 else "")
        warnings.warn(
            f"{len(rare)} of {len(given.classes)} classes have fewer than {FEWEST_ROWS} rows and are not audited"
            f" ({shown}): merge them with others, or add examples.",
            stacklevel=4,
        )
    return common


def restricted(probs: Array, common: Labels) -> Array:
    """Posteriors of the common classes alone; uniform where they are all zero."""
    kept = probs[:, common]
    total = kept.sum(axis=1, keepdims=True)
    return np.where(total > 0, kept / np.where(total > 0, total, 1), 1 / len(common))


def over_all_classes(sampling: Intervals, common: Labels, num_classes: int) -> Intervals:
    """Intervals over all classes; those of classes that were not audited are [0, 1]."""
    if len(common) == num_classes:
        return sampling
    C = num_classes

    def widened(interval: Interval, estimate: Array, place: Any) -> Interval:
        low, high = np.zeros(estimate.shape), np.ones(estimate.shape)
        low[place], high[place] = interval.low, interval.high
        estimate[place] = interval.estimate
        return Interval(estimate, low, high)

    return replace(
        sampling,
        transition=widened(sampling.transition, np.eye(C), np.ix_(common, common)),
        class_noise_rates=widened(sampling.class_noise_rates, np.zeros(C), common),
        class_priors=widened(sampling.class_priors, np.zeros(C), common),
    )
