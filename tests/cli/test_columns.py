"""Tables as people have them, from the command line: no column is lost without a word."""

import json

import numpy as np
import polars as pl
import pytest

from volmin.cli.columns import column_types
from volmin.exceptions import InputError

WORDS = {
    "yes": ["slow", "support", "waiting", "cancel", "expensive", "outage", "billing", "dispute", "angry"],
    "no": ["happy", "great", "fast", "reliable", "recommend", "thanks", "good", "value", "friendly"],
}


def churn_table(rows=600, seed=0):
    """A table with numbers, dates and truth values as people write them, a note, and 10 % wrong labels."""
    generator = np.random.default_rng(seed)
    truth = generator.choice(["yes", "no"], rows)
    other = np.where(truth == "yes", "no", "yes")
    charge = generator.lognormal(6, 0.4, rows) * np.where(truth == "yes", 1.5, 1)
    days = pl.Series(np.datetime64("2020-01-01") + generator.integers(0, 1500, rows))
    tenure = generator.poisson(30, rows).astype(str)
    tenure[generator.random(rows) < 0.03] = "unknown"
    fillers = ["the", "service", "is", "a", "and", "my", "router"]
    return pl.DataFrame(
        {
            "customer": [f"C{row:05d}" for row in range(rows)],
            "charge": [f"{amount:,.2f}" for amount in charge],
            "signup": days.dt.strftime("%d/%m/%Y"),
            "tenure": tenure,
            "autopay": generator.choice(["Yes", "No"], rows),
            "country": ["US"] * rows,
            "note": [" ".join(generator.choice(WORDS[label] + fillers, 8)) for label in truth],
            "churn": np.where(generator.random(rows) < 0.1, other, truth),
            "truth": truth,
        }
    )


def test_each_columns_use_is_printed_and_stored(command, tmp_path):
    frame = churn_table()
    frame.write_csv(tmp_path / "churn.csv")
    audit = ("audit", tmp_path / "churn.csv", "--label", "churn", "--clean", "truth", "--model", "logistic")
    code, shown, err = command(*audit, "--types", "autopay=ignore", "--out", tmp_path / "audit")
    assert (code, err) == (0, "")
    for name, kind, note in (
        ("customer", "left out", "identifies rows: 600 different values"),
        ("charge", "number", "read from text such as"),
        ("signup", "date", "day/month/year"),
        ("tenure", "number", "% missing"),
        ("autopay", "left out", "as asked"),
        ("country", "left out", "constant"),
        ("note", "text", "TF-IDF of"),
    ):
        line = next(line for line in shown.splitlines() if line.strip().startswith(name))
        assert kind in line
        assert note in line
    content = json.loads((tmp_path / "audit" / "audit.json").read_text())
    assert [use["name"] for use in content["provenance"]["columns"]] == frame.columns[:7]
    assert "identifies rows: 600 different values" in (tmp_path / "audit" / "report.html").read_text()
    low, high = content["noise_range"]
    wrong = (frame["churn"] != frame["truth"]).to_numpy()
    assert low <= wrong.mean() <= high
    flagged = pl.read_csv(tmp_path / "audit" / "issues.csv")["row"].to_numpy()
    assert wrong[flagged].mean() > 0.85


def test_options_for_types():
    assert column_types(["a=number", "b=c=text"], ["d"]) == {"a": "number", "b=c": "text", "d": "text"}
    for bad in ("a", "=text"):
        with pytest.raises(InputError, match="takes COLUMN=TYPE"):
            column_types([bad], None)


def test_unknown_types_are_refused_in_one_line(command, tmp_path):
    churn_table(60).write_csv(tmp_path / "churn.csv")
    for option, message in (
        (["--types", "note=prose"], "must be one of number"),
        (["--text", "remark"], "no column 'remark'"),
    ):
        code, out, err = command("audit", tmp_path / "churn.csv", "--label", "churn", *option)
        assert (code, out) == (2, "")
        assert message in err
        assert len(err.strip().splitlines()) == 1
