"""cleanlab's functions with their signatures and meanings, for code that is moved by changing an import.

The results equal those of cleanlab 2.9, except for the order of equal scores. They rest on counts of confident
examples, not on a transition matrix; ``volmin.audit(labels, probs=pred_probs)`` estimates one and answers the same
question (see "Coming from cleanlab" in the documentation).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.special import xlogy

from volmin._typing import AnyArray, Array, Labels, Mask
from volmin.estimation.confident import TIE, calibrated, confident_classes, confident_counts, confident_thresholds
from volmin.exceptions import InputError
from volmin.validation import validate_labels

SCORES = ("self_confidence", "normalized_margin", "confidence_weighted_entropy")
PRUNING = ("prune_by_noise_rate", "prune_by_class", "both")
FILTERS = (*PRUNING, "confident_learning", "predicted_neq_given", "low_normalized_margin", "low_self_confidence")

_TINY = 1e-6


def find_label_issues(
    labels: Any,
    pred_probs: Any,
    *,
    return_indices_ranked_by: str | None = None,
    rank_by_kwargs: Mapping[str, Any] | None = None,
    filter_by: str = "prune_by_noise_rate",
    frac_noise: float = 1.0,
    num_to_remove_per_class: Any = None,
    min_examples_per_class: int = 1,
    confident_joint: Any = None,
    n_jobs: int | None = None,
    verbose: bool = False,
    multi_label: bool = False,
) -> AnyArray:
    """A mask of the labels that are probably wrong, or their rows, the most suspicious first.

    Args:
        labels: (N,) given labels in ``0 .. K-1``.
        pred_probs: (N, K) out-of-sample probabilities.
        return_indices_ranked_by: One of ``SCORES``, to return rows in the order of this score instead of a mask.
        rank_by_kwargs: Further arguments of ``get_label_quality_scores`` for that order.
        filter_by: ``prune_by_noise_rate``: for each pair of classes as many labels as the confident joint counts, those
            of largest margin; ``prune_by_class``: for each class as many labels as are counted as wrong, those of
            smallest probability; ``both``: the labels that both find; ``confident_learning``: the counted labels
            themselves; ``predicted_neq_given``: labels that are not the most probable ones; ``low_normalized_margin``,
            ``low_self_confidence``: as many labels as are counted, those of smallest score.
        frac_noise: Share of the counted labels to return; only for the filters in ``PRUNING``.
        num_to_remove_per_class: (K,) numbers of labels to return; only for the filters in ``PRUNING``.
        min_examples_per_class: Number of labels that are kept in each class.
        confident_joint: (K, K) counts of (given, true) to use instead of those computed.
        n_jobs: Ignored: one process suffices.
        verbose: Whether to print the number of labels found.
        multi_label: Must be False: several labels for each example are not supported.
    """
    if multi_label:
        raise InputError(
            "multi_label=True is not supported: call find_label_issues for each class, with labels 0 and 1 and"
            " two columns of probabilities."
        )
    if filter_by not in FILTERS:
        raise InputError(f"filter_by must be one of {', '.join(FILTERS)}, but is {filter_by!r}.")
    if return_indices_ranked_by is not None and return_indices_ranked_by not in SCORES:
        raise InputError(
            f"return_indices_ranked_by must be None or one of {', '.join(SCORES)}, but is {return_indices_ranked_by!r}."
        )
    y, probs = _checked(labels, pred_probs)
    if filter_by not in PRUNING and num_to_remove_per_class is not None:
        raise InputError(f"num_to_remove_per_class needs a filter_by of {', '.join(PRUNING)}, not {filter_by!r}.")
    if filter_by not in PRUNING and frac_noise != 1:
        warnings.warn(f"frac_noise has no effect with filter_by={filter_by!r}.", stacklevel=2)
    if filter_by == "confident_learning" and confident_joint is not None:
        warnings.warn("confident_joint has no effect with filter_by='confident_learning'.", stacklevel=2)
    if filter_by in PRUNING:
        joint = _counts(y, probs) if confident_joint is None else np.asarray(confident_joint, dtype=np.float64)
        K = probs.shape[1]
        if joint.shape != (K, K):
            raise InputError(f"confident_joint must have shape ({K}, {K}), but has shape {joint.shape}.")
        kept = _pruning_counts(joint.T, min_examples_per_class, frac_noise)
        if num_to_remove_per_class is not None:
            kept = _scaled_to(kept, np.asarray(num_to_remove_per_class), y)
        found = _pruned(y, probs, kept, filter_by, min_examples_per_class)
    elif filter_by == "predicted_neq_given":
        found = np.ones(len(y), dtype=bool)
    elif filter_by == "confident_learning":
        found = _confidently_other(y, probs)
    else:
        count = int((_confidently_other(y, probs) & ~_most_probable(y, probs)).sum())
        scores = get_label_quality_scores(y, probs, method=filter_by.removeprefix("low_"))
        found = np.zeros(len(y), dtype=bool)
        found[np.argsort(scores)[:count]] = True
    if not filter_by.startswith("low_"):
        found &= ~_most_probable(y, probs)
    if verbose:
        print(f"Number of label issues found: {found.sum()}")
    if return_indices_ranked_by is None:
        return found
    scores = get_label_quality_scores(y, probs, method=return_indices_ranked_by, **(rank_by_kwargs or {}))
    rows = np.flatnonzero(found)
    return rows[np.argsort(scores[rows])]


def get_label_quality_scores(
    labels: Any, pred_probs: Any, *, method: str = "self_confidence", adjust_pred_probs: bool = False
) -> Array:
    """(N,) scores of the labels between 0 and 1; a smaller one is more probably wrong.

    Args:
        labels: (N,) given labels in ``0 .. K-1``.
        pred_probs: (N, K) out-of-sample probabilities.
        method: ``self_confidence``: the probability of the given label; ``normalized_margin``: its distance to the
            largest probability of another label, between 0 and 1; ``confidence_weighted_entropy``: the entropy divided
            by the probability of the given label, rescaled.
        adjust_pred_probs: Whether the mean probability of each class among the rows labelled so is subtracted first.
    """
    if method not in SCORES:
        raise InputError(f"method must be one of {', '.join(SCORES)}, but is {method!r}.")
    y, probs = _checked(labels, pred_probs)
    if adjust_pred_probs:
        if method == "confidence_weighted_entropy":
            raise InputError("adjust_pred_probs is not defined for confidence_weighted_entropy.")
        thresholds = np.nan_to_num(confident_thresholds(probs, y), posinf=2)
        shifted = probs - thresholds + thresholds.max()
        probs = shifted / shifted.sum(axis=1, keepdims=True)
    rows = np.arange(len(y))
    given = probs[rows, y]
    if method == "self_confidence":
        return given
    if method == "normalized_margin":
        others = probs.copy()
        others[rows, y] = -np.inf
        return (given - others.max(axis=1) + 1) / 2
    entropy = -xlogy(probs, probs).sum(axis=1) / np.log(probs.shape[1])
    weighted = entropy / given.clip(min=_TINY)
    return np.log1p(weighted) / weighted.clip(min=_TINY)


def _checked(labels: Any, pred_probs: Any) -> tuple[Labels, Array]:
    """Labels and a copy of the probabilities, which need not sum to one."""
    probs = np.array(pred_probs, dtype=np.float64)
    if probs.ndim != 2 or probs.shape[1] < 2:
        raise InputError(f"pred_probs must have shape (N, K) with K of at least 2, but has shape {probs.shape}.")
    if not (np.isfinite(probs).all() and probs.min(initial=0) >= 0 and probs.max(initial=1) <= 1):
        raise InputError("pred_probs must lie between 0 and 1; apply a softmax to logits.")
    return validate_labels(labels, len(probs), probs.shape[1]), probs


def _counts(labels: Labels, probs: Array) -> Array:
    """(K, K) calibrated confident joint in whole numbers, which keep the number of labels of each class."""
    return _rounded(calibrated(confident_counts(probs, labels), labels))


def _confidently_other(labels: Labels, probs: Array) -> Mask:
    classes = confident_classes(probs, labels)
    return (classes >= 0) & (classes != labels)


def _most_probable(labels: Labels, probs: Array) -> Mask:
    """Whether the given label is a most probable one, up to rounding."""
    given = probs[np.arange(len(labels)), labels]
    return given >= probs.max(axis=1) - _TINY


def _rounded(counts: Array) -> Array:
    """Rows rounded to whole numbers of the same sum; the largest rounding errors are corrected to reach it."""
    whole = counts.round()
    for row, exact in zip(whole, counts, strict=True):
        while missing := int(round(exact.sum()) - row.sum()):
            order = np.argsort(exact - row)
            changed = order[::-1][:missing] if missing > 0 else order[:-missing]
            row[changed] += np.sign(missing)
    return whole


def _pruning_counts(counts: Array, fewest: int, share: float) -> Labels:
    """(K, K) counts of (true, given) after which ``fewest`` labels of each class stay, with ``share`` of the errors."""
    diagonal = counts.diagonal()
    raised = np.maximum(diagonal, fewest)
    others = np.maximum(np.count_nonzero(counts, axis=0) - 1, 1)
    reduced = (counts - (raised - diagonal) / others).clip(min=0)
    np.fill_diagonal(reduced, raised)
    scaled = reduced * share
    np.fill_diagonal(scaled, 0)
    np.fill_diagonal(scaled, reduced.sum(axis=0) - scaled.sum(axis=0))
    return _rounded(np.floor(scaled + TIE)).astype(np.int64)


def _scaled_to(counts: Labels, wanted: AnyArray, labels: Labels) -> Labels:
    """Counts of (true, given) whose errors sum to the ``wanted`` number for each class."""
    K = len(counts)
    if wanted.shape != (K,):
        raise InputError(f"num_to_remove_per_class must hold {K} numbers, but has shape {wanted.shape}.")
    shares = counts / counts.sum(axis=1)
    errors = shares.sum(axis=1) - shares.diagonal()
    scaled = (shares.T * wanted / np.where(errors > 0, errors, 1)).T
    np.fill_diagonal(scaled, np.bincount(labels, minlength=K) - wanted)
    return _rounded(scaled).astype(np.int64)


def _pruned(labels: Labels, probs: Array, counts: Labels, filter_by: str, fewest: int) -> Mask:
    by_class, by_pair = np.zeros((2, len(labels)), dtype=bool)
    for k in range(probs.shape[1]):
        rows = np.flatnonzero(labels == k)
        if len(rows) <= fewest:
            warnings.warn(f"Labels of class {k} are not examined: it has only {len(rows)}.", stacklevel=3)
            continue
        own = probs[rows, k]
        by_class[rows[np.argsort(own)[: max(0, len(rows) - counts[k, k])]]] = True
        for j in np.flatnonzero(counts[:, k]):
            if j != k:
                by_pair[rows[np.argsort(own - probs[rows, j])[: counts[j, k]]]] = True
    return {"prune_by_noise_rate": by_pair, "prune_by_class": by_class, "both": by_pair & by_class}[filter_by]
