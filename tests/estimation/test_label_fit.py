import numpy as np
import torch

from volmin import noise, transition_error
from volmin.estimation.label_fit import fit_labels, likeliest_transition, noisy_log_likelihood, start_parameters


def separable(T, n, seed=0):
    """Log posteriors of noisy labels by a classifier that knows the class but is shy, and those labels."""
    generator = np.random.default_rng(seed)
    clean = generator.integers(0, len(T), n)
    doubt = 0.3 * generator.random((n, 1))
    probs = ((1 - doubt) * np.eye(len(T))[clean] + doubt / len(T)) @ T.T
    return torch.from_numpy(np.log(probs)), torch.from_numpy(noise.corrupt(clean, T, seed + 1))


def test_likelihood_is_that_of_the_mixture():
    T = noise.asymmetric(3, 0.3)
    theta = torch.from_numpy(start_parameters(T))
    x, y = separable(T, 5)
    h = (theta[9].exp() * x @ torch.from_numpy(T)).softmax(dim=1)
    expected = (h @ torch.from_numpy(T).T)[torch.arange(5), y].log()
    torch.testing.assert_close(noisy_log_likelihood(theta, x, y), expected, rtol=1e-4, atol=1e-4)


def test_labels_find_pair_noise_from_a_symmetric_start():
    T = noise.pair(4, 0.45)
    fit = fit_labels(*separable(T, 8000), start=noise.symmetric(4, 0.5), max_iterations=150)
    assert transition_error(T, fit.transition) < 0.05
    np.testing.assert_allclose(fit.transition.sum(axis=0), 1)
    assert (fit.transition.argmax(axis=0) == np.arange(4)).all()


def test_an_earlier_fit_can_be_continued():
    data = separable(noise.symmetric(3, 0.3), 2000)
    first = fit_labels(*data, start=noise.symmetric(3, 0.5), max_iterations=5)
    second = fit_labels(*data, start=first.parameters, max_iterations=50)
    assert second.objective < first.objective


def test_known_clean_labels_leave_counting():
    T = noise.asymmetric(3, 0.4)
    clean = np.random.default_rng(0).integers(0, 3, 30_000)
    labels = noise.corrupt(clean, T, 1)
    estimate = likeliest_transition(noise.symmetric(3, 0.5), np.eye(3)[clean], labels)
    counts = np.zeros((3, 3))
    np.add.at(counts, (labels, clean), 1)
    np.testing.assert_allclose(estimate, counts / counts.sum(axis=0), atol=1e-3)
