"""Findings about annotators: who can be relied on, who cannot, and which answers are missing."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from volmin.auditing.crowd.result import CrowdResult
from volmin.auditing.findings import Finding

SPAM = 0.05
"""Annotators whose answers say less about the class, as a share of what those of a perfect one would say, are named."""

FALSE_ACCUSATIONS = 0.05
"""Expected number of annotators who are named as spammers in a crowd in which all are like the pooled T, at most."""

SWAPPED = 0.2
"""Annotators who are mostly wrong, but whose answers say at least this share about the class, confuse classes."""

DOUBT = 0.2
"""Probability that the consensus is wrong from which on an item counts as uncertain."""

GAIN = 0.05
"""Expected rise of the probability of the consensus from which on another vote is worth asking for."""

SIGNIFICANT = 0.05
"""Largest p-value at which annotators are said to differ."""

SHARED_ERRORS = 0.7
"""Below this weight of an answer, annotators err on the same items."""

MOST_NAMED = 5


def find(result: CrowdResult) -> list[Finding]:
    """All findings about a result that has none yet."""
    found = (
        _best(result),
        _comparison(result),
        _spammers(result),
        _swapped(result),
        _copies(result),
        _shared_errors(result),
        _single(result),
        _votes(result),
        _without_answers(result),
        _unanswered(result),
    )
    return [finding for finding in found if finding is not None]


def spammers(result: CrowdResult) -> list[int]:
    """Numbers of the annotators whose answers hardly depend on the class."""
    known = result.information
    # Where the pooled T holds, the mean of the likelihood ratio is one, so that it rarely exceeds a large number.
    limit = np.log(max(1, int((result.counts > 0).sum())) / FALSE_ACCUSATIONS)
    return np.flatnonzero((known.share < SPAM) & (known.doubt > limit)).tolist()


def _best(result: CrowdResult) -> Finding | None:
    given = np.flatnonzero(result.counts > 0)
    if len(given) < 2:
        return None
    rates = result.rates
    best = int(given[np.argmin(rates.high[given])])
    rivals = [int(m) for m in given if m != best and rates.low[m] <= rates.rate[best]]
    text = (
        f"{result.names[best]} is the most accurate {_one(result)}: {rates.rate[best]:.1%} of"
        f" {result.counts[best]:,} answers are wrong ({rates.low[best]:.1%} to {rates.high[best]:.1%})."
    )
    if rivals:
        text += f" {_named(result, rivals)} may be as accurate: their intervals reach as low."
    return Finding("best_annotator", text)


def _comparison(result: CrowdResult) -> Finding | None:
    test = result.comparison
    if test is None:
        return None
    p = f"p {'≤' if test.p_value <= 1 / (test.simulations + 1) else '='} {test.p_value:.2f}"
    tested = f"likelihood-ratio test with {test.simulations} simulations, {p}"
    if test.p_value <= SIGNIFICANT:
        return Finding("annotators_differ", f"The {_many(result)} differ in how they label ({tested}).")
    return Finding(
        "annotators_alike", f"The answers do not show that the {_many(result)} differ in how they label ({tested})."
    )


def _spammers(result: CrowdResult) -> Finding | None:
    found = spammers(result)
    if not found:
        return None
    what = "labels" if result.grouped else "answers"
    return Finding(
        "spammers",
        f"The {what} of {_named(result, found)} hardly depend on the class: they hold less than {SPAM:.0%} of what can"
        " be known about it. Leave them out, or ask somebody else.",
    )


def _swapped(result: CrowdResult) -> Finding | None:
    found = np.flatnonzero((result.rates.low > 0.5) & (result.information.share > SWAPPED)).tolist()
    if not found:
        return None
    confusions = next(line.confusions for line in result.profiles() if line.name == str(result.names[found[0]]))
    example = " and ".join(f"{result.classes[given]} for {result.classes[true]}" for given, true, _ in confusions)
    mistakes = f": the most frequent mistakes of {result.names[found[0]]} are {example}" if example else ""
    what = "labels" if result.grouped else "answers"
    return Finding(
        "swapped_labels",
        f"Most {what} of {_named(result, found)} are wrong, yet tell the class{mistakes}. The consensus takes this into"
        " account; check whether the names of classes were swapped.",
    )


def _copies(result: CrowdResult) -> Finding | None:
    if not result.copies:
        return None
    pairs = "; ".join(
        f"{result.names[pair.first]} and {result.names[pair.second]} give the same answer to {pair.agreement:.0%} of"
        f" {pair.shared:,} common items, where {pair.expected:.0%} are expected"
        for pair in result.copies[:MOST_NAMED]
    )
    more = f"; and {len(result.copies) - MOST_NAMED} more pairs" if len(result.copies) > MOST_NAMED else ""
    source = result.answers.source
    once = source is not None and all(source[pair.first] == source[pair.second] for pair in result.copies)
    effect = (
        "equal answers of theirs to an item count once"
        if once
        else "their answers count as independent, which makes the consensus look more certain than it is"
    )
    return Finding(
        "copied_answers",
        f"Some annotators agree more often than independent ones would: {pairs}{more}. They may copy each other or"
        f" share a source; {effect}.",
    )


def _shared_errors(result: CrowdResult) -> Finding | None:
    if result.grouped or result.fit.weight >= SHARED_ERRORS or result.answers.answers_of_items.max() <= 1:
        return None
    text = (
        f"The annotators err on the same items: another answer to an item counts {result.fit.weight:.0%} of an"
        " independent one. Mistakes that all make cannot be seen in the answers, so that more of them may be wrong; the"
        " intervals are wider for it."
    )
    if result.provenance.get("features"):
        text += " A classifier that is wrong about some items, where the features do not tell them apart, looks alike."
    return Finding("shared_errors", text)


def _single(result: CrowdResult) -> Finding | None:
    if result.answers.answers_of_items.max() > 1:
        return None
    return Finding(
        "single_answers",
        "No item has two answers, so that all estimates rest on the features. Fewer labels are wrong if no example"
        " certainly belongs to its class, or if the features do not determine it.",
    )


def _votes(result: CrowdResult) -> Finding | None:
    doubtful = int((1 - result.consensus_probability >= DOUBT).sum())
    if result.grouped or not doubtful:
        return None
    items = "1 item" if doubtful == 1 else f"{doubtful:,} items"
    text = f"The consensus of {items} has a probability of at most {1 - DOUBT:.0%}."
    useful = result.votes.gain >= GAIN
    if not useful.any():
        return Finding("another_vote", f"{text} No known annotator would settle many of them: ask somebody new.")
    numbers = np.bincount(result.votes.annotator[useful], minlength=len(result.names))
    helpful = [int(m) for m in np.argsort(-numbers, kind="stable")[:3] if numbers[m]]
    who = _listed(f"{result.names[m]} (about {numbers[m]:,})" for m in helpful)
    most = "at least " if useful.sum() == len(useful) else ""
    return Finding(
        "another_vote",
        f"{text} For {most}{int(useful.sum()):,} of all items, another vote is expected to raise it by {GAIN:.0%} or"
        f" more; most often that of {who}.",
    )


def _without_answers(result: CrowdResult) -> Finding | None:
    missing = np.flatnonzero(result.counts == 0).tolist()
    if not missing:
        return None
    return Finding(
        "annotators_without_answers",
        f"{_named(result, missing)} gave no answer, so that nothing is known about their noise rate.",
    )


def _unanswered(result: CrowdResult) -> Finding | None:
    count = int((result.answers.answers_of_items == 0).sum())
    if not count:
        return None
    items = "1 item has" if count == 1 else f"{count:,} items have"
    source = "the features" if result.provenance.get("features") else "the frequency of the classes"
    return Finding("items_without_answers", f"{items} no answer; the consensus there follows from {source} alone.")


def _named(result: CrowdResult, numbers: list[int]) -> str:
    names = [str(result.names[m]) for m in numbers[:MOST_NAMED]]
    more = len(numbers) - MOST_NAMED
    return _listed([*names, f"{more} more"] if more > 0 else names)


def _listed(parts: Iterable[str]) -> str:
    *most, last = parts
    return f"{', '.join(most)} and {last}" if most else last


def _one(result: CrowdResult) -> str:
    return "group" if result.grouped else "annotator"


def _many(result: CrowdResult) -> str:
    return _one(result) + "s"
