"""The HTML report of an audit of several annotators: the content that ``volmin.report`` renders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from volmin._typing import Labels
from volmin.auditing.crowd import text
from volmin.auditing.crowd.findings import DOUBT
from volmin.auditing.crowd.result import CrowdResult
from volmin.auditing.page import shown_examples
from volmin.report.crowd_page import AnnotatorLine, CrowdPage, ItemLine, write_crowd_report

MOST_ITEMS = 200
"""Number of items that the page shows, those with the least certain consensus."""

MOST_MATRICES = 12
"""Number of annotators whose matrix the page shows, those with the most answers."""


def write_page(result: CrowdResult, path: Path, examples: Any) -> None:
    """Write the report; the arguments are those of ``CrowdAudit.to_html``."""
    items = np.argsort(result.consensus_probability, kind="stable")[:MOST_ITEMS]
    shown = shown_examples(examples, items, len(result))
    low, high = result.noise_range
    matrices = np.argsort(-result.counts, kind="stable")[:MOST_MATRICES]
    page = CrowdPage(
        title=result.provenance.get("title", "Labels of several groups" if result.grouped else "Several annotators"),
        headline=text.headline(result),
        grouped=result.grouped,
        findings=[(finding.code, finding.text) for finding in result.findings],
        classes=[str(name) for name in result.classes],
        num_items=len(result),
        num_answers=len(result.answers),
        noise_rate=result.noise_rate,
        noise_range=(low, high),
        level=result.level,
        uncertain=int((1 - result.consensus_probability >= DOUBT).sum()),
        certain=1 - DOUBT,
        annotators=[
            AnnotatorLine(
                profile.name,
                profile.answers,
                profile.agreement,
                profile.noise_rate,
                profile.low,
                profile.high,
                text.confusions(result, profile),
            )
            for profile in result.profiles()
        ],
        pooled=result.fit.pooled,
        matrices=[(str(result.names[m]), result.transitions[m]) for m in matrices if result.counts[m]],
        items=_items(result, items[: len(shown)]),
        examples=shown,
        provenance=result.provenance,
    )
    write_crowd_report(path, page)


def _items(result: CrowdResult, items: Labels) -> list[ItemLine]:
    answers, votes = result.answers, result.votes
    given = answers.take(np.sort(items))
    place = dict(zip(np.sort(items).tolist(), range(len(items)), strict=True))
    ask = dict(zip(votes.item.tolist(), votes.annotator.tolist(), strict=True))
    of_item: list[list[tuple[str, str, bool]]] = [[] for _ in items]
    codes = result.consensus_codes[np.sort(items)]
    for item, annotator, label in zip(given.item, given.annotator, given.label, strict=True):
        vote = (str(result.names[annotator]), str(result.classes[label]), bool(label == codes[item]))
        of_item[item].append(vote)
    return [
        ItemLine(
            name=str(result.items[item]),
            consensus=str(result.consensus[item]),
            probability=float(result.consensus_probability[item]),
            votes=of_item[place[item]],
            ask=str(result.names[ask[item]]) if ask.get(item, -1) >= 0 and not result.grouped else "",
        )
        for item in items.tolist()
    ]
