"""Accuracy on clean test labels, calibration and time of learners that are trained on noisy labels.

``python -m benchmarks.learners --data-dir DIR [--encoder DIR] --json results/learners.json``

The noise of embeddings and texts was made by people and by labelling rules; that of the tables is symmetric, 25 %. The
true labels of the training rows are read for simulated noise of embeddings only: the learner ``clean labels`` is
trained on them, and they choose the penalty of the one that is told T.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from benchmarks.given_transition import GivenTransition
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from volmin import NoisyLabelClassifier, noise
from volmin._typing import Array, Labels
from volmin.auditing.audit import versions
from volmin.data.embeddings import sentence_encoder
from volmin.exceptions import InputError
from volmin.io.atomic import read_json, write_json

BINS = 15
"""Bins of equal width of the expected calibration error."""


@dataclass(frozen=True)
class Sources:
    """Folders of the files of real noise, and of a model of sentence-transformers, if there is one."""

    folder: Path
    encoder: Path | None = None


@dataclass(frozen=True)
class Split:
    """Rows to train on with noisy labels, and test rows with true ones.

    Attributes:
        x: (N, D) training rows, dense or sparse.
        given: (N,) noisy labels.
        clean: (N,) true labels of the training rows, for the learner that is told them.
        x_test: (M, D) test rows.
        y_test: (M,) their true labels.
        T: (C, C) transition matrix of simulated noise.
    """

    x: Any
    given: Labels
    clean: Labels
    x_test: Any
    y_test: Labels
    T: Array | None = None


@cache
def _arrays(path: Path) -> dict[str, Any]:
    with np.load(path) as content:
        return dict(content)


def _embeddings(labels: str | float, sources: Sources, seed: int) -> Split:
    """Embeddings with people's labels, by the name of the array, or with symmetric noise of a rate."""
    content = _arrays(sources.folder / "embeddings-cifar10n.npz")
    clean, y_test = (content[name].astype(np.int64) for name in ("clean_label", "y_test"))
    x, x_test = (content[name].astype(np.float32) for name in ("x", "x_test"))
    if isinstance(labels, str):
        return Split(x, content[labels].astype(np.int64), clean, x_test, y_test)
    T = noise.symmetric(10, labels)
    return Split(x, noise.corrupt(clean, T, seed), clean, x_test, y_test, T)


def _texts(file: str, sources: Sources, seed: int) -> tuple[Array, Split]:
    """The texts, and their split, 30 % for tests, in which rows are numbers of texts."""
    path = sources.folder / file
    if not path.exists():
        raise FileNotFoundError(2, "missing", str(path))
    frame = pl.read_csv(path)
    classes = np.unique(frame["clean"].to_numpy())
    given, clean = (np.searchsorted(classes, frame[name].to_numpy()) for name in ("label", "clean"))
    train, test = map(np.asarray, train_test_split(np.arange(len(frame)), test_size=0.3, random_state=seed))
    return frame["text"].to_numpy(), Split(train, given[train], clean[train], test, clean[test])


def _words(file: str, sources: Sources, seed: int) -> Split:
    """TF-IDF of words and pairs of words."""
    texts, split = _texts(file, sources, seed)
    words = TfidfVectorizer(sublinear_tf=True, min_df=2, ngram_range=(1, 2))
    return replace(split, x=words.fit_transform(texts[split.x]), x_test=words.transform(texts[split.x_test]))


def _sentences(file: str, sources: Sources, seed: int) -> Split:
    """Embeddings of whole texts."""
    if sources.encoder is None:
        raise FileNotFoundError(2, "missing", "a model of sentence-transformers (--encoder)")
    texts, split = _texts(file, sources, seed)
    rows = _encoded(tuple(texts), sources.encoder)
    return replace(split, x=rows[split.x], x_test=rows[split.x_test])


@cache
def _encoded(texts: tuple[str, ...], encoder: Path) -> NDArray[np.float32]:
    return sentence_encoder(encoder).texts(texts)


def _table(load: Callable[..., Any], sources: Sources, seed: int) -> Split:
    """A table of scikit-learn with symmetric noise of 25 %; 30 % of the rows are test data."""
    x, y = load(return_X_y=True)
    x, x_test, y, y_test = train_test_split(x, y, test_size=0.3, stratify=y, random_state=seed)
    return Split(x, noise.corrupt(y, noise.symmetric(len(set(y)), 0.25), seed), y, x_test, y_test)


