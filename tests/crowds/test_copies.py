"""Annotators who copy each other, and how equal answers of theirs count."""

import numpy as np
import pytest

from volmin.crowds import Answers, annotator_rates, find_copies, fit_crowd, vote_shares, with_sources


def copied(crowd, per_item, **options):
    """A crowd in which annotator 0 copies annotator 4 wherever both answer."""
    data = crowd(num_items=800, per_item=per_item, **options)
    both = (data.matrix[:, 0] >= 0) & (data.matrix[:, 4] >= 0)
    data.matrix[both, 0] = data.matrix[both, 4]
    return data


@pytest.mark.parametrize("per_item", [3, 5])
def test_copies_are_not_taken_for_the_truth(crowd, per_item):
    """Two annotators who always agree look perfect, unless their answers count once."""
    data = copied(crowd, per_item)
    given = Answers.from_matrix(data.matrix, 3)
    answers = with_sources(given)
    assert answers.source is not None
    assert answers.source.tolist() == [0, 1, 2, 3, 0]
    fit = fit_crowd(answers)
    accuracy = (fit.clean_probs.argmax(axis=1) == data.clean).mean()
    assert accuracy > (vote_shares(given).argmax(axis=1) == data.clean).mean()
    assert accuracy > (fit_crowd(given).clean_probs.argmax(axis=1) == data.clean).mean() + 0.05
    assert [(pair.first, pair.second) for pair in find_copies(answers, fit)] == [(0, 4)]
    rates, _ = annotator_rates(answers, fit)
    wrong = ((data.matrix != data.clean[:, None]) & (data.matrix >= 0)).sum(axis=0) / (data.matrix >= 0).sum(axis=0)
    assert ((rates.low <= wrong) & (wrong <= rates.high)).sum() >= 4


@pytest.mark.parametrize("seed", range(3))
def test_independent_annotators_have_sources_of_their_own(crowd, seed):
    data = crowd(num_items=800, per_item=3, seed=seed)
    assert with_sources(Answers.from_matrix(data.matrix, 3)).source is None


def test_accurate_annotators_who_agree_are_not_copies():
    generator = np.random.default_rng(0)
    clean = np.arange(600) % 3
    wrong = generator.random((600, 5)) < np.array([0.01, 0.01, 0.3, 0.4, 0.4])
    matrix = np.where(wrong, (clean[:, None] + generator.integers(1, 3, (600, 5))) % 3, clean[:, None])
    assert with_sources(Answers.from_matrix(matrix, 3)).source is None


def test_equal_answers_of_one_source_count_once():
    answers = Answers.from_matrix(np.array([[0, 0, 1], [0, 1, 1]]), 2).joined(0, 1)
    values = np.arange(1.0, 7.0)[:, None]
    assert answers.evidence(values)[:, 0].tolist() == [1.5 + 3, 4 + 5 + 6]
    assert answers.evidence_of_others(values)[:, 0].tolist() == [3, 3, 1.5, 11, 10, 9]
    assert vote_shares(answers).tolist() == [[0.5, 0.5], [1 / 3, 2 / 3]]
    assert answers.take(np.array([1])).evidence(values[3:])[:, 0].tolist() == [15]
