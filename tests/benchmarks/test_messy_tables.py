"""The tables of ``benchmarks/messy_tables``: what becomes of each column, and what the record says of the audits."""

import json
from pathlib import Path

import pytest
from benchmarks.messy_tables.tables import TABLES, table

from volmin.data.tables import TableEncoder

KINDS = {
    "churn": {
        "left out": ["customerID", "Country"],
        "boolean": ["Partner"],
        "number": ["tenure", "MonthlyCharges", "TotalCharges", "Discount"],
        "date": ["CustomerSince"],
        "category": ["Contract"],
        "text": ["note"],
    },
    "medical": {
        "left out": ["Patient-Nr", "Bemerkung"],
        "number": ["Alter", "CRP", "Hb", "Fieber", "Kosten"],
        "category": ["Geschlecht"],
        "date": ["Aufnahme"],
        "boolean": ["Raucher"],
    },
    "tickets": {
        "left out": ["ticket_id", "email"],
        "date": ["created"],
        "text": ["body"],
        "category": ["priority", "channel"],
        "number": ["satisfaction"],
    },
    "sensors": {
        "date": ["timestamp"],
        "category": ["device"],
        "left out": ["firmware"],
        "number": ["vibration", "temp", "pressure", "rpm", "phase", "flow"],
        "boolean": ["alarm"],
    },
    "catalogue": {
        "left out": ["sku", "ean", "url"],
        "text": ["title"],
        "category": ["brand"],
        "number": ["price", "weight", "rating"],
        "boolean": ["in_stock"],
        "date": ["added"],
    },
}


@pytest.mark.parametrize("name", TABLES)
def test_each_column_is_recognised(name):
    frame = table(name)
    uses = TableEncoder().fit(frame, [column for column in frame.columns if column not in ("label", "clean")]).uses
    found: dict[str, list[str]] = {}
    for use in uses:
        found.setdefault(use.kind, []).append(use.name)
    assert found == KINDS[name]


def test_recorded_ranges_contain_the_truth_and_the_page_has_them():
    page = Path("docs/tasks/messy-tables.md").read_text(encoding="utf-8")
    record = json.loads(Path("results/messy-tables.json").read_text(encoding="utf-8"))
    for name in TABLES:
        found = record[name]
        low, high = found["noise_range"]
        assert low <= found["wrong"] <= high
        assert found["most_correct"] is None or found["correct"] <= found["most_correct"]
        frame = table(name)
        assert found["wrong"] == pytest.approx((frame["label"] != frame["clean"]).mean(), abs=1e-4)
        stated = "not stated" if found["most_correct"] is None else f"at most {found['most_correct']:.1%}"
        line = f"| {name} | {found['rows']:,} | {found['wrong']:.1%} | {low:.1%} to {high:.1%} | {found['flagged']} "
        assert line + f"| {found['correct']:.1%} ({stated}) | {found['found']:.1%} |" in page
