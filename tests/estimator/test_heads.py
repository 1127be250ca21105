import numpy as np
import torch
from sklearn.datasets import load_digits, load_wine
from sklearn.model_selection import train_test_split

from volmin import noise, transition_error
from volmin.estimator.heads import choose_head, fit_transition
from volmin.estimator.loader import RowLoader


def noisy_wine(rate=0.25):
    x, clean = load_wine(return_X_y=True)
    labels = noise.corrupt(clean, noise.symmetric(3, rate), 0)
    return torch.from_numpy(x).float(), labels, clean


def test_exponent_and_T_are_recovered_from_flat_posteriors():
    generator = np.random.default_rng(0)
    clean = generator.dirichlet([0.3, 0.3, 0.3], 20_000)
    T = noise.pair(3, 0.3)
    truth = (clean.cumsum(1) > generator.random((len(clean), 1))).argmax(1)
    labels = noise.corrupt(truth, T, 1)
    flat = clean**0.25 / (clean**0.25).sum(1, keepdims=True)
    exponent, found, _ = fit_transition(flat, labels, np.ones(len(labels)))
    assert exponent == 4
    assert transition_error(T, found) < 0.05


def test_noisy_labels_choose_standardised_inputs_for_wine():
    """One feature of wine has a thousand times the scale of the others; scaling all alike would lose them."""
    x, labels, clean = noisy_wine()
    found = choose_head(x, labels, np.ones(len(labels)), 3, linear=True, seed=0)
    assert found.candidates[0].name.startswith("standardised")
    likelihoods = [candidate.log_likelihood for candidate in found.candidates]
    assert likelihoods == sorted(likelihoods, reverse=True)
    with torch.no_grad():
        assert (found.network(x).argmax(1).numpy() == clean).mean() > 0.9
    assert 0.1 < 1 - np.diag(found.transition).mean() < 0.4


def test_pure_noise_is_not_learned():
    """The targets of a second fit must not depend on the labels that judge it, or pure noise would seem learnable."""
    generator = np.random.default_rng(0)
    x, labels = torch.from_numpy(generator.normal(size=(300, 20))).float(), generator.integers(0, 3, 300)
    found = choose_head(x, labels, np.ones(300), 3, linear=False, seed=0)
    assert found.candidates[0].log_likelihood < np.log(1 / 3) + 0.02


def test_samples_choose_the_head_of_many_rows(monkeypatch):
    X, clean = load_digits(return_X_y=True)
    X, X_test, clean, y_test = train_test_split(X, clean, random_state=0)
    labels = noise.corrupt(clean, noise.pair(10, 0.2), 0)
    monkeypatch.setattr("volmin.estimator.heads.SCREENED_ROWS", 400)
    monkeypatch.setattr("volmin.estimator.heads.CROSS_FITTED_ROWS", 600)
    x = torch.from_numpy(X).float()
    found = choose_head(x, labels, np.ones(len(labels)), 10, linear=True, seed=0)
    with torch.no_grad():
        accuracy = (found.network(torch.from_numpy(X_test).float()).argmax(1).numpy() == y_test).mean()
    assert accuracy > 0.9


def test_rows_are_drawn_in_proportion_to_their_weights():
    x, y = torch.arange(6.0)[:, None], torch.zeros(6, dtype=torch.int64)
    loader = RowLoader(x, y, 2, torch.tensor([0.0, 1.0, 1.0, 1.0, 1.0, 2.0]))
    counts = np.zeros(6)
    for seed in range(200):
        counts += np.bincount(torch.cat([batch.x for batch in loader.shuffled(seed)])[:, 0].long(), minlength=6)
    np.testing.assert_allclose(counts / 200, [0, 1, 1, 1, 1, 2], atol=0.15)
