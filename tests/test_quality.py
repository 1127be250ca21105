import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from volmin import noise, quality


def simulate(T, num_rows, seed=0, concentration=0.4):
    """Clean posteriors, clean labels drawn from them, and noisy labels drawn under T."""
    generator = np.random.default_rng(seed)
    h = generator.dirichlet(np.full(len(T), concentration), num_rows)
    clean = (generator.random((num_rows, 1)) > h.cumsum(axis=1)[:, :-1]).sum(axis=1)
    return h, clean, noise.corrupt(clean, T, seed=seed + 1)


def random_transition(generator, num_classes):
    return generator.dirichlet(np.full(num_classes, 0.7), num_classes).T


def divergence(p, h, T):
    return (p * np.log(p / (h @ T.T))).sum(axis=1)


def test_clean_posteriors_invert_the_channel_inside_the_simplex():
    T = noise.pair(4, 0.45)
    h = np.random.default_rng(0).dirichlet(np.ones(4), 200)
    np.testing.assert_allclose(quality.clean_posteriors(h @ T.T, T), h, atol=1e-10)


@pytest.mark.parametrize("T", [noise.pair(4, 0.45), noise.asymmetric(4, 0.3), np.full((4, 4), 0.25)])
def test_clean_posteriors_minimise_the_divergence_outside_the_simplex(T):
    p = np.random.default_rng(1).dirichlet(np.full(4, 0.5), 300) * 0.999 + 0.001 / 4
    found = quality.clean_posteriors(p, T)
    slow = np.full_like(p, 0.25)
    for _ in range(5000):
        slow *= (p / (slow @ T.T)) @ T
    assert np.all(divergence(p, found, T) <= divergence(p, slow, T) + 1.1e-5)
    np.testing.assert_allclose(found.sum(axis=1), 1)


def test_clean_posteriors_do_not_depend_on_the_chunk_size(monkeypatch):
    T = noise.asymmetric(3, 0.4)
    p = np.random.default_rng(2).dirichlet(np.ones(3), 50)
    whole = quality.clean_posteriors(p, T)
    monkeypatch.setattr(quality, "CHUNK", 7)
    np.testing.assert_allclose(quality.clean_posteriors(p, T), whole)


def test_label_posteriors_follow_bayes_rule():
    T = noise.pair(3, 0.45)  # not symmetric: class 0 becomes label 1, class 1 becomes label 2
    posteriors = quality.label_posteriors([1, 0], [[0.5, 0.5, 0.0], [0.5, 0.5, 0.0]], T)
    np.testing.assert_allclose(posteriors, [[0.45, 0.55, 0.0], [1.0, 0.0, 0.0]])


def test_every_label_is_correct_under_the_identity():
    h = np.array([[0.9, 0.1, 0.0], [0.9, 0.1, 0.0], [1.0, 0.0, 0.0]])
    scores = quality.label_quality([0, 1, 2], h, np.eye(3))
    np.testing.assert_array_equal(scores, 1)
    assert len(quality.flag(scores, fdr=0.5)) == 0
    assert quality.expected_errors(scores) == 0


def test_label_of_probability_zero_in_every_class_is_uninformative():
    T = np.array([[1.0, 1.0], [0.0, 0.0]])
    np.testing.assert_allclose(quality.label_posteriors([1], [[0.3, 0.7]], T), [[0.3, 0.7]])


def test_symmetric_noise_ranks_labels_by_self_confidence():
    T = noise.symmetric(5, 0.5)
    h, _, y = simulate(T, 500)
    confidence = (h @ T.T)[np.arange(500), y]
    np.testing.assert_array_equal(quality.label_quality(y, h, T).argsort(), confidence.argsort())


@pytest.mark.parametrize("T", [noise.pair(4, 0.45), noise.symmetric(4, 0.3), noise.asymmetric(4, 0.2)])
def test_expected_errors_match_the_number_of_errors(T):
    h, clean, y = simulate(T, 20_000)
    scores = quality.label_quality(y, h, T)
    spread = np.sqrt((scores * (1 - scores)).sum())
    assert abs(quality.expected_errors(scores) - (clean != y).sum()) < 4 * spread


@pytest.mark.parametrize("fdr", [0.05, 0.1, 0.3])
def test_share_of_correct_labels_among_the_flagged_is_fdr(fdr):
    T = noise.pair(4, 0.45)
    h, clean, y = simulate(T, 20_000)
    flagged = quality.flag(quality.label_quality(y, h, T), fdr)
    correct = (clean == y)[flagged]
    assert len(flagged) > 500
    assert abs(correct.mean() - fdr) < 4 * np.sqrt(fdr * (1 - fdr) / len(flagged)) + 1e-3


def test_flag_returns_the_largest_set_worst_first():
    scores = np.array([0.9, 0.0, 0.25, 0.1, 1.0])
    assert quality.flag(scores, 0.0).tolist() == [1]
    assert quality.flag(scores, 0.1).tolist() == [1, 3]
    assert quality.flag(scores, 0.12).tolist() == [1, 3, 2]
    assert quality.flag(scores, 1.0).tolist() == [1, 3, 2, 0, 4]
    assert quality.flag([], 0.1).tolist() == []


