"""Columns that give the label away."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from volmin._typing import AnyArray, Labels
from volmin.data.tables.columns import as_numbers
from volmin.data.tables.parsing import parse_numbers

LEAK = 0.95
"""A column gives the label away if it alone removes this share of the errors of guessing the most frequent label."""

MOST_ROWS = 20_000
"""Number of rows, drawn at random, on which columns are examined."""

FEWEST_ROWS = 50


@dataclass(frozen=True)
class LabelLeak:
    """A column that predicts the given label nearly perfectly by itself.

    Attributes:
        column: Name of the column.
        accuracy: Share of held-out labels that the column alone predicts.
        guessing: Share of the most frequent label.
    """

    column: str
    accuracy: float
    guessing: float


def label_leaks(frame: pl.DataFrame, labels: Any) -> list[LabelLeak]:
    """Columns that predict the given labels better than any measured property could if labels may be wrong.

    Such a column was usually derived from the label, or the label from it, and hides wrong labels.

    Args:
        frame: Feature columns.
        labels: (N,) given labels.
    """
    _, codes = np.unique(np.asarray(labels), return_inverse=True)
    if len(codes) < FEWEST_ROWS:
        return []
    if len(codes) > MOST_ROWS:
        rows = np.sort(np.random.default_rng(0).permutation(len(codes))[:MOST_ROWS])
        frame, codes = frame[rows.tolist()], codes[rows]
    guessing = float(np.bincount(codes).max() / len(codes))
    found = [LabelLeak(column.name, _accuracy(column, codes), guessing) for column in frame]
    leaks = [leak for leak in found if leak.accuracy - guessing >= LEAK * (1 - guessing)]
    return sorted(leaks, key=lambda leak: -leak.accuracy)


def _accuracy(column: pl.Series, codes: Labels) -> float:
    """Accuracy of predicting each label from the other rows by this column alone."""
    dtype = column.dtype
    if dtype.is_nested() or dtype in (pl.Object, pl.Binary):
        return 0.0
    by_value = _accuracy_by_value(column, codes)
    if dtype in (pl.Categorical, pl.Enum):
        return by_value
    if dtype == pl.String:
        parsed = parse_numbers(column)
        if parsed.share < 0.9:
            return by_value
        column = parsed.values
    return max(by_value, _accuracy_by_thresholds(as_numbers(column), codes))


def _accuracy_by_value(column: pl.Series, codes: Labels) -> float:
    """Each label is predicted by the most frequent one among the other rows with the same value."""
    _, values = np.unique(column.cast(pl.String).fill_null("").to_numpy().astype(str), return_inverse=True)
    counts = np.zeros((values.max() + 1, codes.max() + 1))
    np.add.at(counts, (values, codes), 1)
    others = counts[values]
    others[np.arange(len(codes)), codes] -= 1
    # A value that occurs once predicts nothing.
    return float(((others.argmax(axis=1) == codes) & (others.max(axis=1) > 0)).mean())


def _accuracy_by_thresholds(values: AnyArray, codes: Labels) -> float:
    # Imported here, since importing scikit-learn takes longer than many trainings, which examine no columns.
    from sklearn.model_selection import StratifiedKFold, cross_val_predict
    from sklearn.tree import DecisionTreeClassifier

    if np.bincount(codes).min() < 2:
        kept = np.bincount(codes)[codes] >= 2
        values, codes = values[kept], codes[kept]
    tree = DecisionTreeClassifier(max_leaf_nodes=4 * (int(codes.max()) + 1), min_samples_leaf=2, random_state=0)
    folds = StratifiedKFold(2, shuffle=True, random_state=0)
    predicted = cross_val_predict(tree, np.nan_to_num(values, nan=-1e30)[:, None].clip(-1e30, 1e30), codes, cv=folds)
    return float(np.mean(predicted == codes))
