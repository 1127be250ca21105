"""The benchmark of several annotators measures what it says."""

import numpy as np
import pytest

pytest.importorskip("pandas")

from benchmarks.crowds import record
from benchmarks.crowds.measures import measures
from benchmarks.crowds.sets import kinds, simulated
from benchmarks.crowds.tools import Aggregate

from volmin.crowds import Answers, fit_crowd


@pytest.fixture(scope="module")
def crowd():
    return simulated(per_item=2, annotators=4, spammers=1, C=3, num_items=300, seed=0)


def test_simulated_answers_follow_the_matrices(crowd):
    assert (crowd.answers >= 0).sum(axis=1).tolist() == [2] * len(crowd.x)
    for m, T in enumerate(crowd.T):
        given = crowd.answers[:, m] >= 0
        expected = T[:, crowd.clean[given]].mean(axis=1)
        found = np.bincount(crowd.answers[given, m], minlength=3) / given.sum()
        assert np.abs(found - expected).max() < 0.12
    assert np.ptp(crowd.T[0], axis=1).max() == 0  # the spammer


def test_the_truth_measures_as_perfect(crowd):
    wrong = np.array([(crowd.answers[:, m] != crowd.clean)[crowd.answers[:, m] >= 0].mean() for m in range(4)])
    truth = Aggregate(np.eye(3)[crowd.clean], 0.0, crowd.T, wrong - 0.01, wrong + 0.01, [0, 2])
    found = measures(truth, crowd, 0)
    assert (found["consensus"], found["transition_error"], found["intervals"]) == (1, 0, [4, 4])
    assert found["spammers"] == [1, 1, 1]
    row = {"set": "made", "seed": 0, "tool": "truth", **found}
    assert record.cells([row, row])[0] == [
        "made (2)",
        "truth",
        "100.0%",
        "",
        "0.000",
        "8 of 8",
        "2 of 2, 2 others",
        "0.0",
    ]


@pytest.mark.slow
def test_volume_decides_where_the_classifier_fits_any_matrix():
    crowd = kinds(20_000, seed=0)
    assert crowd.T is not None
    answers = Answers.from_matrix(crowd.answers, 3)
    found, without = (
        np.abs(fit_crowd(answers, crowd.x, lam=lam).transitions - crowd.T).sum(axis=(1, 2)).mean() / 3
        for lam in (1e-3, 0)
    )
    assert found < 0.15
    assert without > 2 * found
