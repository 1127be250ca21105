"""The compared tools, with their default settings."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from benchmarks.real_labels.sets import LabelSet

import volmin
from volmin import Audit
from volmin._typing import Array, Labels
from volmin.auditing.text import states_expected_correct


@dataclass(frozen=True)
class Finding:
    """What a tool states about the labels of a set.

    Attributes:
        quality: (N,) scores by which labels are ranked, the most suspicious lowest.
        flagged: Rows of the flagged labels.
        noise_rate: Estimated share of wrong labels.
        transition: (C, C) estimated T.
        seconds: Time of the computation.
        noise_range: Stated interval or range of the noise rate; None if the tool states none.
        expected_fdr: Largest stated share of correct labels among the flagged; None if the tool states none.
        audit: The audit by volmin; None for another tool.
    """

    quality: Array
    flagged: Labels
    noise_rate: float
    transition: Array
    seconds: float
    noise_range: tuple[float, float] | None = None
    expected_fdr: float | None = None
    audit: Audit | None = None


def volmin_audit(labels: Labels, num_classes: int, seed: int, **given: Any) -> Finding:
    """An audit by volmin of ``given`` posteriors (``probs``) or features (``features``)."""
    start = time.perf_counter()
    found = volmin.audit(labels, classes=np.arange(num_classes), random_state=seed, **given)
    flagged = found.issues()
    seconds = time.perf_counter() - start
    stated = len(flagged) > 0 and states_expected_correct(found)
    expected = found.most_correct(flagged) if stated else None
    assert found.suspicion is not None
    return Finding(
        -found.suspicion, flagged, found.noise_rate, found.transition, seconds, found.noise_range, expected, found
    )


def cleanlab_audit(labels: Labels, probs: Array) -> Finding:
    """An audit by cleanlab: its default filter, quality scores and confident joint."""
    from cleanlab.count import compute_confident_joint, estimate_joint, estimate_latent
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores

    start = time.perf_counter()
    flagged = np.flatnonzero(find_label_issues(labels, probs, n_jobs=1))
    quality = get_label_quality_scores(labels, probs)
    confident = np.asarray(compute_confident_joint(labels, probs))
    joint = estimate_joint(labels, probs, confident_joint=confident)
    T = estimate_latent(confident, labels)[1]
    seconds = time.perf_counter() - start
    return Finding(quality, flagged, float(1 - np.trace(joint)), T, seconds)


def findings(labels: LabelSet, probs: Array, seed: int, features: bool = True) -> dict[str, Finding]:
    """The findings of all tools: on the same posteriors, and of volmin's default audit where there are features.

    Args:
        labels: The set.
        probs: (N, C) posteriors for both tools.
        seed: Random seed.
        features: Whether the default audit of the features is run too, which takes longest.
    """
    C = labels.num_classes
    found = {
        "volmin": volmin_audit(labels.given, C, seed, probs=probs),
        "cleanlab": cleanlab_audit(labels.given, probs),
    }
    if features and labels.features is not None:
        found["volmin, features"] = volmin_audit(labels.given, C, seed, features=labels.features)
    return found
