"""The audit of a data set: how wrong its labels are, which ones, and how far that can be trusted.

``volmin.audit(labels, features=x)`` judges every label by a model that has not seen it, estimates one T from what
the models of all folds say, and asks Bayes' rule how likely each label is right. With probabilities of a model of
one's own, ``volmin.audit(labels, probs=p)``, only the latter two are done.
"""

from __future__ import annotations

import platform
import time
import warnings
from dataclasses import replace
from importlib.metadata import version
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray
from threadpoolctl import threadpool_limits

from volmin import quality
from volmin.auditing.decisions import Corrected, apply_decisions
from volmin.auditing.inference import Judgement, judge, warn_if_seen
from volmin.auditing.judges import MODELS, CrossFit, cross_fit, named_model
from volmin.auditing.labels import Encoded, encode
from volmin.auditing.result import Array, Audit, Check, Codes
from volmin.data.tables import TableEncoder, as_frame
from volmin.exceptions import InputError
from volmin.intervals import Interval, Intervals
from volmin.training import thread_limit
from volmin.validation import validate_posteriors

__all__ = ["MODELS", "Audit", "Check", "Corrected", "apply_decisions", "audit"]

FEWEST_ROWS = 5
"""A class with fewer rows is not judged: hardly any model would have seen it, and T would have no labels to go by."""


def audit(
    labels: Any,
    *,
    features: Any = None,
    probs: ArrayLike | None = None,
    model: Any = None,
    classes: Any = None,
    folds: int = 5,
    level: float = 0.95,
    random_state: int | None = None,
    threads: int = 1,
    verbose: bool = False,
) -> Audit:
    """How wrong labels are, which ones, and how sure that is.

    Args:
        labels: (N,) given labels of any hashable type: a list, an array, a tensor, a series of pandas or polars.
        features: (N, ...) numbers, or a table (polars, pandas or a mapping) whose columns are encoded here.
        probs: (N, C) posteriors of the *given* label by a model of one's own that has not seen these rows, columns
            in the sorted order of the classes. Instead of features.
        model: what judges features: a scikit-learn classifier with ``predict_proba``, a
            ``NoisyLabelClassifier``, or a name: network (the default, VolMinNet), logistic, forest, boosting.
        classes: (C,) the classes in the order of the columns of ``probs``, where they are not sorted or some have no
            label.
        folds: of the cross-fitting.
        level: nominal coverage of the intervals.
        random_state: seed of folds, models and samples; pass an int for the same result every time.
        threads: to compute with. Results depend on their number in the last digits, and what is small gains nothing
            from more than one; large images do.
        verbose: show progress.
    """
    if (features is None) == (probs is None):
        raise InputError("Give either features or probs: one of the two says what the labels should be.")
    if probs is not None and model is not None:
        raise InputError("model judges features; with probs there is nothing for it to do.")
    if folds < 2:
        raise InputError(f"folds must be at least 2, so that a model has not seen the labels it judges; given {folds}.")
    start = time.perf_counter()
    seed = int(np.random.default_rng().integers(2**31)) if random_state is None else random_state
    posteriors = None if probs is None else validate_posteriors(probs)
    known = encode(labels, classes, None if posteriors is None else posteriors.shape[1])
    common = _common_classes(known)
    judged = np.isin(known.codes, common)
    codes = np.searchsorted(common, known.codes[judged])
    with thread_limit(threads), threadpool_limits(threads):  # in PyTorch, and in linear algebra
        if posteriors is not None:
            _check_rows(posteriors, known.codes, "probs")
            found = CrossFit(_among(common, posteriors[judged]))
            warn_if_seen(found.probs, codes)
            how = "given probabilities"
        else:
            x = as_features(features)
            _check_rows(x, known.codes, "features")
            x = x[judged]
            found = cross_fit(named_model(model, x), x, codes, len(common), folds=folds, seed=seed, quiet=not verbose)
            how = model if isinstance(model, str) else "network" if model is None else type(model).__name__
        judgement = judge(found.probs, codes, level=level, seed=seed)
    provenance = {
        "model": how,
        "folds": None if posteriors is not None else folds,
        "seed": seed,
        "reading": judgement.reading,
        "seconds": round(time.perf_counter() - start, 2),
        "versions": versions(),
    }
    return _conclude(known, common, judged, judgement, found, provenance)


