"""What became of many attempts of one kind."""

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
    """A line of the table: attempts of one kind, counted by how they ended.

    Attributes:
        part: faults, inputs, files, soak or devices.
        what: what was done.
        tried: how often.
        right: how often it ended in what an undisturbed run gives, or in a documented result.
        refused: how often it ended in one clear error.
        failures: what else happened; there should be nothing.
        figures: what was measured besides.
        skipped: why nothing was tried, if so.
        seconds: how long it took.
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
        """Add an attempt that was right or refused, or else failed in the way that is told."""
        self.tried += 1
        self.right += end == "right"
        self.refused += end == "refused"
        if end not in ("right", "refused"):
            self.failures.append(failure or end)

    def as_json(self) -> dict[str, Any]:
        """What the record keeps; of equal failures, one."""
        told = [f"{text} ({count} times)" for text, count in Counter(self.failures).most_common(FIRST_FAILURES)]
        kept = {key: value for key, value in vars(self).items() if key != "failures"}
        return kept | {"failed": self.failed, "failures": told, "seconds": round(self.seconds, 1)}

    @contextmanager
    def timed(self) -> Iterator[Outcome]:
        """Add the time that the block takes."""
        start = time.perf_counter()
        try:
            yield self
        finally:
            self.seconds += time.perf_counter() - start
