"""The outcomes of many attempts of one kind."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

FIRST_FAILURES = 5


@dataclass
class Outcome:
    """Attempts of one kind, counted by how they ended: a line of the table.

    Attributes:
        part: Name of the part: faults, inputs, files, soak or devices.
        what: Description of the attempts.
        tried: Number of attempts.
        right: Number that ended like an undisturbed run, or in a documented result.
        refused: Number that ended in one clear error.
        failures: Descriptions of all other ends; there should be none.
        figures: Further measurements.
        skipped: Reason why nothing was tried, if so.
        seconds: Total duration.
    """

    part: str
    what: str
    tried: int = 0
    right: int = 0
    refused: int = 0
    failures: list[str] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    skipped: str = ""
    seconds: float = 0.0

    @property
    def failed(self) -> int:
        return self.tried - self.right - self.refused

    def count(self, end: str, failure: str = "") -> None:
        """Count an attempt by its end: ``right``, ``refused``, or anything else with a description of the failure."""
        self.tried += 1
        self.right += end == "right"
        self.refused += end == "refused"
        if end not in ("right", "refused"):
            self.failures.append(failure or end)

    def as_json(self) -> dict[str, Any]:
        """The content of the record; equal failures are counted, not repeated."""
        failures = [f"{text} ({count} times)" for text, count in Counter(self.failures).most_common(FIRST_FAILURES)]
        kept = {key: value for key, value in vars(self).items() if key != "failures"}
        return kept | {"failed": self.failed, "failures": failures, "seconds": round(self.seconds, 1)}

    @contextmanager
    def timed(self) -> Iterator[Outcome]:
        """Add the duration of a block."""
        start = time.perf_counter()
        try:
            yield self
        finally:
            self.seconds += time.perf_counter() - start
