"""Recalibration of T on simulated held-out labels, whose true T is known."""

import numpy as np
import pytest
import scipy
import torch

from volmin import networks, noise
from volmin.data import TensorLoader
from volmin.estimation import recalibrate
from volmin.exceptions import InputError
from volmin.methods import VolMinNet
from volmin.training import Recipe, fit, noisy_scores
from volmin.transition import transition_error

C = 10


def held_out(T, count=5000, seed=0):
    """Clean posteriors of a classifier that is right in about 85 % of the rows, and noisy labels of these rows."""
    generator = np.random.default_rng(seed)
    probs = scipy.special.softmax(8 * generator.normal(size=(count, C)), axis=1)
    clean = (probs.cumsum(axis=1) > generator.random((count, 1))).argmax(axis=1)
    return probs, noise.corrupt(clean, T, seed)


def distorted(T, level, spread, seed=0):
    """A T whose ratios to the diagonal are multiplied by ``level``, and by a random factor each."""
    A = T / T.diagonal() * level * np.exp(spread * np.random.default_rng(seed).normal(size=T.shape))
    np.fill_diagonal(A, 1)
    return A / A.sum(axis=0)


@pytest.mark.parametrize("rate", [0.2, 0.5])
def test_a_too_clean_t_of_symmetric_noise_is_corrected(rate):
    T = noise.symmetric(C, rate)
    trained = distorted(T, 0.75, 0.1)
    found = recalibrate(trained, *held_out(T))
    assert found.rejects
    assert transition_error(T, trained) > 0.06
    assert transition_error(T, found.transition) < 0.02 + 0.1 * transition_error(T, trained)
    assert found.scale == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("T", [noise.pair(C, 0.45), noise.asymmetric(C, 0.3, 0)], ids=["pair", "asymmetric"])
def test_the_level_of_other_noise_is_corrected_and_its_shape_kept(T):
    trained = distorted(T, 0.75, 0.02)
    found = recalibrate(trained, *held_out(T))
    assert found.rejects
    assert transition_error(T, found.transition) < 0.4 * transition_error(T, trained)


@pytest.mark.parametrize("T", [noise.pair(C, 0.45), noise.symmetric(C, 0.5), noise.asymmetric(C, 0.3, 0), np.eye(C)])
def test_a_correct_t_is_mostly_left_as_it_is(T):
    found = [recalibrate(T, *held_out(T, 2000, seed)) for seed in range(20)]
    assert sum(one.rejects for one in found) <= 4  # 5 % of the sets are expected
    for one in found:
        assert one.rejects or np.array_equal(one.transition, T)
        assert transition_error(T, one.transition) < 0.08


def test_entries_near_zero_that_training_leaves_cost_at_most_the_sampling_error():
    T = noise.pair(C, 0.45)
    trained = 0.995 * T + 0.005 / C
    errors = [transition_error(T, recalibrate(trained, *held_out(T, 6000, seed)).transition) for seed in range(10)]
    assert np.mean(errors) < transition_error(T, trained) + 2 * np.sqrt(0.45 * 0.55 / 6000)


def test_the_scale_of_sharpened_posteriors_is_found():
    T = noise.pair(C, 0.3)
    probs, labels = held_out(T)
    sharp = scipy.special.softmax(2 * np.log(probs), axis=1)
    assert recalibrate(T, sharp, labels).scale == pytest.approx(0.5, abs=0.05)


def test_confident_posteriors_and_absent_classes_are_accepted():
    labels = np.arange(100) % 3
    found = recalibrate(np.eye(4), np.eye(4)[labels], labels)
    assert np.isfinite(found.transition).all()
    assert np.allclose(found.transition.sum(axis=0), 1)
    with pytest.raises(InputError, match="not dominant"):
        recalibrate(np.roll(noise.pair(C, 0.2), 1, axis=0), *held_out(noise.pair(C, 0.2), 100))
    with pytest.raises(InputError, match="2 classes"):
        recalibrate(np.eye(2), np.eye(4)[labels], labels)


def blobs(count, T, seed):
    generator = torch.Generator().manual_seed(seed)
    clean = torch.arange(count) % C
    x = 2.5 * torch.eye(C)[clean] + torch.randn(count, C, generator=generator)
    return TensorLoader(x, torch.from_numpy(noise.corrupt(clean.numpy(), T, seed)), 100)


def test_volminnet_recalibrates_a_memorising_network_and_predicts_the_same_classes(tmp_path):
    T = noise.symmetric(C, 0.5)
    train, held_out_rows = blobs(1500, T, 1), blobs(2000, T, 2)

    def trained(recalibrate, checkpoint=None):
        torch.manual_seed(0)
        method = VolMinNet(networks.mlp(C, C, hidden=(256,)), C, recalibrate=recalibrate)
        fit(method, train, held_out_rows, Recipe(epochs=12, lr=0.05, selection="last"), checkpoint)
        return method

    before, after = trained(False), trained(True, tmp_path / "checkpoint")
    errors = [transition_error(T, method.transition().detach()) for method in (before, after)]
    assert errors[0] > 0.15
    assert errors[1] < 0.5 * errors[0]
    losses = [noisy_scores(method, held_out_rows)["val_loss"] for method in (before, after)]
    assert losses[1] < losses[0]
    x = held_out_rows.x
    assert torch.equal(before(x).argmax(1), after(x).argmax(1))
    # A run that was killed after its last epoch recalibrates the trained T, not an adjusted one.
    again = trained(True, tmp_path / "checkpoint")
    assert torch.equal(again.transition(), after.transition())
    assert torch.equal(again.scale, after.scale)


def test_recalibration_needs_a_single_t():
    with pytest.raises(InputError, match="recalibrate"):
        VolMinNet(networks.mlp(C, C), C, recalibrate=True, annotators=3)
