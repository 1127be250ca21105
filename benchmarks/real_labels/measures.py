"""How good a finding is, measured with the true labels. A measure that is undefined is None."""

from __future__ import annotations

import numpy as np
from benchmarks.real_labels.tools import Finding
from sklearn.metrics import average_precision_score, roc_auc_score

from volmin import noise, transition_error
from volmin._typing import Array, Labels, Mask

Measures = dict[str, float | int | bool | None]


def measures(found: Finding, given: Labels, clean: Labels) -> Measures:
    """All measures of one finding.

    Args:
        found: Finding of a tool.
        given: (N,) given labels.
        clean: (N,) true labels.
    """
    wrong = given != clean
    T = noise.measured(given, clean, len(found.transition))
    return {
        **ranking(found.quality, wrong),
        **flags(found.flagged, wrong),
        "expected_fdr": found.expected_fdr,
        **noise_rate(found, float(wrong.mean())),
        "transition_error": float(transition_error(T, found.transition)),
        "seconds": found.seconds,
    }


def ranking(quality: Array, wrong: Mask) -> Measures:
    """AUROC and average precision of a ranking that should have the wrong labels first."""
    if wrong.all() or not wrong.any():
        return {"auroc": None, "average_precision": None}
    return {
        "auroc": float(roc_auc_score(wrong, -quality)),
        "average_precision": float(average_precision_score(wrong, -quality)),
    }


def flags(flagged: Labels, wrong: Mask) -> Measures:
    """Precision, recall and F1 of the flagged rows, and their empirical false-discovery rate.

    Without wrong labels, recall and F1 are undefined.
    """
    hits, many, total = int(wrong[flagged].sum()), len(flagged), int(wrong.sum())
    return {
        "flagged": many,
        "false_alarms": many - hits,
        "precision": _ratio(hits, many),
        "recall": _ratio(hits, total),
        "f1": _ratio(2 * hits, many + total) if total else None,
        "fdr": _ratio(many - hits, many),
    }


def noise_rate(found: Finding, truth: float) -> Measures:
    """The estimated noise rate and its range, and whether the range contains the true rate."""
    low, high = found.noise_range or (None, None)
    return {
        "true_noise_rate": truth,
        "noise_rate": found.noise_rate,
        "low": low,
        "high": high,
        "hit": None if low is None or high is None else bool(low <= truth <= high),
    }


def agreement(probs: Array, given: Labels) -> float:
    """Share of the rows whose given label is the most probable one."""
    return float(np.mean(probs.argmax(axis=1) == given))


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None
