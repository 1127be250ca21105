"""What the docs say of recorded runs is what the records say."""

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_table_of_the_docs_is_made_of_the_records():
    records = [json.loads(line) for line in (ROOT / "results" / "mnist-volminnet.jsonl").read_text().splitlines()]
    page = (ROOT / "docs" / "tasks" / "experiments.md").read_text()
    rows = dict(re.findall(r"^\| (\w+:[\d.]+) \| (.*) \|$", page, re.MULTILINE))
    assert len(rows) == len(records)
    for record in records:
        result = record["result"]
        accuracy, _, error, rate = rows[record["spec"]["noise"]].split(" | ")
        assert accuracy == f"{100 * result['accuracy']:.2f} %"
        assert error == f"{result['transition_error']:.3f}"
        assert rate == f"{100 * result['noise_rate_estimate']:.1f} %"
