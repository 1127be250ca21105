import re
from typing import Any

import numpy as np
import pytest
import torch

from volmin import losses
from volmin.exceptions import InputError
from volmin.transition import apply_transition, log_volume
from volmin.validation import as_matrix, validate_labels, validate_posteriors

LOGITS, T, Y = torch.zeros(4, 3), torch.eye(3), torch.tensor([0, 1, 2, 0])


@pytest.mark.parametrize(
    ("logits", "matrix", "y", "message"),
    [
        (None, T, Y, "logits must be a tensor, but is NoneType"),
        (LOGITS.long(), T, Y, "logits must be of a floating-point type, but is torch.int64"),
        (LOGITS[0], T, Y, "logits must have 2 dimensions, but has shape (3,)"),
        (LOGITS, T, Y.tolist(), "y must be a tensor, but is list"),
        (LOGITS, T, Y + 1, "y must lie in 0..2, but spans 1..3"),
        (LOGITS, T, Y - 1, "y must lie in 0..2, but spans -1..1"),
        (LOGITS, T, Y.float(), "y must be of the type int64, but is torch.float32"),
        (LOGITS, T, Y[:2], "y must hold a label for each of the 4 rows of logits, but has shape (2,)"),
        (LOGITS, T.tolist(), Y, "T must be a tensor, but is list"),
        (LOGITS, T[0], Y, "T must have 2 or 3 dimensions, but has shape (3,)"),
        (LOGITS, torch.eye(4), Y, "T is for 4 classes, but logits have shape (4, 3)"),
        (LOGITS, T[:2], Y, "T must be square, but has shape (2, 3)"),
        (LOGITS, T.expand(5, 3, 3), Y, "T is for 5 rows, but logits have shape (4, 3)"),
    ],
)
@pytest.mark.parametrize("loss", [losses.forward_nll, losses.backward_nll, losses.importance, losses.revised_nll])
def test_losses_name_the_invalid_argument(loss: Any, logits: Any, matrix: Any, y: Any, message: str):
    with pytest.raises(InputError, match=re.escape(message)):
        loss(logits, matrix, y)


def test_matrix_functions_name_the_invalid_argument():
    rows: Any = [[1.0]]
    with pytest.raises(InputError, match="T holds NaN"):
        losses.backward_nll(LOGITS, torch.full((3, 3), torch.nan), Y)
    with pytest.raises(InputError, match="T must be a tensor, but is list"):
        log_volume(rows)
    with pytest.raises(InputError, match=r"T must be a matrix, but has shape \(3,\)"):
        log_volume(T[0])
    with pytest.raises(InputError, match="T and clean must be of one type"):
        apply_transition(LOGITS, T.double())
    with pytest.raises(InputError, match=r"probs \(4, 3\) and others \(3, 2\) do not fit each other"):
        losses.total_variation(LOGITS, torch.zeros(3, 2))


def test_as_matrix_copies_and_detaches():
    weights = torch.eye(2, requires_grad=True)
    matrix = as_matrix(weights)
    matrix[0, 0] = 7
    assert matrix.dtype == np.float64
    assert weights[0, 0] == 1


@pytest.mark.parametrize(
    ("probs", "message"),
    [
        ([["a", "b"]], "must be an (N, C) array of numbers"),
        ([[0.5, 0.5], [1.0]], "must be an (N, C) array of numbers"),
        (np.zeros((0, 3)), "non-empty (N, C) array of class probabilities, but has shape (0, 3)"),
        ([0.5, 0.5], "but has shape (2,)"),
        ([[1.0]], "a column for each of at least 2 classes, but has shape (1, 1)"),
        ([[0.5, 0.5], [np.nan, 1]], "NaN or infinite entries; drop or repair row 1"),
        ([[1, 0], [1, 0], [1.5, -0.5]], "negative entries, first in row 2"),
        ([[1, 0], [0.9, 0.4]], "but row 1 sums to 1.3"),
    ],
)
def test_invalid_posteriors_are_rejected_with_a_reason(probs: Any, message: str):
    with pytest.raises(InputError, match=re.escape(message)):
        validate_posteriors(probs)


def test_posteriors_are_normalised_within_the_tolerance():
    given = np.array([[0.502, 0.502], [0.3, 0.7]])
    P = validate_posteriors(torch.tensor(given))
    assert np.allclose(P, [[0.5, 0.5], [0.3, 0.7]])
    assert given[0, 0] == 0.502


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 1], "shape (3,), but have shape (2,)"),
        ([0.0, 1.0, 1.0], "must be integers, but are float64"),
        ([0, 1, 2], "must lie in 0..1, but span 0..2"),
        ([-1, 1, 0], "but span -1..1"),
    ],
)
def test_invalid_labels_are_rejected_with_a_reason(labels: Any, message: str):
    with pytest.raises(InputError, match=re.escape(message)):
        validate_labels(labels, num_rows=3, num_classes=2)


def test_labels_of_any_integer_type_become_int64():
    for labels in (torch.tensor([0, 1, 1]), np.array([0, 1, 1], np.uint8), np.array([False, True, True])):
        y = validate_labels(labels, num_rows=3, num_classes=2)
        assert y.dtype == np.int64
        assert y.tolist() == [0, 1, 1]
