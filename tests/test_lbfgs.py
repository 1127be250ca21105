import numpy as np
import pytest
import torch

from volmin.lbfgs import minimise_rows

SCALE = torch.tensor([1.0, 10.0, 100.0], dtype=torch.float64)
START = torch.tensor([[-1.2, 1.0], [0.0, 0.0], [2.0, 2.0]], dtype=torch.float64)


def rosenbrock(p, scale=SCALE):
    return (1 - p[:, 0]) ** 2 + scale * (p[:, 1] - p[:, 0] ** 2) ** 2


def test_each_row_reaches_its_own_minimum():
    np.testing.assert_allclose(minimise_rows(rosenbrock, START, 500), 1, atol=1e-4)


@pytest.mark.parametrize("row", range(3))
def test_rows_do_not_influence_each_other(row):
    alone = minimise_rows(lambda p: rosenbrock(p, SCALE[row]), START[row : row + 1], 5)
    np.testing.assert_allclose(alone[0], minimise_rows(rosenbrock, START, 5)[row], atol=1e-9)


def test_start_at_the_minimum_is_returned():
    ones = torch.ones(3, 2, dtype=torch.float64)
    np.testing.assert_array_equal(minimise_rows(rosenbrock, ones, 10), ones)
