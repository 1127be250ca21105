"""Estimates of the matrices and the consensus, against the truth of simulated crowds."""

import numpy as np
import pytest

from volmin.crowds import Answers, annotator_rates, dawid_skene, fit_crowd, vote_shares
from volmin.crowds.head import regressors


def error(T, estimate):
    """Mean over annotators of the relative L1 error."""
    return float(np.mean(np.abs(T - estimate).sum(axis=(1, 2)) / T.sum(axis=(1, 2))))


def test_dawid_skene_finds_matrices_and_labels(crowd):
    data = crowd(num_items=3000, per_item=5)
    answers = Answers.from_matrix(data.matrix, 3)
    posteriors, T, prior = dawid_skene(answers)
    assert error(data.T, T) < 0.12
    assert np.allclose(prior, posteriors.mean(axis=0))
    voted = vote_shares(answers).argmax(axis=1)
    assert (posteriors.argmax(axis=1) == data.clean).mean() > (voted == data.clean).mean()


@pytest.mark.parametrize(
    ("per_item", "independent"), [(1, False), (2, True), pytest.param(5, True, marks=pytest.mark.slow)]
)
def test_error_is_at_most_half_of_dawid_skene(crowd, per_item, independent):
    """Where the answers to an item do not determine its label, features and volume do."""
    data = crowd(per_item=per_item, independent=independent)
    answers = Answers.from_matrix(data.matrix, 3)
    found = fit_crowd(answers, data.x)
    assert error(data.T, found.transitions) < 0.5 * error(data.T, dawid_skene(answers, pseudo_count=0.01)[1])
    if independent:
        assert found.weight == 0


def test_answers_to_one_label_have_full_weight(crowd):
    data = crowd(per_item=4)
    answers = Answers.from_matrix(data.matrix, 3)
    found = fit_crowd(answers, data.x)
    assert found.weight >= 0.7
    posteriors, T, _ = dawid_skene(answers)
    assert error(data.T, found.transitions) < 1.1 * error(data.T, T)
    accuracy = (found.clean_probs.argmax(axis=1) == data.clean).mean()
    assert accuracy >= (posteriors.argmax(axis=1) == data.clean).mean()
    assert np.allclose(found.clean_probs.sum(axis=1), 1)
    assert np.allclose(found.transitions.sum(axis=1), 1)


@pytest.mark.slow
def test_rare_annotators_are_shrunk_towards_the_pooled_matrix(crowd):
    data = crowd(per_item=3)
    matrix = data.matrix.copy()
    rows = np.flatnonzero(matrix[:, 0] >= 0)
    matrix[rows[2:], 0] = -1  # two answers are left
    found = fit_crowd(Answers.from_matrix(matrix, 3), data.x)
    rare, common = (np.abs(found.transitions[m] - found.pooled).max() for m in (0, 1))
    assert rare < common
    assert error(data.T[:1], found.transitions[:1]) < 0.6


@pytest.mark.slow
def test_spammer_has_equal_columns(crowd):
    data = crowd(per_item=3, spammers=1, num_items=2500)
    T = fit_crowd(Answers.from_matrix(data.matrix, 3), data.x).transitions
    assert np.ptp(T[0], axis=1).max() < 0.2
    assert all(np.ptp(T[m], axis=1).max() > 0.3 for m in range(1, 5))


def test_without_features_and_with_an_item_that_nobody_answered(crowd):
    data = crowd(per_item=4)
    matrix = data.matrix.copy()
    matrix[7] = -1
    found = fit_crowd(Answers.from_matrix(matrix, 3))
    assert error(data.T, found.transitions) < 0.25
    assert np.allclose(found.clean_probs[7], found.classifier_probs[7])


@pytest.mark.slow
def test_abstentions_get_a_row(crowd):
    data = crowd(per_item=3)
    generator = np.random.default_rng(1)
    abstained = (data.matrix >= 0) & (generator.random(data.matrix.shape) < 0.2)
    matrix = np.where(abstained, 3, data.matrix)
    found = fit_crowd(Answers.from_matrix(matrix, 3, num_labels=4), data.x)
    assert found.transitions.shape == (5, 4, 3)
    assert found.transitions[:, 3].mean() == pytest.approx(0.2, abs=0.05)