SETS: dict[str, Callable[[Sources, int], Split]] = {
    "embeddings, people, 9 %": partial(_embeddings, "aggre_label"),
    "embeddings, people, 17 %": partial(_embeddings, "random_label1"),
    "embeddings, people, 40 %": partial(_embeddings, "worse_label"),
    "spam, rules": partial(_words, "text-youtube.csv"),
    "spam, rules, sentences": partial(_sentences, "text-youtube.csv"),
    "questions, rules": partial(_words, "text-trec.csv"),
    "questions, rules, sentences": partial(_sentences, "text-trec.csv"),
    "digits, symmetric, 25 %": partial(_table, load_digits),
    "wine, symmetric, 25 %": partial(_table, load_wine),
    "breast cancer, symmetric, 25 %": partial(_table, load_breast_cancer),
    "embeddings, symmetric, 50 %": partial(_embeddings, 0.5),
    "embeddings, symmetric, 80 %": partial(_embeddings, 0.8),
}
CLEAN, GIVEN_T = "clean labels", "softmax regression, told T"
WITH_CLEAN_LABELS = ("embeddings, symmetric, 50 %", "embeddings, symmetric, 80 %")
"""Sets on which volmin is compared with itself on true labels, and with a head that is told T, not with rivals."""


def rivals(sparse: bool, seed: int) -> dict[str, Any]:
    """The learners beside volmin, on standardised features, or on TF-IDF as it is."""
    from cleanlab.classification import CleanLearning

    def logistic(penalty: float) -> Any:
        return LogisticRegression(C=penalty, max_iter=1000)

    def scaled(model: Any) -> Any:
        return model if sparse else make_pipeline(StandardScaler(), model)

    return {
        "logistic regression, C = 1": scaled(logistic(1)),
        "logistic regression, C = 0.01": scaled(logistic(0.01)),
        "MLPClassifier": scaled(MLPClassifier(random_state=seed)),
        "CleanLearning, C = 1": CleanLearning(scaled(logistic(1)), seed=seed),
        "CleanLearning, C = 0.01": CleanLearning(scaled(logistic(0.01)), seed=seed),
    }


def measure(name: str, split: Split, seed: int, rivals_too: bool = True) -> list[dict[str, Any]]:
    """Test accuracy, calibration error and processor seconds of each learner."""
    volmin = {"volmin": NoisyLabelClassifier(random_state=seed)}
    if split.T is not None:
        learners = volmin | {CLEAN: NoisyLabelClassifier(random_state=seed), GIVEN_T: GivenTransition(split.T)}
    else:
        learners = volmin | (rivals(issparse(split.x), seed) if rivals_too else {})
    rows = []
    for learner, model in learners.items():
        start = time.process_time()
        told = {CLEAN: (split.clean,), GIVEN_T: (split.given, split.clean)}
        model.fit(split.x, *told.get(learner, (split.given,)))
        seconds = time.process_time() - start
        probs = model.predict_proba(split.x_test)
        rows.append(
            {
                "set": name,
                "learner": learner,
                "seed": seed,
                "accuracy": float((probs.argmax(axis=1) == split.y_test).mean()),
                "calibration_error": calibration_error(probs, split.y_test),
                "seconds": seconds,
            }
        )
    return rows


def calibration_error(probs: Array, labels: Labels) -> float:
    """Mean distance between confidence and accuracy, over bins of the confidence of the most probable class."""
    confidence, hit = probs.max(axis=1), probs.argmax(axis=1) == labels
    place = np.minimum((confidence * BINS).astype(int), BINS - 1)
    return float(np.abs(np.bincount(place, hit - confidence, BINS)).sum() / len(labels))


def means(rows: Iterable[Mapping[str, Any]], key: str) -> dict[str, dict[str, float]]:
    """The mean of a measure over the seeds, by set and learner."""
    groups: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        groups.setdefault(row["set"], {}).setdefault(row["learner"], []).append(row[key])
    return {name: {learner: float(np.mean(v)) for learner, v in own.items()} for name, own in groups.items()}


