import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from volmin import noise, quality, readings
from volmin.exceptions import InputError

ASYMMETRIC = np.array([[0.8, 0.1, 0.0, 0.1], [0.2, 0.6, 0.1, 0.0], [0.0, 0.3, 0.85, 0.1], [0.0, 0.0, 0.05, 0.8]])


def posteriors_and_labels(num_rows, num_classes=4, seed=0, concentration=0.4):
    generator = np.random.default_rng(seed)
    h = generator.dirichlet(np.full(num_classes, concentration), num_rows)
    return h, generator.integers(0, num_classes, num_rows)


def draw(generator, probs):
    """One class per row of probabilities."""
    return np.minimum((generator.random((len(probs), 1)) > probs.cumsum(axis=1)).sum(axis=1), probs.shape[1] - 1)


def test_sharpness_one_is_bayes_rule():
    h, y = posteriors_and_labels(200)
    expected = quality.label_posteriors(y, h, ASYMMETRIC)
    np.testing.assert_array_equal(readings.true_label_posteriors(y, h, ASYMMETRIC), expected)
    found = readings.read(y, h, ASYMMETRIC)
    np.testing.assert_allclose(found.joint, quality.joint(y, h, ASYMMETRIC), atol=1e-15)
    np.testing.assert_array_equal(found.quality, quality.label_quality(y, h, ASYMMETRIC))
    np.testing.assert_array_equal(found.suggested, quality.suggest(y, h, ASYMMETRIC))


@pytest.mark.parametrize("T", [np.eye(4), ASYMMETRIC])
def test_in_the_limit_the_most_probable_class_is_the_true_one(T):
    h, y = posteriors_and_labels(200)
    posteriors = readings.true_label_posteriors(y, h, T, np.inf)
    np.testing.assert_allclose(posteriors[np.arange(200), h.argmax(axis=1)], 1)
    assert readings.read(y, h, T, np.inf).noise_rate == pytest.approx((h.argmax(axis=1) != y).mean())


def test_limit_is_approached_and_ties_are_shared():
    h, y = posteriors_and_labels(200)
    limit = readings.true_label_posteriors(y, h, ASYMMETRIC, np.inf)
    np.testing.assert_allclose(readings.true_label_posteriors(y, h, ASYMMETRIC, 1e5), limit, atol=1e-6)
    np.testing.assert_allclose(readings.sharpen([[0.4, 0.4, 0.2]], np.inf), [[0.5, 0.5, 0]])
    np.testing.assert_allclose(readings.sharpen([[0.6, 0.3, 0.1]], 2), np.array([[36, 9, 1]]) / 46)


def test_tiny_posteriors_do_not_underflow():
    h = np.array([[1.0 - 2e-200, 2e-200], [1e-300, 1.0]])
    posteriors = readings.true_label_posteriors([1, 0], h, np.eye(2), 50.0)
    np.testing.assert_allclose(posteriors, [[1, 0], [0, 1]])


@pytest.mark.parametrize("sharpness", [1.5, 3.0, np.inf])
def test_impossible_labels_are_wrong_unless_hard_examples_are_ambiguous(sharpness):
    certain = np.array([[1.0, 0.0, 0.0]])
    assert readings.true_label_posteriors([2], certain, np.eye(3), 1.0).tolist() == [[0, 0, 1]]
    assert readings.true_label_posteriors([2], certain, np.eye(3), sharpness).tolist() == [[1, 0, 0]]


@settings(max_examples=50)
@given(st.integers(0, 10**6), st.integers(2, 6), st.one_of(st.floats(1, 100), st.just(np.inf)))
def test_posteriors_are_distributions(seed, num_classes, sharpness):
    h, y = posteriors_and_labels(30, num_classes, seed, concentration=0.1)
    T = np.random.default_rng(seed).dirichlet(np.full(num_classes, 0.3), num_classes).T
    posteriors = readings.true_label_posteriors(y, h, T, sharpness)
    assert posteriors.min() >= 0
    np.testing.assert_allclose(posteriors.sum(axis=1), 1)
    found = readings.read(y, h, T, sharpness)
    assert found.joint.sum() == pytest.approx(1)
    assert found.noise_rate == pytest.approx((1 - found.quality).mean(), abs=1e-9)
    np.testing.assert_allclose(found.transition(T).sum(axis=0), 1)
    assert (found.alternatives != y).all()
    differs = found.suggested != y
    np.testing.assert_array_equal(found.alternatives[differs], found.suggested[differs])


@settings(max_examples=50)
@given(st.integers(0, 10**6), st.integers(2, 6), st.lists(st.floats(1, 50), min_size=2, max_size=2).map(sorted))
def test_sharper_readings_find_more_noise(seed, num_classes, sharpness):
    """In every row for T = I, and on the average over the given labels for symmetric noise."""
    h, y = posteriors_and_labels(20, num_classes, seed)
    less, more = (readings.read(y, h, np.eye(num_classes), g).quality for g in sharpness)
    assert (more <= less + 1e-12).all()
    T = noise.symmetric(num_classes, 0.3)

    less, more = (
        np.sum([(h @ T.T)[:, k] * readings.read(np.full(20, k), h, T, g).quality for k in range(num_classes)], axis=0)
        for g in sharpness
    )
    assert (more <= less + 1e-9).all()


@pytest.mark.parametrize("sharpness", [1.0, 2.0, np.inf])
def test_agreement_with_simulated_labels(sharpness):
    """True labels drawn from h_g, changed to h by a maximal coupling, then by T."""
    generator = np.random.default_rng(0)
    h, count = np.array([0.5, 0.3, 0.15, 0.05]), 200_000
    (sharp,) = readings.sharpen(h[None], sharpness)
    true = draw(generator, np.tile(sharp, (count, 1)))
    stays = generator.random(count) < np.minimum(1, h / np.maximum(sharp, 1e-300))[true]
    deficit = np.maximum(h - sharp, 0)
    if deficit.sum() > 0:
        deficit /= deficit.sum()
    between = np.where(stays, true, draw(generator, np.tile(deficit, (count, 1))))
    given_labels = draw(generator, ASYMMETRIC.T[between])
    np.testing.assert_allclose(np.bincount(given_labels) / count, ASYMMETRIC @ h, atol=0.005)
    posteriors = readings.true_label_posteriors(np.arange(4), np.tile(h, (4, 1)), ASYMMETRIC, sharpness)
    for label in range(4):
        shares = np.bincount(true[given_labels == label], minlength=4) / (given_labels == label).sum()
        np.testing.assert_allclose(posteriors[label], shares, atol=0.015)
    found = readings.read(given_labels, np.tile(h, (count, 1)), ASYMMETRIC, sharpness)
    assert found.noise_rate == pytest.approx((true != given_labels).mean(), abs=0.005)


def test_result_does_not_depend_on_the_chunk_size(monkeypatch):
    h, y = posteriors_and_labels(50)
    whole = readings.read(y, h, ASYMMETRIC, 3.0)
    monkeypatch.setattr(quality, "CHUNK", 7)
    parts = readings.read(y, h, ASYMMETRIC, 3.0)
    np.testing.assert_allclose(parts.joint, whole.joint)
    np.testing.assert_array_equal(parts.suggested, whole.suggested)
    np.testing.assert_allclose(readings.true_label_posteriors(y, h, ASYMMETRIC, 3.0)[range(50), y], whole.quality)


@pytest.mark.parametrize("sharpness", [0.5, float("nan"), -1.0])
def test_sharpness_below_one_is_rejected(sharpness):
    with pytest.raises(InputError, match="sharpness must be at least 1"):
        readings.sharpen([[0.5, 0.5]], sharpness)
