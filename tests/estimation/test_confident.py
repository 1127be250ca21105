import numpy as np
import pytest

from volmin import noise, transition_error
from volmin.estimation.confident import confident, confident_joint, confident_thresholds


def posteriors_and_labels(C=5, n=4000, seed=0):
    """Exact noisy posteriors, and noisy labels."""
    generator = np.random.default_rng(seed)
    clean = generator.dirichlet([0.3] * C, n)
    T = noise.asymmetric(C, 0.3, seed)
    y = np.array([generator.choice(C, p=row) for row in clean])
    return clean @ T.T, noise.corrupt(y, T, seed + 1)


@pytest.mark.parametrize("seed", range(3))
def test_joint_and_transition_agree_with_cleanlab(seed):
    count = pytest.importorskip("cleanlab.count")
    probs, labels = posteriors_and_labels(seed=seed)
    theirs = count.compute_confident_joint(labels, probs)
    np.testing.assert_allclose(confident_joint(probs, labels), theirs, atol=1)  # theirs is rounded to whole counts
    np.testing.assert_allclose(confident(probs, labels), count.estimate_latent(theirs, labels)[1], atol=3e-3)


def test_thresholds_are_mean_self_confidence():
    probs = np.array([[0.9, 0.1, 0.0], [0.5, 0.5, 0.0], [0.2, 0.8, 0.0]])
    np.testing.assert_allclose(confident_thresholds(probs, np.array([0, 0, 1])), [0.7, 0.8, np.inf])


def test_rows_of_the_joint_sum_to_the_label_counts():
    probs, labels = posteriors_and_labels()
    np.testing.assert_allclose(confident_joint(probs, labels).sum(axis=1), np.bincount(labels))


def test_transition_of_separable_classes_is_recovered():
    C, T = 4, noise.pair(4, 0.45)
    clean = np.random.default_rng(0).integers(0, C, 40_000)
    doubt = 0.2 * np.random.default_rng(1).random((len(clean), 1))
    probs = ((1 - doubt) * np.eye(C)[clean] + doubt / C) @ T.T
    assert transition_error(T, confident(probs, noise.corrupt(clean, T, 2))) < 0.02
