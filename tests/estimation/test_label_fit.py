import numpy as np
import torch

from volmin import noise, transition_error
from volmin.estimation.label_fit import fit_labels, noisy_log_likelihood, start_parameters


def separable(T, n, seed=0):
    """Log posteriors of noisy labels, from a correct but underconfident classifier, and the labels."""
    generator = np.random.default_rng(seed)
    clean = generator.integers(0, len(T), n)
    doubt = 0.3 * generator.random((n, 1))
    probs = ((1 - doubt) * np.eye(len(T))[clean] + doubt / len(T)) @ T.T
    return torch.from_numpy(np.log(probs)), torch.from_numpy(noise.corrupt(clean, T, seed + 1))


def test_likelihood_is_that_of_the_head_and_T():
    T = noise.asymmetric(3, 0.3)
    theta = torch.from_numpy(start_parameters(T))
    x, y = separable(T, 5)
    h = (theta[9].exp() * x @ torch.from_numpy(T)).softmax(dim=1)
    expected = (h @ torch.from_numpy(T).T)[torch.arange(5), y].log()
    torch.testing.assert_close(noisy_log_likelihood(theta, x, y), expected, rtol=1e-4, atol=1e-4)


def test_pair_noise_is_recovered_from_a_symmetric_start():
    T = noise.pair(4, 0.45)
    fit = fit_labels(*separable(T, 8000), start=noise.symmetric(4, 0.5), max_iterations=150)
    assert transition_error(T, fit.transition) < 0.05
    np.testing.assert_allclose(fit.transition.sum(axis=0), 1)
    assert (fit.transition.argmax(axis=0) == np.arange(4)).all()


def test_fit_can_be_continued_from_its_parameters():
    data = separable(noise.symmetric(3, 0.3), 2000)
    first = fit_labels(*data, start=noise.symmetric(3, 0.5), max_iterations=5)
    second = fit_labels(*data, start=first.parameters, max_iterations=50)
    assert second.objective < first.objective
