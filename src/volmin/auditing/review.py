"""What the report needs to state the noise rate after each decision; ``check`` explains the estimates."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import stats

from volmin._typing import Labels
from volmin.auditing import posterior
from volmin.auditing.check import FEW_DECISIONS
from volmin.auditing.reading import MODEL_ERROR
from volmin.auditing.result import AuditResult


def review_model(result: AuditResult, listed: Labels, random: int) -> dict[str, Any]:
    """The quantities that ``rate.js`` takes.

    Args:
        result: The audit.
        listed: (n,) rows on the page.
        random: Number of rows that were drawn at random.
    """
    level = result.sampling.level if result.sampling else 0.95
    by_reading = result.wrong_by_reading
    counts = np.arange(FEW_DECISIONS, max(FEW_DECISIONS, random) + 1)
    return {
        "rows": len(result),
        "level": level,
        "mean": float(np.average(1 - result.quality, weights=result.weights)),
        "sizes": None if result.weights is None else result.weights[listed].round(6).tolist(),
        "few": FEW_DECISIONS,
        "t": stats.t.ppf((1 + level) / 2, counts - 1).round(5).tolist(),
        "wrong": by_reading[listed].round(4).tolist(),
        "weights": posterior.WEIGHTS.tolist(),
        "shifts": posterior.SHIFTS.tolist(),
        "shares": posterior.shares_by_shift(by_reading, result.weights).round(5).tolist(),
        "transfer": posterior.transfer().round(6).tolist(),
        "independent": posterior.MOST_INDEPENDENT,
        "error": MODEL_ERROR,
    }
