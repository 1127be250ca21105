import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from volmin.crowds import Answers, vote_shares
from volmin.exceptions import InputError

matrices = arrays(np.int64, st.tuples(st.integers(1, 6), st.integers(1, 5)), elements=st.integers(-1, 2))


@given(matrices)
def test_matrix_round_trip(matrix):
    answers = Answers.from_matrix(matrix, 3)
    assert (answers.matrix() == matrix).all()
    assert len(answers) == (matrix >= 0).sum()


@given(matrices)
def test_sums_over_items_and_equal_answers(matrix):
    answers = Answers.from_matrix(matrix, 3)
    values = np.arange(2 * len(answers), dtype=float).reshape(-1, 2)
    items, cells = np.zeros((len(matrix), 2)), np.zeros((matrix.shape[1], 3, 2))
    for a in range(len(answers)):
        items[answers.item[a]] += values[a]
        cells[answers.annotator[a], answers.label[a]] += values[a]
    assert np.array_equal(answers.per_item(values), items)
    assert np.array_equal(answers.per_answer(values), cells)


@given(matrices)
def test_vote_shares_are_distributions(matrix):
    shares = vote_shares(Answers.from_matrix(matrix, 3))
    assert np.allclose(shares.sum(axis=1), 1)
    row = matrix[0][matrix[0] >= 0]
    if len(row):
        assert np.allclose(shares[0], np.bincount(row, minlength=3) / len(row))


def test_take_renumbers_items():
    answers = Answers.from_matrix(np.array([[0, 1], [2, -1], [-1, 1]]), 3)
    assert (answers.take(np.array([1, 2])).matrix() == [[2, -1], [-1, 1]]).all()


def test_abstentions_are_no_votes():
    answers = Answers.from_matrix(np.array([[0, 3, 3], [1, 1, 3]]), 3, num_labels=4)
    assert (vote_shares(answers)[:2] == [[1, 0, 0], [0, 1, 0]]).all()


@pytest.mark.parametrize("matrix", [[[0, 3]], [[0, 9]]])
def test_labels_outside_the_classes_are_rejected(matrix):
    with pytest.raises(InputError, match=r"label must hold a number in 0\.\.2"):
        Answers.from_matrix(np.array(matrix), 3)


def test_fewer_labels_than_classes_are_rejected():
    with pytest.raises(InputError, match="only 2 different answers"):
        Answers.from_matrix(np.array([[0, 1]]), 3, num_labels=2)
