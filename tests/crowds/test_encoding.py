"""Matrices, long tables and groups give the same answers; what cannot be read is named."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

from volmin.crowds import encode_answers, encode_groups, several_annotators
from volmin.exceptions import InputError

NAN = float("nan")
MATRIX = [["a", None, "b"], [None, "c", "b"], ["a", "a", None]]
LONG = {
    "row": [0, 0, 1, 1, 2, 2],
    "annotator": ["x", "z", "y", "z", "x", "y"],
    "label": ["a", "b", "c", "b", "a", "a"],
}


@pytest.mark.parametrize("table", [LONG, pl.DataFrame(LONG), pd.DataFrame(LONG)])
def test_long_table_and_matrix_give_the_same_answers(table):
    found, wanted = encode_answers(table), encode_answers(MATRIX)
    assert (found.answers.matrix() == wanted.answers.matrix()).all()
    assert found.classes.tolist() == wanted.classes.tolist() == ["a", "b", "c"]
    assert found.annotators.tolist() == ["x", "y", "z"]


@pytest.mark.parametrize(
    "matrix",
    [
        np.array([[0.0, NAN], [NAN, 1.0]]),
        np.array([[0, -1], [-1, 1]]),
        np.array([[0, None], [None, 1]], dtype=object),
        pl.DataFrame({"x": [0, None], "y": [None, 1]}),
        pd.DataFrame({"x": [0, None], "y": [None, 1]}),
    ],
)
def test_every_way_to_leave_a_gap(matrix):
    found = encode_answers(matrix)
    assert found.answers.matrix().tolist() == [[0, -1], [-1, 1]]
    assert found.classes.tolist() == [0, 1]


def test_rows_without_answers_are_items():
    table = LONG | {"row": [0, 0, 1, 1, 4, 4]}
    assert encode_answers(table).answers.num_items == 5
    assert encode_answers(table, num_items=7).answers.num_items == 7


def test_names_of_items_are_kept_in_order():
    names = ["q", "q", "p", "p", "r", "r"]
    found = encode_answers({"item": names, **{key: LONG[key] for key in ("annotator", "label")}})
    assert found.items.tolist() == ["p", "q", "r"]
    assert found.answers.matrix()[0].tolist() == [-1, 2, 1]


def test_a_wide_table_is_not_long():
    assert several_annotators(pl.DataFrame({"ann": [1, 2], "bob": [2, 2], "cy": [1, 1]}))
    assert not several_annotators(np.array([0, 1, 1]))
    assert not several_annotators([("a", "b"), ("c", "d")])  # classes that are tuples


def test_other_columns_of_a_long_table_are_ignored():
    table = pd.DataFrame(LONG | {"seconds": range(6)})
    assert encode_answers(table).answers.matrix().tolist() == encode_answers(LONG).answers.matrix().tolist()


@pytest.mark.parametrize("kind", ["Int64", "Float64", "string"])
def test_missing_values_of_pandas_types_are_gaps(kind):
    values = [["1", None], ["2", "2"]] if kind == "string" else [[1, None], [2, 2]]
    found = encode_answers(pd.DataFrame(values, columns=["ann", "bob"]).astype(kind))
    assert found.answers.matrix().tolist() == [[0, -1], [1, 1]]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.zeros((2, 2, 2), int), "shape \\(2, 2, 2\\)"),
        (np.array([[np.inf, 1], [0, 1]]), "infinite"),
        (LONG | {"item": list("pprrqq")}, "column row and a column item"),
    ],
)
def test_other_shapes_and_values_are_named(labels, message):
    assert several_annotators(labels)
    with pytest.raises(InputError, match=message):
        encode_answers(labels)


def test_groups_are_annotators_of_one_item_each():
    found = encode_groups(np.array(["a", "b", "a"]), [2020, 2021, 2020])
    assert found.answers.matrix().tolist() == [[0, -1], [-1, 1], [0, -1]]
    assert found.annotators.tolist() == [2020, 2021]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"annotator": ["x", "x", "y", "z", "x", "y"]},
            "1 answers repeat an annotator and an item, the first of x",
        ),
        ({"annotator": ["x", None, "y", "z", "x", "y"]}, "row 1 has no annotator"),
        ({"row": ["p", "p", "q", "q", "r", "r"]}, "numbers of rows"),
        ({"row": [-1, 0, 1, 1, 2, 2]}, "repeat|numbers of rows|no item"),
        ({"row": [0, 0, 1, 1, 9, 9]}, "answer to row 9, but there are 3 rows"),
        ({"label": [None] * 6}, "no answer"),
    ],
)
def test_what_cannot_be_read_is_named(change, message):
    with pytest.raises(InputError, match=message):
        encode_answers(LONG | change, num_items=3)
