"""What every estimator may rely on, beyond what any posteriors must satisfy."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from volmin.exceptions import InputError
from volmin.validation import validate_posteriors


def checked_posteriors(probs: ArrayLike) -> NDArray[np.float64]:
    """A float64 copy of (N, C) posteriors, normalised, that can say something about T."""
    P = validate_posteriors(probs)
    if len(P) < P.shape[1]:
        raise InputError(
            f"probs has {len(P)} rows for {P.shape[1]} classes; give at least one row per class"
            " (is the array transposed?)."
        )
    if np.ptp(P, axis=0).max() < 1e-9:
        raise InputError("All rows of probs are the same and say nothing about T; give a trained model's output.")
    return P