def test_suggestions_are_more_accurate_than_the_labels():
    T = noise.pair(4, 0.45)
    h, clean, y = simulate(T, 5000, concentration=0.1)
    assert (quality.suggest(y, h, T) == clean).mean() > (y == clean).mean() + 0.3


def test_joint_gives_priors_and_noise_rates():
    T = noise.pair(3, 0.4)
    h, clean, y = simulate(T, 50_000)
    J = quality.joint(y, h, T)
    truth = np.zeros((3, 3))
    np.add.at(truth, (y, clean), 1 / len(y))
    np.testing.assert_allclose(J, truth, atol=0.01)
    np.testing.assert_allclose(J.sum(axis=1), np.bincount(y) / len(y))
    np.testing.assert_allclose(quality.class_priors(J), np.bincount(clean) / len(y), atol=0.01)
    assert quality.noise_rate(J) == pytest.approx((clean != y).mean(), abs=0.01)
    np.testing.assert_allclose(quality.forward_noise_rates(T), 0.4)
    backward = [(clean[y == i] != i).mean() for i in range(3)]
    np.testing.assert_allclose(quality.backward_noise_rates(J), backward, atol=0.02)


def test_misfit_is_small_for_T_and_large_for_its_transpose():
    T = noise.pair(3, 0.4)
    h, _, y = simulate(T, 20_000)
    assert quality.misfit(quality.joint(y, h, T), T) < 0.01
    assert quality.misfit(quality.joint(y, h, T.T), T.T) > 0.05


def test_backward_rate_of_an_unused_label_is_nan():
    rates = quality.backward_noise_rates([[0.5, 0.1, 0.0], [0.0, 0.4, 0.0], [0.0, 0.0, 0.0]])
    np.testing.assert_allclose(rates, [1 / 6, 0, np.nan])


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 6), st.integers(0, 10**6))
def test_posteriors_sum_to_one_and_follow_a_permutation_of_the_classes(num_classes, seed):
    generator = np.random.default_rng(seed)
    T = random_transition(generator, num_classes)
    h = generator.dirichlet(np.full(num_classes, 0.3), 20)
    y = generator.integers(num_classes, size=20)
    scores, posteriors = quality.label_quality(y, h, T), quality.label_posteriors(y, h, T)
    assert np.all((scores >= 0) & (scores <= 1))
    np.testing.assert_allclose(posteriors.sum(axis=1), 1)
    np.testing.assert_allclose(posteriors[np.arange(20), y], scores)

    renamed = generator.permutation(num_classes)  # class j becomes renamed[j]
    back = renamed.argsort()
    np.testing.assert_allclose(quality.label_quality(renamed[y], h[:, back], T[np.ix_(back, back)]), scores)


def test_tensors_are_accepted():
    T = noise.pair(3, 0.2)
    h, _, y = simulate(T, 20)
    expected = quality.label_quality(y, h, T)
    found = quality.label_quality(torch.from_numpy(y), torch.from_numpy(h), torch.from_numpy(T))
    np.testing.assert_allclose(found, expected)


GOOD = np.full((4, 2), 0.5)


@pytest.mark.parametrize(
    ("probs", "complaint"),
    [
        ([[1.5, -0.5]], "negative entries.*softmax"),
        ([[0.7, 0.7]], "sum to one, but row 0 sums to 1.4"),
        ([[0.5, np.nan]], "NaN"),
        ([[1.0]], "at least 2 classes"),
        ([0.5, 0.5], "shape"),
        (np.zeros((0, 3)), "non-empty"),
        ([["a", "b"]], "array of numbers"),
    ],
)
def test_invalid_posteriors_are_rejected(probs, complaint):
    with pytest.raises(ValueError, match=f"(?s)clean_probs.*{complaint}|{complaint}"):
        quality.label_quality([0], probs, np.eye(2))


@pytest.mark.parametrize(
    ("labels", "complaint"),
    [
        ([0, 1, 2, 0], r"0\.\.1"),
        ([0, -1, 0, 0], r"0\.\.1"),
        ([0, 1], r"shape \(4,\), but have shape \(2,\)"),
        ([0.0, 1.0, 0.0, 0.0], "integers"),
        ([["a"]], "one label per row"),
    ],
)
def test_invalid_labels_are_rejected(labels, complaint):
    with pytest.raises(ValueError, match=complaint):
        quality.label_posteriors(labels, GOOD, np.eye(2))


def test_other_invalid_input_is_rejected():
    with pytest.raises(ValueError, match="3 classes"):
        quality.label_quality([0, 1, 0, 1], GOOD, np.eye(3))
    with pytest.raises(ValueError, match="fdr"):
        quality.flag([0.5], fdr=10)
    with pytest.raises(ValueError, match="label_quality"):
        quality.flag([0.5, np.nan])
    with pytest.raises(ValueError, match="joint"):
        quality.noise_rate(np.eye(3))
