import json

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from volmin.data import label_variants
from volmin.data.label_spelling import map_labels, merging_map, read_label_map
from volmin.data.tables import label_leaks, load_table
from volmin.exceptions import DataError


def test_spellings_of_a_label_are_grouped():
    labels = ["Yes"] * 3 + ["yes ", " YES", "No", "Café", "Cafe\u0301", "ﬁne", "fine"]
    assert label_variants(labels) == [
        [("Yes", 3), (" YES", 1), ("yes ", 1)],
        [("Cafe\u0301", 1), ("Café", 1)],
        [("fine", 1), ("ﬁne", 1)],
    ]
    assert label_variants([1, 2, 1]) == []


@given(st.lists(st.text(max_size=3), min_size=1))
def test_merged_labels_have_one_spelling_each(labels):
    merged = map_labels(np.array(labels, dtype=object), merging_map(labels))
    assert label_variants(merged) == []
    assert len(merged) == len(labels)


def test_maps_of_labels_are_read_from_json_and_csv(tmp_path):
    (tmp_path / "m.json").write_text(json.dumps({"puma": "cat", "1": "one"}))
    (tmp_path / "m.csv").write_text("from,to\npuma,cat\n1,one\n")
    for name in ("m.json", "m.csv"):
        mapping = read_label_map(tmp_path / name)
        assert map_labels(np.array(["puma", "dog"]), mapping).tolist() == ["cat", "dog"]
        assert map_labels(np.array([1, 2]), mapping).tolist() == ["one", "2"]
    for content, message in (("[1]", "one JSON object"), ("{", "not valid JSON"), ('{"a": []}', "one JSON object")):
        (tmp_path / "bad.json").write_text(content)
        with pytest.raises(DataError, match=message):
            read_label_map(tmp_path / "bad.json")
    (tmp_path / "twice.csv").write_text("from,to\na,b\na,c\n")
    with pytest.raises(DataError, match="maps a label twice"):
        read_label_map(tmp_path / "twice.csv")
    with pytest.raises(DataError, match="no map of labels"):
        read_label_map(tmp_path / "none.csv")


def test_columns_that_give_the_label_away_are_found():
    generator = np.random.default_rng(0)
    labels = generator.choice(["a", "b", "c"], 600)
    codes = np.searchsorted(["a", "b", "c"], labels)
    wrong = np.where(generator.random(600) < 0.1, generator.integers(0, 3, 600), codes)
    frame = pl.DataFrame(
        {
            "noise": generator.normal(size=600),
            "good": wrong + 0.1 * generator.normal(size=600),
            "copy": [f"group {label}" for label in labels],
            "threshold": codes + 0.1 * generator.random(600),
            "id": [f"u{row}" for row in range(600)],
        }
    )
    assert {leak.column for leak in label_leaks(frame, labels)} == {"copy", "threshold"}
    assert label_leaks(frame[:20], labels[:20]) == []


def test_rows_without_label_are_kept_apart(tmp_path):
    pl.DataFrame({"x": range(6), "y": ["a", None, "b", " ", "a", "b"]}).write_parquet(tmp_path / "t.parquet")
    table = load_table(tmp_path / "t.parquet", "y", unlabelled=True)
    assert table.rows.tolist() == [0, 2, 4, 5]
    assert table.labels.tolist() == ["a", "b", "a", "b"]
    assert table.frame.height == 6


def test_leaks_among_numbers_with_decimal_commas_and_bounds():
    generator = np.random.default_rng(0)
    values = generator.normal(5, 1, 200).round(1)
    texts = [f"<{value}".replace(".", ",") if value < 4 else f"{value} mg/l".replace(".", ",") for value in values]
    labels = np.where(values > 5, "high", "low")
    assert [leak.column for leak in label_leaks(pl.DataFrame({"crp": texts}), labels)] == ["crp"]
    assert label_leaks(pl.DataFrame({"crp": texts}), generator.permutation(labels)) == []