TABLES = {
    "accuracy": ("Accuracy on clean test labels, %", lambda value: f"{100 * value:.1f}"),
    "calibration_error": ("Expected calibration error, %", lambda value: f"{100 * value:.1f}"),
    "seconds": ("Processor seconds of training, one thread", lambda value: f"{value:.2f}"),
}


def markdown(record: Mapping[str, Any]) -> str:
    """The record for the documentation: a table for each measure, and one of the sets with simulated heavy noise."""
    found = record["versions"]
    runs: dict[str, set[int]] = {}
    for row in record["rows"]:
        runs.setdefault(row["set"], set()).add(row["seed"])
    seeds = ", ".join(f"{name}: {len(own)}" for name, own in runs.items())
    parts = [
        f"Recorded on {record['date']} with volmin {found['volmin']}, scikit-learn {found['scikit-learn']} and "
        f"cleanlab {found['cleanlab']}; means over seeds ({seeds}).\n"
    ]
    compared = [row for row in record["rows"] if row["set"] not in WITH_CLEAN_LABELS]
    heavy = [row for row in record["rows"] if row["set"] in WITH_CLEAN_LABELS]
    for key, (title, text) in TABLES.items():
        parts += [f"### {title}\n", _table_of(means(compared, key), text)]
    if heavy:
        title, text = TABLES["accuracy"]
        parts += [f"### {title}: simulated heavy noise\n", _table_of(means(heavy, "accuracy"), text)]
    return "\n".join(parts)


def _table_of(values: Mapping[str, Mapping[str, float]], text: Callable[[float], str]) -> str:
    learners = list(dict.fromkeys(learner for own in values.values() for learner in own))
    lines = [["set", *learners], ["---", *("---:" for _ in learners)]]
    lines += [
        [name, *(text(own[learner]) if learner in own else "" for learner in learners)] for name, own in values.items()
    ]
    complete = [own for own in values.values() if len(own) == len(learners)]
    overall = {learner: float(np.mean([own[learner] for own in complete])) for learner in learners}
    lines.append(["**mean**", *(text(overall[learner]) for learner in learners)])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def write(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write the record; rows of an earlier one that were not measured again are kept."""
    run = {(row["set"], row["learner"]) for row in rows}
    earlier = read_json(path)["rows"] if path.exists() else []
    kept = [row for row in earlier if (row["set"], row["learner"]) not in run]
    order = list(SETS)
    about = {name: version(name) for name in ("cleanlab", "scikit-learn")}
    every = sorted([*rows, *kept], key=lambda row: order.index(row["set"]))
    write_json(path, {"date": date.today().isoformat(), "versions": versions() | about, "rows": every})


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learners", description=__doc__)
    parser.add_argument("--data-dir", type=Path, default=Path("real-noise"), help="folder of the files of real noise")
    parser.add_argument("--encoder", type=Path, help="folder of a model of sentence-transformers, for the texts")
    parser.add_argument("--sets", nargs="+", default=[""], metavar="NAME", help="sets whose names contain one of these")
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds of splits, noise and learners")
    parser.add_argument("--only-volmin", action="store_true", help="leave the rivals out")
    parser.add_argument("--json", type=Path, help="file for the record; what is not measured again is kept in it")
    options = parser.parse_args()
    names = [name for name in SETS if any(part in name for part in options.sets)]
    if not names:
        parser.error(f"No set has {' or '.join(options.sets)} in its name. The sets are: {'; '.join(SETS)}.")
    warnings.simplefilter("ignore")
    rows: list[dict[str, Any]] = []
    for name in names:
        own: list[dict[str, Any]] = []
        try:
            for seed in range(options.seeds):
                own += measure(
                    name, SETS[name](Sources(options.data_dir, options.encoder), seed), seed, not options.only_volmin
                )
        except FileNotFoundError as missing:
            print(f"{name}: {missing.filename} not found, skipped")
            continue
        except InputError as unavailable:
            print(f"{name}: {unavailable}; skipped")
            continue
        rows += own
        for learner in dict.fromkeys(row["learner"] for row in own):
            figures = {key: means(own, key)[name][learner] for key in TABLES}
            print(f"{name:32} {learner:30}", *(f"{key} {value:.3f}" for key, value in figures.items()), flush=True)
        if options.json:
            write(options.json, rows)


if __name__ == "__main__":
    main()
