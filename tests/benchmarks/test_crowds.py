"""The benchmark of several annotators measures what it says."""

import numpy as np
import pytest

pytest.importorskip("pandas")

from benchmarks.crowds import record
from benchmarks.crowds.measures import measures
from benchmarks.crowds.sets import kinds, simulated
from benchmarks.crowds.tools import TOOLS, Aggregate

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


def test_known_posteriors_give_the_matrices(crowd):
    """T with the true classifier lies between that of answers alone and that of the clean labels."""
    alone, known, clean = (
        measures(Aggregate(**tool(crowd, 0), seconds=0.0), crowd, 0)["transition_error"]
        for tool in (TOOLS["Dawid-Skene"], TOOLS["(true classifier)"], TOOLS["(clean labels)"])
    )
    assert clean < known < alone


def test_copied_answers_are_equal():
    crowd = simulated(per_item=3, annotators=5, spammers=0, C=3, num_items=200, seed=0, copies=True)
    both = (crowd.answers[:, 0] >= 0) & (crowd.answers[:, 4] >= 0)
    assert both.sum() > 30
    assert (crowd.answers[both, 0] == crowd.answers[both, 4]).all()


def test_record_of_a_million_answers_is_a_list():
    row = {"features": 0, "seconds": 12.4, "gigabytes": 0.8, "consensus": 0.9, "intervals": [499, 500]}
    text = record.markdown({"date": "2026-01-01", "versions": {}, "rows": [], "million": [row]})
    assert "no features: 12 processor seconds, 0.80 GB; 499 of 500 intervals" in text


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
