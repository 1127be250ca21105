"""Checks of the arguments of an audit."""

from __future__ import annotations

from typing import Any

from volmin._typing import AnyArray
from volmin.auditing.labels import Encoded
from volmin.exceptions import InputError


def check_settings(folds: int, level: float, threads: int) -> None:
    """Require settings in their ranges."""
    if folds < 2:
        raise InputError(f"folds must be at least 2, so that no model predicts its training labels, but is {folds}.")
    if not 0 < level < 1:
        raise InputError(f"level must lie between 0 and 1, e.g. 0.95, but is {level}.")
    if threads < 1:
        raise InputError(f"threads must be at least 1, but is {threads}.")


def check_source(features: Any, probs: Any, model: Any) -> None:
    """Require either features or probabilities, and a model only with the former."""
    if (features is None) == (probs is None):
        raise InputError("Give either features or probs.")
    if probs is not None and not is_default(model):
        raise InputError("model is fitted to features; it has no effect with probs.")


def refuse_single_label_arguments(probs: Any, model: Any, reading: str, weights: Any, text_encoder: Any) -> None:
    """Raise an ``InputError`` if an argument is given that only audits of one label per row have."""
    given = {"probs": probs is not None, "model": not is_default(model), "reading": reading != "auto"}
    given |= {"sample_weight": weights is not None, "text_encoder": text_encoder is not None}
    for name in (name for name, is_given in given.items() if is_given):
        raise InputError(f"{name} is for one label per row without groups; audits of several take features only.")


def check_rows(name: str, rows: AnyArray, given: Encoded) -> None:
    """Require as many rows as labels."""
    if len(rows) != len(given.codes):
        raise InputError(f"{name} has {len(rows)} rows, but there are {len(given.codes)} labels.")


def is_default(model: Any) -> bool:
    """Whether no model was chosen."""
    return model is None or (isinstance(model, str) and model == "auto")
