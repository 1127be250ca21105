"""The compared tools: each gives a posterior of the clean label of every item, and some of them matrices."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from benchmarks.crowds.sets import Crowd
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from volmin._typing import Array
from volmin.auditing import audit_crowd
from volmin.crowds import Answers, dawid_skene, fit_crowd, vote_shares
from volmin.crowds.aggregation import posteriors_given_answers

PSEUDO_COUNT = 0.01

TRUE_CLASSIFIER_STEPS = 200

MOST_ANSWERS = 7_000
"""Sets with more answers are not given to crowd-kit, which takes minutes for them."""


@dataclass(frozen=True)
class Aggregate:
    """What a tool says.

    Attributes:
        probs: (N, C) posteriors of the clean label, or degrees of belief.
        seconds: Processor time of the computation.
        T: (M, C, C) matrices; None if the tool estimates none.
        low: (M,) lower bounds of the noise rates; None without intervals.
        high: (M,) upper bounds.
        named: Numbers of the annotators that are called spammers; None if the tool names none.
    """

    probs: Array
    seconds: float
    T: Array | None = None
    low: Array | None = None
    high: Array | None = None
    named: list[int] | None = field(default=None)


def aggregates(crowd: Crowd, seed: int, known: dict[str, Aggregate]) -> Iterator[tuple[str, Aggregate]]:
    """The results of all tools that are installed and suit the crowd.

    Args:
        crowd: The answers.
        seed: Random seed.
        known: Results of an earlier seed on the same answers; those of tools without randomness are used again.
    """
    for name, tool in TOOLS.items():
        if tool not in (_volmin, _without_volume) and name in known:
            yield name, known[name]
            continue
        if not _suits(tool, crowd):
            continue
        start = time.process_time()
        try:
            found = tool(crowd, seed)
        except ImportError as missing:
            print(f"{name}: {missing.name} is not installed, skipped")
            continue
        known[name] = Aggregate(**found, seconds=time.process_time() - start)
        yield name, known[name]


def _suits(tool: Callable[[Crowd, int], dict], crowd: Crowd) -> bool:
    given = crowd.answers >= 0
    if tool in (_without_volume, _clean_labels):
        return crowd.T is not None  # measured by the error of T
    if tool is _true_classifier:
        return crowd.T is not None and crowd.posteriors is not None
    several = int(given.sum(axis=1).max()) > 1  # otherwise CROWDLAB refuses, and the others give the majority vote
    if tool in (_crowdkit_dawid_skene, _glad):
        return several and int(given.sum()) <= MOST_ANSWERS
    return several or tool is not _crowdlab


def _volmin(crowd: Crowd, seed: int) -> dict:
    from volmin.auditing.crowd.findings import spammers

    found = audit_crowd(crowd.answers, features=crowd.x, classes=np.arange(crowd.num_classes), random_state=seed)
    rates = found.rates
    return {
        "probs": found.clean_probs, "T": found.transitions, "low": rates.low, "high": rates.high,
        "named": spammers(found),
    }  # fmt: skip


def _without_volume(crowd: Crowd, seed: int) -> dict:
    fit = fit_crowd(Answers.from_matrix(crowd.answers, crowd.num_classes), crowd.x, lam=0, random_state=seed)
    return {"probs": fit.clean_probs, "T": fit.transitions}


def _clean_labels(crowd: Crowd, seed: int) -> dict:
    """T counted with the clean labels, which no tool sees: the error that remains is that of few answers."""
    answers = Answers.from_matrix(crowd.answers, crowd.num_classes)
    clean = np.eye(crowd.num_classes)[crowd.clean]
    counts = answers.per_answer(clean[answers.item]) + PSEUDO_COUNT
    return {"probs": clean, "T": counts / counts.sum(axis=1, keepdims=True)}


def _true_classifier(crowd: Crowd, seed: int) -> dict:
    """T by maximum likelihood, started at the truth, given the true posteriors of every item, which no tool sees."""
    answers, T = Answers.from_matrix(crowd.answers, crowd.num_classes), crowd.T
    probs = crowd.posteriors
    assert T is not None
    assert probs is not None
    for _ in range(TRUE_CLASSIFIER_STEPS):
        counts = answers.per_answer(posteriors_given_answers(answers, T, probs)[answers.item]) + PSEUDO_COUNT
        T = counts / counts.sum(axis=1, keepdims=True)
    return {"probs": posteriors_given_answers(answers, T, probs), "T": T}


def _majority(crowd: Crowd, seed: int) -> dict:
    return {"probs": vote_shares(Answers.from_matrix(crowd.answers, crowd.num_classes))}


def _dawid_skene(crowd: Crowd, seed: int) -> dict:
    answers = Answers.from_matrix(crowd.answers, crowd.num_classes)
    probs, T, _ = dawid_skene(answers, pseudo_count=PSEUDO_COUNT)
    return {"probs": probs, "T": T}


def _long(crowd: Crowd) -> pd.DataFrame:
    item, annotator = np.nonzero(crowd.answers >= 0)
    return pd.DataFrame({"task": item, "worker": annotator, "label": crowd.answers[item, annotator]})


def _aligned(probas: pd.DataFrame, crowd: Crowd) -> Array:
    return probas.reindex(index=range(len(crowd.x)), columns=range(crowd.num_classes)).fillna(0).to_numpy()


def _crowdkit_dawid_skene(crowd: Crowd, seed: int) -> dict:
    from crowdkit.aggregation import DawidSkene

    return {"probs": _aligned(DawidSkene(n_iter=100).fit_predict_proba(_long(crowd)), crowd)}


def _glad(crowd: Crowd, seed: int) -> dict:
    from crowdkit.aggregation import GLAD

    return {"probs": _aligned(GLAD(silent=True).fit_predict_proba(_long(crowd)), crowd)}


def _crowdlab(crowd: Crowd, seed: int) -> dict:
    from cleanlab.multiannotator import get_label_quality_multiannotator, get_majority_vote_label

    labels = pd.DataFrame(np.where(crowd.answers >= 0, crowd.answers, np.nan)).dropna(axis=1, how="all")
    voted = get_majority_vote_label(labels)
    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=1000))
    probs = cross_val_predict(model, crowd.x, voted, cv=5, method="predict_proba")
    full = np.full((len(crowd.x), crowd.num_classes), 1e-6)
    full[:, np.unique(voted)] = probs
    full /= full.sum(axis=1, keepdims=True)
    quality = get_label_quality_multiannotator(labels, full, verbose=False)["label_quality"]
    chosen = quality["consensus_label"].to_numpy().astype(int)
    return {"probs": np.eye(crowd.num_classes)[chosen]}


TOOLS: dict[str, Callable[[Crowd, int], dict]] = {
    "volmin": _volmin,
    "volmin, lam = 0": _without_volume,
    "majority vote": _majority,
    "Dawid-Skene": _dawid_skene,
    "Dawid-Skene, crowd-kit": _crowdkit_dawid_skene,
    "GLAD, crowd-kit": _glad,
    "CROWDLAB, cleanlab": _crowdlab,
    "(true classifier)": _true_classifier,
    "(clean labels)": _clean_labels,
}
