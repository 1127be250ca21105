"""``volmin.audit``: how many labels of a data set are wrong, which ones, and how certain that is.

With features, each label gets posteriors from a model that was not trained on it (``judges``). From the posteriors one
T is estimated (``inference``), and Bayes' rule gives the probability that each label is correct. With given
probabilities, only the last two steps are done.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from threadpoolctl import threadpool_limits

from volmin._typing import Array, Labels, Mask, Numbers
from volmin.auditing import storage, text
from volmin.auditing.arguments import (
    check_rows,
    check_settings,
    check_source,
    refuse_single_label_arguments,
)
from volmin.auditing.crowd import audit_crowd
from volmin.auditing.features import embed, encode_features
from volmin.auditing.findings import Finding, about_data, find, in_sample
from volmin.auditing.inference import Inference, infer, noise_rates, with_noise_rates_of
from volmin.auditing.judges import given_judgement, judge, resolve_models
from volmin.auditing.labels import Encoded, encode
from volmin.auditing.notebook import DisplayedResult
from volmin.auditing.page import write_page
from volmin.auditing.rare import common_classes, over_all_classes, restricted
from volmin.auditing.reading import choose, validate_reading
from volmin.auditing.unlabelled import with_unlabelled
from volmin.auditing.versions import versions
from volmin.auditing.weights import row_weights
from volmin.crowds import several_annotators
from volmin.data.folds import first_copies
from volmin.exceptions import InputError
from volmin.progress import PlainProgress, Progress, announce
from volmin.training import thread_limit
from volmin.validation import validate_posteriors


@dataclass(frozen=True, repr=False)
class Audit(DisplayedResult):
    """The result of ``volmin.audit``: estimates, rows to look at, and methods to print, show, save and load it."""

    def summary(self, fdr: float | None = None) -> str:
        """The result as a few lines of text.

        Args:
            fdr: Largest expected share of correct labels among the flagged, as in ``issues``.
        """
        return text.summary(self, fdr)

    def to_html(
        self, path: str | Path, *, examples: Any = None, names: Sequence[Any] | None = None, fdr: float | None = None
    ) -> None:
        """Write the report as one self-contained HTML file.

        Args:
            path: Path of the HTML file.
            examples: What to show of the flagged rows: a table (polars, pandas or a mapping of columns), or images as
                an (N, channels, height, width) array of bytes.
            names: (N,) names of the rows, such as file names; by default their numbers.
            fdr: Largest expected share of correct labels among the flagged, as in ``issues``.
        """
        write_page(self, Path(path), examples, names, fdr)

    def save(
        self, folder: str | Path, *, examples: Any = None, names: Sequence[Any] | None = None, fdr: float | None = None
    ) -> None:
        """Write ``issues.csv``, ``labels.parquet``, ``transition.csv``, ``report.html`` and, last, ``audit.json``.

        Args:
            folder: Folder of the files; it is created if necessary.
            examples: What to show of the flagged rows, as in ``to_html``.
            names: (N,) names of the rows, as in ``to_html``.
            fdr: Largest expected share of correct labels among the flagged, as in ``issues``.
        """
        storage.save(self, Path(folder), examples, names, fdr)

    @classmethod
    def load(cls, folder: str | Path) -> Audit:
        """Read the audit that ``save`` wrote; its ``clean_probs`` are None."""
        return storage.load(Path(folder), cls)


def audit(
    labels: Any,
    *,
    features: Any = None,
    probs: Numbers | None = None,
    groups: Any = None,
    sample_weight: Any = None,
    model: Any = "auto",
    types: Mapping[str, str] | None = None,
    text_encoder: Any = None,
    classes: Any = None,
    folds: int = 5,
    reading: str = "auto",
    level: float = 0.95,
    random_state: int | None = None,
    threads: int = 1,
    verbose: bool = False,
    progress: Progress | None = None,
) -> Audit:
    """Estimate how many labels are wrong, which ones, and how certain that is.

    Args:
        labels: (N,) given labels of any hashable type: a list, an array, a tensor, a series of pandas or polars. Rows
            with None or NaN have no label: no statement is about them, and they get a suggestion, in
            ``Audit.unlabelled``. Labels of several annotators, (N, M) with None, NaN or -1 where one gave none, or a
            long table, are audited by ``volmin.auditing.audit_crowd``, and the result is a ``CrowdAudit``.
        features: (N, ...) numbers, or a table (polars, pandas or a mapping of columns), which is encoded.
        probs: (N, C) out-of-sample posteriors of the *given* label from your own model, columns in the sorted order of
            the classes. Alternative to ``features``.
        groups: (N,) group of each label (a source, a hospital, a year), which gets a T of its own; the result is a
            ``CrowdAudit``.
        sample_weight: (N,) weights of the rows in all shares: noise rates, T, priors. A row of weight 2 counts like two
            rows. Models, ranks and flags do not depend on them.
        model: Classifier for the features: a scikit-learn classifier with ``predict_proba``, a
            ``NoisyLabelClassifier``, or a name: network (VolMinNet), logistic, forest, boosting. By default several
            that suit the data are weighted by the likelihood of labels that they were not trained on.
        types: Types of columns of a table where they are not to be recognised: number, date, boolean, category, text,
            ignore, or the order of a date such as month/day/year.
        text_encoder: Encoder for columns of text in place of TF-IDF: any callable from a list of texts to (n, D)
            numbers, such as ``volmin.data.embeddings.sentence_encoder(folder)``.
        classes: (C,) classes in the order of the columns of ``probs``; needed if they are not sorted or if some have
            no label.
        folds: Number of folds of the cross-fitting, at least 2.
        reading: What the labels of hard examples mean: ``class_dependent`` if these may rightly carry either label,
            ``one_right_label`` if each has one right label; ``auto`` takes the former where both give similar noise
            rates, and otherwise a compromise.
        level: Nominal coverage of the intervals.
        random_state: Random seed of folds, models and samples; None draws one.
        threads: Number of threads. Results depend on it in the last digits; only large images gain from more than one.
        verbose: Whether to print progress on standard error.
        progress: Callback ``(title, done, total)`` for progress, in place of ``verbose``.
    """
    if groups is not None or several_annotators(labels):
        refuse_single_label_arguments(probs, model, reading, sample_weight, text_encoder)
        found = audit_crowd(
            labels,
            features=features,
            groups=groups,
            types=types,
            classes=classes,
            folds=folds,
            level=level,
            random_state=random_state,
            threads=threads,
            verbose=verbose,
            progress=progress,
        )
        # An array of any shape has one static type; audit_crowd has the exact one.
        return cast(Audit, found)
    check_source(features, probs, model)
    check_settings(folds, level, threads)
    if (types or text_encoder is not None) and features is None:
        raise InputError("types and text_encoder are for columns of a table in features, not for probs.")
    validate_reading(reading)
    start = time.perf_counter()
    seed = int(np.random.default_rng().integers(2**31)) if random_state is None else random_state
    posteriors = None if probs is None else validate_posteriors(probs)
    given = encode(labels, classes, None if posteriors is None else posteriors.shape[1], unlabelled=True)
    weights = None if sample_weight is None else row_weights(sample_weight, given)
    common = common_classes(given)
    audited = np.isin(given.codes, common)
    # Models predict the rows without a label, too; their code is -1.
    judged_rows = audited | (given.codes < 0)
    codes = np.where(audited, np.searchsorted(common, given.codes.clip(0)), -1)[judged_rows]
    labelled = codes >= 0
    notes: list[Finding] = []
    copies = 0.0
    embedding: tuple[Labels, Array] | None = None
    columns: Sequence[Mapping[str, Any]] = ()
    progress = PlainProgress() if verbose and progress is None else progress
    with thread_limit(threads), threadpool_limits(threads):  # in PyTorch, and in linear algebra
        if posteriors is not None:
            check_rows("probs", posteriors, given)
            judged = given_judgement(restricted(posteriors[judged_rows], common), codes)
            if note := in_sample(judged.probs[labelled], codes[labelled]):
                warnings.warn(note.text, stacklevel=2)
                notes.append(note)
        else:
            encoded = encode_features(features, types, progress, text_encoder)
            columns = encoded.columns
            check_rows("features", encoded.x, given)
            # All features are copied only if some classes are left out; there may be gigabytes of them.
            x = encoded.x if judged_rows.all() else encoded.x[judged_rows]
            models = resolve_models("auto" if model is None else model, x[: labelled.sum()], len(common))
            judged = judge(
                models, x, codes, len(common), folds=folds, random_state=seed, threads=threads, progress=progress
            )
            flat = np.ascontiguousarray(x).reshape(len(x), -1)
            copies = float((first_copies(flat) != np.arange(len(x))).mean())
            rows, points = embed(flat, np.flatnonzero(labelled), seed)
            embedding = np.flatnonzero(audited[given.codes >= 0])[np.cumsum(labelled)[rows] - 1], points
        announce("estimating the noise", progress)
        probs, codes = (judged.probs, codes) if labelled.all() else (judged.probs[labelled], codes[labelled])
        audited_weights = None if weights is None else weights[audited]
        inference = infer(
            probs,
            codes,
            level=level,
            random_state=seed,
            unlabelled=judged.probs[~labelled],
            weights=audited_weights,
        )
        rates = [noise_rates(part[labelled], codes, seed, audited_weights) for part in judged.repeated]
    provenance = {
        "model": ", ".join(entry.name for entry in judged.judges),
        "folds": folds if probs is None else None,
        "seed": seed,
        "reading": inference.reading,
        "seconds": round(time.perf_counter() - start, 2),
        "versions": versions(),
        "columns": list(columns),
    }
    unlabelled = np.flatnonzero(given.codes < 0)
    known, audited = given.codes >= 0, audited[given.codes >= 0]
    weights = None if weights is None else weights[known]
    given_probs = np.ones(len(audited))
    given_probs[audited] = probs[np.arange(len(codes)), codes]
    found = replace(
        _over_labels(
            Encoded(given.classes, given.codes[known]), common, audited, inference, given_probs, reading, weights
        ),
        judges=judged.judges,
        repeated_rates=np.array(rates).reshape(-1, 2) * np.average(audited, weights=weights),
        histories=judged.histories,
        embedding=embedding,
        provenance=provenance,
    )
    if progress is not None and columns:
        progress("examining columns", 0, 1)
    about = about_data(found.labels, features, np.flatnonzero(known), copies)
    found = replace(found, findings=(*notes, *about, *find(found, [first for first, _ in rates])))
    clean = np.zeros((len(unlabelled), len(given.classes)))
    clean[:, common] = inference.unlabelled
    return with_unlabelled(found, unlabelled, clean)


def _over_labels(
    given: Encoded,
    common: Labels,
    audited: Mask,
    inference: Inference,
    given_probs: Array,
    reading: str,
    weights: Array | None,
) -> Audit:
    """The audit of all labelled rows and classes; labels that were not audited are assumed to be correct."""
    N, C = len(given.codes), len(given.classes)
    skipped = given.codes[~audited]
    T = np.eye(C)
    T[np.ix_(common, common)] = inference.transition
    clean = np.zeros((N, C))
    clean[np.ix_(audited, common)] = inference.clean_probs
    clean[~audited, skipped] = 1
    chosen = choose(given.codes, clean, T, given_probs, reading, weights)
    suggested = chosen.reading.suggested.copy()
    suggested[chosen.flagged] = chosen.reading.alternatives[chosen.flagged]
    bracket = np.tile([0.0, 1.0], (C, 1))
    bracket[common] = inference.bracket
    return Audit(
        classes=given.classes,
        codes=given.codes,
        transition=chosen.transition if weights is None else with_noise_rates_of(chosen.reading.joint, T),
        joint=chosen.reading.joint,
        quality=chosen.reading.quality,
        suggested_codes=suggested,
        clean_probs=clean,
        scatter=inference.scatter,
        bracket=bracket,
        sampling=None if inference.sampling is None else over_all_classes(inference.sampling, common, C),
        rare=tuple(int(code) for code in np.setdiff1d(np.arange(C), common)),
        suspicion=chosen.suspicion,
        num_flagged=len(chosen.flagged),
        readings=chosen.readings,
        qualities=chosen.qualities,
        weights=weights,
    )
