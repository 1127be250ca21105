"""How often intervals of the noise rate contain the truth after decisions about some labels, simulated many times."""

from __future__ import annotations

from typing import Any

import numpy as np

from volmin import Audit
from volmin._typing import Labels

RANDOM = 100
"""Number of decisions about rows drawn at random."""

REPETITIONS = 50

SUSPICIOUS = (50, 100, 300)
"""Numbers of decisions about the most suspicious rows."""


def coverage(audit: Audit, clean: Labels) -> dict[str, Any]:
    """Whether the intervals after decisions contain the true noise rate, and how wide they are.

    Args:
        audit: Audit of the given labels, whose classes are 0 .. C-1.
        clean: (N,) true labels.
    """
    truth = float((audit.codes != clean).mean())

    def check(rows: Labels, sample: Any) -> dict[str, Any]:
        known = np.full(len(clean), np.nan)
        known[rows] = clean[rows]
        found = audit.check(known, sample=sample)
        low, high = found.noise_range
        return {"low": low, "high": high, "hit": low <= truth <= high, "more": found.more_decisions}

    generator = np.random.default_rng(0)
    drawn = [check(generator.permutation(len(clean))[:RANDOM], "random") for _ in range(REPETITIONS)]
    return {
        "true_noise_rate": truth,
        "before": list(audit.noise_range),
        "decisions_needed": audit.decisions_needed,
        "random": {
            "decisions": RANDOM,
            "repetitions": REPETITIONS,
            "coverage": float(np.mean([one["hit"] for one in drawn])),
            "mean_width": float(np.mean([one["high"] - one["low"] for one in drawn])),
            "mean_more": float(np.mean([one["more"] for one in drawn])),
        },
        "suspicious": [
            {"decisions": count} | check(audit.issues()[:count], "flagged")
            for count in SUSPICIOUS
            if count <= len(audit.issues())
        ],
    }
