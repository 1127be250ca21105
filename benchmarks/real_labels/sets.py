"""Label sets with known true labels: files of real noise, and simulated sets.

The true labels are used only to measure, by ``measures``; no tool sees them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from sklearn.datasets import load_digits, load_wine
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from volmin import load_dataset, noise
from volmin._typing import Array, Labels

QUICK_ROWS = 2000
"""Rows that ``--quick`` keeps of each set."""


@dataclass(frozen=True)
class LabelSet:
    """Labels with the true ones, and what an auditor has besides the labels.

    Attributes:
        given: (N,) given labels in ``0 .. C-1``.
        clean: (N,) true labels.
        probs: (N, C) out-of-fold posteriors of the given label; None if a model has to be cross-fitted.
        inputs: (N, ...) inputs of the model.
        model: scikit-learn classifier, or pipeline, for ``inputs``.
        features: (N, F) features, or a table, for volmin's default audit; None if there are only posteriors.
    """

    given: Labels
    clean: Labels
    probs: Array | None = None
    inputs: Any = None
    model: Any = None
    features: Any = None

    @property
    def num_classes(self) -> int:
        """Number of classes C."""
        return int(max(self.given.max(), self.clean.max())) + 1

    def posteriors(self, seed: int) -> Array:
        """(N, C) the given posteriors, or those of 5-fold cross-fitting."""
        if self.probs is not None:
            return self.probs
        folds = StratifiedKFold(5, shuffle=True, random_state=seed)
        return cross_val_predict(self.model, self.inputs, self.given, cv=folds, method="predict_proba")

    def sample(self, rows: int) -> LabelSet:
        """A random sample of the rows."""
        if rows >= len(self.given):
            return self
        kept = np.sort(np.random.default_rng(0).permutation(len(self.given))[:rows])
        fields = ("given", "clean", "probs", "inputs", "features")
        chosen = {name: value[kept] for name in fields if (value := getattr(self, name)) is not None}
        return replace(self, **chosen)


def logistic() -> Any:
    """Strongly regularised logistic regression on standardised features."""
    return make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=1000))


def _with_features(x: Array, given: Labels, clean: Labels) -> LabelSet:
    return LabelSet(given, clean, inputs=x, model=logistic(), features=x)


@cache
def _arrays(path: Path) -> dict[str, Any]:
    with np.load(path) as content:
        return dict(content)


def _posteriors(file: str, folder: Path) -> LabelSet:
    content = _arrays(folder / file)
    probs = content["probs"].astype(np.float64)  # float16 rows do not sum to one
    probs /= probs.sum(axis=1, keepdims=True)
    return LabelSet(content["given"].astype(np.int64), content["clean"].astype(np.int64), probs=probs)


def _embeddings(labels: str, folder: Path) -> LabelSet:
    content = _arrays(folder / "embeddings-cifar10n.npz")
    given, clean = (content[name].astype(np.int64) for name in (labels, "clean_label"))
    return _with_features(content["x"].astype(np.float32), given, clean)


def _text(file: str, folder: Path) -> LabelSet:
    path = folder / file
    if not path.exists():
        raise FileNotFoundError(path)
    frame = pl.read_csv(path)
    classes = np.unique(frame["clean"].to_numpy())
    given, clean = (np.searchsorted(classes, frame[name].to_numpy()) for name in ("label", "clean"))
    texts = frame["text"].to_numpy()
    words = TfidfVectorizer(sublinear_tf=True, min_df=2, ngram_range=(1, 2))
    model = make_pipeline(words, LogisticRegression(max_iter=1000))
    return LabelSet(given, clean, inputs=texts, model=model, features=frame.select("text"))


def _noisy_digits(T: Array, block: int = 1) -> LabelSet:
    """Digits with noise T; means over ``block`` x ``block`` pixels as features."""
    x, clean = load_digits(return_X_y=True)
    side = 8 // block
    x = x.reshape(-1, side, block, side, block).mean(axis=(2, 4)).reshape(len(x), -1)
    return _with_features(x, noise.corrupt(clean, T, seed=0), clean)


def _fashion(T: Array, folder: Path) -> LabelSet:
    """The first 6,000 images of Fashion-MNIST, as 14 x 14 mean grey values, with noise T."""
    files = folder / "fashion-mnist"
    if not files.exists():
        raise FileNotFoundError(files)
    images = load_dataset("fashion_mnist", data_dir=files).train
    pixels: Array = np.asarray(images.x)[:6000]
    clean: Labels = np.asarray(images.y)[:6000].astype(np.int64)
    x = pixels.reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4)).reshape(6000, -1)
    return _with_features(x, noise.corrupt(clean, T, seed=0), clean)


def _overlapping(rows: int = 5000) -> LabelSet:
    """Two Gaussian classes, a quarter of the rows in one, that no classifier can separate; 3 % of labels are wrong."""
    generator = np.random.default_rng(0)
    clean = (generator.random(rows) < 0.25).astype(np.int64)
    x = generator.normal(size=(rows, 5))
    x[:, 0] += 2 * clean
    # With seed 0 the noise would use the numbers that drew the classes.
    return _with_features(x, noise.corrupt(clean, noise.symmetric(2, 0.03), seed=1), clean)


def _noisy_wine() -> LabelSet:
    x, clean = load_wine(return_X_y=True)
    return _with_features(x, noise.corrupt(clean, noise.symmetric(3, 0.1), seed=0), clean)


POSTERIORS = [
    f"posteriors-{kind}-{network}"
    for kind in ("cifar10n-worst", "cifar10n-aggregate", "cifar10-synthetic")
    for network in ("resnet18", "swin")
]
EMBEDDINGS = {
    "aggregate": "aggre_label",
    "random1": "random_label1",
    "random2": "random_label2",
    "random3": "random_label3",
    "worst": "worse_label",
    "clean": "clean_label",
}
Load = Callable[[Path], LabelSet]
"""Function from the folder of the files to a set; raises FileNotFoundError if its file is missing."""
SETS: dict[str, Load] = {
    **{name: partial(_posteriors, f"{name}.npz") for name in POSTERIORS},
    **{f"embeddings-cifar10n-{name}": partial(_embeddings, labels) for name, labels in EMBEDDINGS.items()},
    **{name: partial(_text, f"{name}.csv") for name in ("text-youtube", "text-trec")},
    "fashion-clean": partial(_fashion, np.eye(10)),
    "fashion-symmetric-5": partial(_fashion, noise.symmetric(10, 0.05)),
    "fashion-symmetric-20": partial(_fashion, noise.symmetric(10, 0.2)),
    "fashion-pair-20": partial(_fashion, noise.pair(10, 0.2)),
    "fashion-asymmetric-30": partial(_fashion, noise.asymmetric(10, 0.3, seed=0)),
    "made-digits-asymmetric": lambda _: _noisy_digits(noise.asymmetric(10, 0.3, seed=0)),
    "made-digits-clean": lambda _: _noisy_digits(np.eye(10)),
    "made-weak-judge": lambda _: _noisy_digits(noise.symmetric(10, 0.1), block=4),
    "made-overlapping": lambda _: _overlapping(),
    "made-wine": lambda _: _noisy_wine(),
}
FEWEST_SEEDS = {"made-wine": 10}
"""Numbers of seeds for sets whose result depends most on the folds; there the default audit is run with each."""


def chosen(starts: Sequence[str]) -> list[str]:
    """Names of the sets that begin with one of ``starts``; all sets if there are none."""
    return [name for name in SETS if not starts or name.startswith(tuple(starts))]
