"""Measures of an aggregate against the clean labels, and the accuracy of a classifier that is trained on it."""

from __future__ import annotations

from typing import Any

import numpy as np
from benchmarks.crowds.sets import Crowd
from benchmarks.crowds.tools import Aggregate

from volmin.crowds.head import fit_head, standardised

RIDGE = 0.1
"""Ridge penalty of the classifier that all tools' labels train."""


def measures(found: Aggregate, crowd: Crowd, seed: int) -> dict[str, Any]:
    """Figures by name; None where a tool does not give what is measured."""
    answered = (crowd.answers >= 0).any(axis=1)
    consensus = found.probs.argmax(axis=1)
    return {
        "consensus": float((consensus == crowd.clean)[answered].mean()),
        "test": _test_accuracy(found, crowd, answered, seed),
        "transition_error": _transition_error(found, crowd),
        "intervals": _intervals(found, crowd),
        "spammers": None if found.named is None or not crowd.spammers else _spammers(found.named, crowd),
        "seconds": found.seconds,
    }


def _test_accuracy(found: Aggregate, crowd: Crowd, answered: Any, seed: int) -> float | None:
    """Accuracy on test items of a softmax regression on a bootstrap sample of the items, with soft targets."""
    if crowd.x_test is None or crowd.clean_test is None:
        return None
    together = standardised(np.concatenate([crowd.x, crowd.x_test]))
    rows = np.random.default_rng(seed).choice(np.flatnonzero(answered), int(answered.sum()))
    targets = found.probs[rows] / found.probs[rows].sum(axis=1, keepdims=True)
    weights = fit_head(together[rows], targets, RIDGE)
    return float(((together[len(crowd.x) :] @ weights).argmax(axis=1) == crowd.clean_test).mean())


def _transition_error(found: Aggregate, crowd: Crowd) -> float | None:
    """Mean relative L1 error over the annotators."""
    if found.T is None or crowd.T is None:
        return None
    return float(np.mean(np.abs(found.T - crowd.T).sum(axis=(1, 2)) / crowd.T.sum(axis=(1, 2))))


def _intervals(found: Aggregate, crowd: Crowd) -> list[int] | None:
    """How many intervals contain the share of wrong answers of their annotator, and how many there are."""
    if found.low is None or found.high is None:
        return None
    given = crowd.answers >= 0
    counts = given.sum(axis=0)
    wrong = (given & (crowd.answers != crowd.clean[:, None])).sum(axis=0)
    truth, some = wrong / np.maximum(counts, 1), counts > 0
    return [int(((found.low <= truth) & (truth <= found.high))[some].sum()), int(some.sum())]


def _spammers(named: list[int], crowd: Crowd) -> list[int]:
    """Numbers of spammers that are named, of spammers, and of others that are named."""
    hits = len(set(named) & set(crowd.spammers))
    return [hits, len(crowd.spammers), len(named) - hits]