def as_features(features: Any) -> NDArray[Any]:
    """(N, ...) numbers; the columns of a table are encoded, and gaps in an array are filled and told of."""
    frame = as_frame(features)
    if frame is None:
        x = np.asarray(features.detach().cpu() if hasattr(features, "detach") else features)
        if x.ndim < 2 or x.size == 0:
            raise InputError(f"features must be a filled (N, ...) array, but have shape {x.shape}.")
        if x.dtype == np.uint8:
            return x.astype(np.float32) / 255
        if x.dtype.kind in "fiub" and np.isfinite(x).all():
            return x.astype(np.float32)
        if x.ndim > 2 or x.dtype.kind not in "fiub":
            raise InputError(
                f"features of shape {x.shape} and type {x.dtype} must be finite numbers; give a table for text."
            )
        frame = pl.DataFrame({str(place): column for place, column in enumerate(x.T)}, nan_to_null=True)
    return TableEncoder().fit(frame, frame.columns).transform(frame)


def versions() -> dict[str, str]:
    """What the result was computed with."""
    return {name: version(name) for name in ("volmin", "torch", "numpy", "scikit-learn")} | {
        "python": platform.python_version()
    }


def _common_classes(known: Encoded) -> Codes:
    """The classes with enough rows to be judged; the others are warned of."""
    counts = np.bincount(known.codes, minlength=len(known.classes))
    common = np.flatnonzero(counts >= FEWEST_ROWS)
    if len(common) < 2:
        raise InputError(
            f"There are {len(common)} classes with at least {FEWEST_ROWS} rows ({len(known.classes)} classes in"
            f" {len(known.codes)} rows), and 2 are needed; merge rare classes. Are these labels classes at all?"
        )
    if rare := [str(known.classes[code]) for code in np.flatnonzero((counts > 0) & (counts < FEWEST_ROWS))]:
        shown = ", ".join(rare[:5]) + (", …" if len(rare) > 5 else "")
        warnings.warn(
            f"{len(rare)} of {len(known.classes)} classes have fewer than {FEWEST_ROWS} rows and are not judged"
            f" ({shown}): merge them with others, or find more examples.",
            stacklevel=3,
        )
    return common


def _among(common: Codes, probs: Array) -> Array:
    """Posteriors of the common classes alone; evenly spread where nothing is left."""
    kept = probs[:, common]
    left = kept.sum(axis=1, keepdims=True)
    return np.where(left > 0, kept / np.where(left > 0, left, 1), 1 / len(common))


def _conclude(
    known: Encoded,
    common: Codes,
    judged: NDArray[np.bool_],
    judgement: Judgement,
    found: CrossFit,
    provenance: dict[str, Any],
) -> Audit:
    """The audit of all rows and classes; rows that were not judged count as right."""
    N, C = len(known.codes), len(known.classes)
    T = np.eye(C)
    T[np.ix_(common, common)] = judgement.transition
    clean = np.zeros((N, C))
    clean[np.ix_(judged, common)] = judgement.clean_probs
    clean[~judged, known.codes[~judged]] = 1
    posteriors = quality.label_posteriors(known.codes, clean, T)
    bracket = np.tile([0.0, 1.0], (C, 1))
    bracket[common] = judgement.bracket
    return Audit(
        classes=known.classes,
        codes=known.codes,
        transition=T,
        joint=quality.joint(known.codes, clean, T),
        quality=posteriors[np.arange(N), known.codes],
        suggested_codes=posteriors.argmax(axis=1),
        clean_probs=clean,
        scatter=judgement.scatter,
        bracket=bracket,
        sampling=None if judgement.sampling is None else _among_all(judgement.sampling, common, T),
        rare=tuple(int(code) for code in np.setdiff1d(np.arange(C), common)),
        histories=found.histories,
        provenance=provenance,
    )


def _among_all(sampling: Intervals, common: Codes, T: Array) -> Intervals:
    """Intervals over all classes: of those that were not judged, anything may be true."""
    if len(common) == len(T):
        return sampling
    C = len(T)

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


def _check_rows(rows: NDArray[Any], codes: Codes, name: str) -> None:
    if len(rows) != len(codes):
        raise InputError(f"{name} has {len(rows)} rows, but there are {len(codes)} labels.")
