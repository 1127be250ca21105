"""``volmin.audit``: how many labels of a data set are wrong, which ones, and how certain that is.

With features, each label gets posteriors from models that were not trained on it (``posteriors``, ``judges``). From
these one T is estimated (``inference``), and Bayes' rule gives the probability that each label is correct. With given
probabilities, only the last two steps are done.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from threadpoolctl import threadpool_limits

from volmin._typing import Numbers
from volmin.auditing import storage, text
from volmin.auditing.arguments import check_rows, check_settings, check_source, refuse_single_label_arguments
from volmin.auditing.crowd import audit_crowd
from volmin.auditing.findings import about_data, find
from volmin.auditing.inference import Inference, infer, noise_rates, with_noise_rates_of
from volmin.auditing.labels import encode
from volmin.auditing.notebook import DisplayedResult
from volmin.auditing.page import write_page
from volmin.auditing.posteriors import Posteriors, Rows, fitted_posteriors, given_posteriors
from volmin.auditing.rare import over_all_classes
from volmin.auditing.reading import choose, validate_reading
from volmin.auditing.unlabelled import with_unlabelled
from volmin.auditing.versions import versions
from volmin.auditing.weights import row_weights
from volmin.crowds import several_annotators
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
    own = None if probs is None else validate_posteriors(probs)
    given = encode(labels, classes, None if own is None else own.shape[1], unlabelled=True)
    if own is not None:
        check_rows("probs", own, given)
    rows = Rows.of(given, None if sample_weight is None else row_weights(sample_weight, given))
    progress = PlainProgress() if verbose and progress is None else progress
    with thread_limit(threads), threadpool_limits(threads):  # in PyTorch, and in linear algebra
        if own is not None:
            posteriors = given_posteriors(own, rows)
        else:
            posteriors = fitted_posteriors(
                features,
                rows,
                model=model,
                types=types,
                text_encoder=text_encoder,
                folds=folds,
                random_state=seed,
                threads=threads,
                progress=progress,
            )
        announce("estimating the noise", progress)
        inference, rates = _inferred(posteriors, rows, level, seed)
    provenance = {
        "model": ", ".join(entry.name for entry in posteriors.judgement.judges),
        "folds": folds if probs is None else None,
        "seed": seed,
        "reading": inference.reading,
        "seconds": round(time.perf_counter() - start, 2),
        "versions": versions(),
        "columns": list(posteriors.columns),
    }
    found = replace(_over_labels(posteriors, rows, inference, rates, reading), provenance=provenance)
    if posteriors.columns:
        announce("examining columns", progress)
    known = np.flatnonzero(given.codes >= 0)
    about = about_data(found.labels, features, known, posteriors.copies)
    found = replace(found, findings=[*posteriors.findings, *about, *find(found, [first for first, _ in rates])])
    unlabelled = np.flatnonzero(given.codes < 0)
    clean = np.zeros((len(unlabelled), len(given.classes)))
    clean[:, rows.common] = inference.unlabelled
    return with_unlabelled(found, unlabelled, clean)


def _inferred(
    posteriors: Posteriors, rows: Rows, level: float, seed: int
) -> tuple[Inference, list[tuple[float, float]]]:
    """Estimates from the posteriors, and the noise rates in each repetition of the cross-fitting."""
    labelled, probs = rows.codes >= 0, posteriors.judgement.probs
    # Copied only if some rows have no label; there may be gigabytes of posteriors.
    known, codes = (probs, rows.codes) if labelled.all() else (probs[labelled], rows.codes[labelled])
    weights = None if rows.weights is None else rows.weights[rows.audited]
    inference = infer(known, codes, level=level, random_state=seed, unlabelled=probs[~labelled], weights=weights)
    return inference, [noise_rates(part[labelled], codes, seed, weights) for part in posteriors.judgement.repeated]


def _over_labels(
    posteriors: Posteriors, rows: Rows, inference: Inference, rates: Sequence[tuple[float, float]], reading: str
) -> Audit:
    """The audit of all labelled rows and classes; labels that were not audited are assumed to be correct."""
    known, labelled = rows.given.codes >= 0, rows.codes >= 0
    classes, codes, common, audited = rows.given.classes, rows.given.codes[known], rows.common, rows.audited[known]
    weights = None if rows.weights is None else rows.weights[known]
    N, C = len(codes), len(classes)
    given_probs = np.ones(N)
    given_probs[audited] = posteriors.judgement.probs[np.flatnonzero(labelled), rows.codes[labelled]]
    T = np.eye(C)
    T[np.ix_(common, common)] = inference.transition
    clean = np.zeros((N, C))
    clean[np.ix_(audited, common)] = inference.clean_probs
    clean[~audited, codes[~audited]] = 1
    chosen = choose(codes, clean, T, given_probs, reading, weights)
    suggested = chosen.reading.suggested.copy()
    suggested[chosen.flagged] = chosen.reading.alternatives[chosen.flagged]
    bracket = np.tile([0.0, 1.0], (C, 1))
    bracket[common] = inference.bracket
    return Audit(
        classes=classes,
        codes=codes,
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
        judges=posteriors.judgement.judges,
        repeated_rates=np.array(rates).reshape(-1, 2) * np.average(audited, weights=weights),
        histories=posteriors.judgement.histories,
        embedding=posteriors.embedding,
        weights=weights,
    )