def test_few_answers_can_all_be_right(crowd):
    """Bounds are shares that the number of answers allows, so that none or all of three can be wrong."""
    data = crowd(num_items=300, per_item=3)
    matrix = data.matrix.copy()
    matrix[np.flatnonzero(matrix[:, 0] >= 0)[3:], 0] = -1
    answers = Answers.from_matrix(matrix, 3)
    rates, overall = annotator_rates(answers, fit_crowd(answers))
    assert {round(3 * rates.low[0], 9), round(3 * rates.high[0], 9)} <= {0, 1, 2, 3}
    assert rates.high[0] - rates.low[0] >= 2 / 3
    assert (rates.low <= rates.rate).all()
    assert (rates.rate <= rates.high).all()
    assert overall.low[0] < overall.rate[0] < overall.high[0]


def test_interval_of_one_answer_per_item_contains_the_uncertainty_of_the_classifier(crowd):
    """Nothing but the classifier says which answers are wrong, so that the count alone is far too certain."""
    data = crowd(num_items=1000, per_item=1)
    answers = Answers.from_matrix(data.matrix, 3)
    rates, _ = annotator_rates(answers, fit_crowd(answers, data.x), data.x)
    share = np.array([(data.matrix[:, m] != data.clean)[data.matrix[:, m] >= 0].mean() for m in range(5)])
    assert ((rates.low <= share) & (share <= rates.high)).sum() >= 4
    assert (rates.high - rates.low > 4 * np.sqrt(share * (1 - share) / 200)).all()


def test_underconfident_classifier_does_not_hide_the_answers():
    """A penalised regression is less certain than right; sharpened, the answers keep their weight."""
    generator = np.random.default_rng(0)
    clean = np.arange(600) % 3
    x = 3 * np.eye(3)[clean] + generator.normal(size=(600, 3))
    x = np.concatenate([x, generator.normal(size=(600, 40))], axis=1)
    wrong = generator.random((600, 4)) < np.array([0.1, 0.2, 0.25, 0.3])
    matrix = np.where(wrong, (clean[:, None] + generator.integers(1, 3, (600, 4))) % 3, clean[:, None])
    answers = Answers.from_matrix(matrix, 3)
    found = fit_crowd(answers, x)
    assert found.weight >= 0.5
    rates, _ = annotator_rates(answers, found, x)
    assert np.abs(rates.rate - wrong.mean(axis=0)).max() < 0.03


def test_many_features_are_reduced_to_their_leading_components(crowd):
    """300 features of rank 6, rotated: the reduction loses nothing but noise."""
    data = crowd(num_items=400, per_item=3)
    generator = np.random.default_rng(0)
    wide = data.x @ generator.normal(size=(6, 300)) + 0.01 * generator.normal(size=(400, 300))
    answers = Answers.from_matrix(data.matrix, 3)
    assert regressors(wide).shape == (400, 257)
    narrow, found = (fit_crowd(answers, x).clean_probs.argmax(axis=1) for x in (data.x, wide))
    assert (narrow == found).mean() > 0.9


def test_few_answers_per_annotator_are_no_worse_than_the_majority_vote(crowd):
    """Three answers of each annotator and no features: matrices of any form would fit chance."""
    mine, voted, free = 0.0, 0.0, 0.0
    for seed in range(4):
        data = crowd(num_items=200, num_annotators=200, per_item=3, separation=3.0, seed=seed)
        answers = Answers.from_matrix(data.matrix, 3)
        mine += (fit_crowd(answers).clean_probs.argmax(axis=1) == data.clean).mean() / 4
        voted += (vote_shares(answers).argmax(axis=1) == data.clean).mean() / 4
        free += (dawid_skene(answers)[0].argmax(axis=1) == data.clean).mean() / 4
    assert mine > voted - 0.01
    assert mine > free + 0.05
