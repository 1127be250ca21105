"""Size and opening time of reports: ``python -m benchmarks.report [--json results/report.json]`` (needs Chromium).

The audits are put together from their parts, so that only the page is measured. The time is that from the navigation to
the first card, in headless Chromium, the median of five.
"""

from __future__ import annotations

import argparse
import platform
import shutil
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import polars as pl
from playwright.sync_api import Browser, sync_playwright

import volmin
from volmin import noise
from volmin.io.atomic import write_json

REPEATS = 5


def main() -> None:
    """Measure reports of three kinds, and print or record the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="File to record the figures in.")
    chosen = parser.parse_args()
    found = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, (audit, examples) in cases().items():
            found[name] = measure(browser, audit, examples)
            print(f"{name}: {found[name]['megabytes']:.2f} MB, {found[name]['seconds']:.2f} s")
        browser.close()
    if chosen.json:
        write_json(chosen.json, {"date": f"{datetime.now(UTC):%Y-%m-%d}", "python": platform.python_version(), **found})


def cases() -> dict[str, tuple[volmin.Audit, Any]]:
    """Audits and what their reports show, by name."""
    generator = np.random.default_rng(0)
    texts = pl.DataFrame({"text": ["a long text of many words " * 20] * 100_000})
    columns = pl.DataFrame({f"column {k}": generator.normal(size=100_000) for k in range(12)})
    images = generator.integers(0, 255, (2_000, 3, 64, 64), dtype=np.uint8)
    return {
        "100,000 rows of numbers, 10 classes": (made(10, 100_000), columns),
        "100,000 texts of 540 characters, 100 classes": (made(100, 100_000), texts),
        "2,000 images of 64 x 64 random pixels, 10 classes": (made(10, 2_000), images),
    }


def made(C: int, n: int) -> volmin.Audit:
    """An audit of n rows and C classes of which a quarter is mislabelled."""
    generator = np.random.default_rng(0)
    T = noise.asymmetric(C, 0.25, 1)
    truth = generator.integers(0, C, n)
    codes = noise.corrupt(truth, T, seed=2)
    quality = np.where(codes == truth, 0.98, 0.02)
    joint = np.zeros((C, C))
    np.add.at(joint, (codes, truth), 1 / n)
    return volmin.Audit(
        classes=np.array([f"class {k}" for k in range(C)]),
        codes=codes,
        transition=T,
        joint=joint,
        quality=quality,
        suggested_codes=truth,
        clean_probs=None,
        scatter=None,
        bracket=np.tile([0.0, 1.0], (C, 1)),
        sampling=None,
        suspicion=1 - quality,
        num_flagged=int((codes != truth).sum()),
        embedding=(np.arange(min(n, 2000)), generator.normal(size=(min(n, 2000), 2))),
        provenance={"model": "none", "reading": "exact", "seed": 0, "seconds": 0.0, "versions": {}},
    )


def measure(browser: Browser, audit: volmin.Audit, examples: Any) -> dict[str, float]:
    """Size of the report in megabytes, and median seconds until its first card is there."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.html"
        audit.to_html(path, examples=examples)
        seconds = []
        for _ in range(REPEATS):
            page = browser.new_page()
            page.goto(path.as_uri(), wait_until="load")
            page.locator("article").first.wait_for()
            seconds.append(page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd") / 1000)
            page.close()
        return {"megabytes": path.stat().st_size / 1e6, "seconds": median(seconds)}


if __name__ == "__main__":
    main()
