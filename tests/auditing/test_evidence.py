"""Words that speak against a label."""

import numpy as np
import polars as pl
import pytest

import volmin
from volmin.auditing.evidence import COLUMN, with_words_against

WORDS = {"spam": ["win", "prize", "click", "money"], "ham": ["meeting", "lunch", "report", "thanks"]}


@pytest.fixture(scope="module")
def audited():
    generator = np.random.default_rng(0)
    truth = generator.choice(["spam", "ham"], 400)
    frame = pl.DataFrame(
        {
            "size": generator.normal(size=400),
            "text": [" ".join(generator.choice([*WORDS[label], "the", "and", "today"], 8)) for label in truth],
        }
    )
    labels = np.where(np.arange(400) % 10 == 0, np.where(truth == "spam", "ham", "spam"), truth)
    return volmin.audit(labels, features=frame, types={"text": "text"}, model="logistic", random_state=0), frame, truth


def test_words_of_the_suggested_class_are_named(audited):
    found, frame, truth = audited
    rows = found.issues()
    shown = with_words_against(found, frame, rows)
    assert shown.columns == [COLUMN, "size", "text"]
    wrong = [row for row in rows if truth[row] != found.labels[row]]
    assert len(wrong) > 30
    for row in wrong:
        named = shown[COLUMN][int(row)].split(", ")
        assert set(named) <= set(WORDS[truth[row]]) & set(frame["text"][int(row)].split())
    others = np.setdiff1d(np.arange(400), rows)
    assert not any(shown[COLUMN].gather(others))


def test_report_shows_the_words(audited, tmp_path):
    found, frame, _ = audited
    found.to_html(tmp_path / "report.html", examples=frame)
    assert COLUMN in (tmp_path / "report.html").read_text()


def test_tables_without_text_are_unchanged(audited):
    found, frame, _ = audited
    assert with_words_against(found, None, found.issues()) is None
    assert with_words_against(found, frame.select("size"), found.issues()).columns == ["size"]
