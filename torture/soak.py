"""Size and time: audits of growing numbers of rows and classes, and many trainings in one process."""

from __future__ import annotations

import resource
import time
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

import volmin
from torture.outcome import Outcome
from torture.processes import ProcessDiedError, in_a_process
from volmin import noise

SIZES = ((1_000, 2), (10_000, 10), (100_000, 10), (1_000_000, 2), (1_000_000, 10), (5_000, 100), (10_000, 1000))
"""Numbers of rows and classes of the audits."""
MOST_SECONDS = 900.0
MOST_GROWTH = 1.5
"""How much faster than the number of rows the memory may grow, between two sizes with as many classes."""
FITS, FIRST_FITS, MOST_LEAKED = 50, 10, 20.0
"""Trainings in one process, the number that may fill caches, and the megabytes that the others may keep."""


def simulated(rows: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Noisy labels, and noisy posteriors with Gaussian errors of their logarithms."""
    generator = np.random.default_rng(0)
    clean = generator.dirichlet(np.full(classes, max(0.02, 1 / classes)), rows)
    truth = (generator.random((rows, 1)) > clean.cumsum(axis=1)[:, :-1]).sum(axis=1)
    T = noise.asymmetric(classes, 0.3, seed=0)
    probs = clean @ T.T * np.exp(0.2 * generator.normal(size=clean.shape))
    return noise.corrupt(truth, T, seed=0), probs / probs.sum(axis=1, keepdims=True)


def audit_figures(rows: int, classes: int) -> dict[str, Any]:
    """Seconds and megabytes of an audit of given probabilities, without the memory of its input."""
    warnings.simplefilter("ignore")
    labels, probs = simulated(rows, classes)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    start = time.process_time()
    found = volmin.audit(labels, probs=probs, random_state=0)
    seconds = time.process_time() - start
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sound = bool(np.isfinite(found.quality).all() and np.allclose(found.transition.sum(axis=0), 1, atol=1e-6))
    figures = {"rows": rows, "classes": classes, "cpu_seconds": round(seconds, 1), "megabytes": round(after - before)}
    return figures | {"input_megabytes": round(probs.nbytes / 2**20), "noise_rate": found.noise_rate, "sound": sound}


def audits(sizes: tuple[tuple[int, int], ...] = SIZES) -> list[Outcome]:
    """Audits of simulated data with 30 % noise, each in a new process."""
    outcomes = []
    for rows, classes in sizes:
        outcome = Outcome("soak", f"audit of {rows:,} rows in {classes} classes")
        with outcome.timed():
            try:
                figures = in_a_process(audit_figures, rows, classes, seconds=MOST_SECONDS)
                outcome.figures = figures
                outcome.count("right" if figures["sound"] else "failed", "the result is not a transition matrix")
            except ProcessDiedError as error:
                outcome.count("failed", str(error))
        outcomes.append(outcome)
    return outcomes


def growth(outcomes: list[Outcome]) -> Outcome:
    """Whether memory grows no faster than the number of rows, for audits with as many classes."""
    outcome = Outcome("soak", "memory of audits grows with the rows")
    known = [one.figures for one in outcomes if "megabytes" in one.figures and one.figures["rows"] >= 10_000]
    for classes in {figures["classes"] for figures in known}:
        same = sorted((f for f in known if f["classes"] == classes), key=lambda f: f["rows"])
        for smaller, larger in pairwise(same):
            ratio = larger["rows"] / smaller["rows"]
            grown = larger["megabytes"] / max(smaller["megabytes"], 50)
            text = f"{grown:.1f} times the memory for {ratio:g} times the rows of {classes} classes"
            outcome.count("right" if grown <= MOST_GROWTH * ratio else "failed", text)
            outcome.figures[text] = True
    return outcome


def leaked_megabytes(fits: int = FITS, first: int = FIRST_FITS) -> float:
    """Megabytes that trainings keep, after the first have filled the caches."""
    torch.set_num_threads(1)
    x = np.random.default_rng(0).normal(size=(500, 20))
    y = (x[:, 0] > 0).astype(int) + (x[:, 1] > 0)
    sizes = []
    for number in range(fits):
        volmin.NoisyLabelClassifier(epochs=3, random_state=number, device="cpu").fit(x, y).predict(x)
        sizes.append(int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20)
    return sizes[-1] - sizes[first - 1]


def leaks(fits: int = FITS, first: int = FIRST_FITS) -> Outcome:
    """Many trainings in one process, which must not keep memory."""
    outcome = Outcome("soak", f"{fits} trainings in one process")
    with outcome.timed():
        try:
            grown = in_a_process(leaked_megabytes, fits, first, seconds=MOST_SECONDS)
            outcome.figures = {"megabytes_after_the_first": round(grown, 1), "first": first}
            outcome.count("right" if grown < MOST_LEAKED else "failed", f"{grown:.0f} MB were kept")
        except ProcessDiedError as error:
            outcome.count("failed", str(error))
    return outcome


def run() -> list[Outcome]:
    """All audits, the growth of their memory, and the trainings."""
    outcomes = audits()
    return [*outcomes, growth(outcomes), leaks()]
