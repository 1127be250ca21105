import numpy as np
import pytest
import torch
from torch import nn

from volmin import Recipe, fit, networks, noise
from volmin.data import TensorLoader
from volmin.exceptions import InputError
from volmin.methods import HOC, Backward, DualT, Forward, Reweight

PAIR = noise.pair(3, 0.3)
ASYMMETRIC = np.array([[0.8, 0.1, 0.0], [0.2, 0.6, 0.1], [0.0, 0.3, 0.9]])


def net() -> nn.Module:
    torch.manual_seed(0)
    return networks.mlp(3, 3, (8,))


def loader():
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(90) % 3
    return TensorLoader(3 * torch.eye(3)[y] + 0.3 * torch.randn(90, 3, generator=generator), y, 30)


@pytest.mark.parametrize("method", [Forward, Backward, Reweight])
def test_given_T_replaces_the_warm_up(method, tmp_path):
    np.save(tmp_path / "T.npy", PAIR)
    for T in (PAIR.tolist(), str(tmp_path / "T.npy")):
        given = method(net(), 3, T=T)
        assert [phase.name for phase in given.phases(Recipe())] == ["train"]
        np.testing.assert_allclose(given.transition().numpy(), PAIR, atol=1e-7)


@pytest.mark.parametrize(
    ("T", "message"),
    [
        (ASYMMETRIC.T.tolist(), r"T\.T"),
        ([[0.9, 0.2], [0.1, 0.8]], "3"),
        ([[1.0, 2.0]], "square"),
        ("nowhere.npy", "not exist"),
    ],
)
def test_invalid_T_is_rejected(T, message):
    with pytest.raises(InputError, match=message):
        Forward(net(), 3, T=T)


def test_unknown_estimator_is_rejected_by_the_constructor():
    with pytest.raises(InputError, match="percentile"):
        Forward(net(), 3, estimator="oracle")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(("method", "resets"), [(Forward, True), (Backward, True), (HOC, True), (Reweight, False)])
def test_network_is_reset_after_the_estimate_except_by_reweight(method, resets):
    trained = method(net(), 3)
    weight = networks.last_linear(trained.net).weight
    before = weight.detach().clone()
    with torch.no_grad():
        trained.prepare(loader())
    assert torch.equal(weight, before) != resets
    assert not torch.equal(trained.transition(), torch.eye(3))
    np.testing.assert_allclose(trained.transition().sum(0), 1, atol=1e-6)


def test_validation_scores_h_during_plain_training():
    method = Forward(net(), 3)
    x = torch.randn(5, 3)
    assert torch.allclose(method.noisy_log_probs(x), method(x).log_softmax(1), atol=1e-6)


def test_phase_lengths_follow_the_number_of_epochs():
    assert [phase.epochs for phase in DualT(net(), 3).phases(Recipe(epochs=200))] == [100, 200]
    assert [phase.epochs for phase in DualT(net(), 3).phases(Recipe(epochs=3))] == [2, 3]
    assert [phase.epochs for phase in Reweight(net(), 3).phases(Recipe(epochs=1))] == [1, 1]
    with pytest.raises(InputError, match="positive share"):
        Reweight(net(), 3, warm_up=0).phases(Recipe())


def test_features_are_the_inputs_of_the_last_linear_layer():
    perceptron, x = net(), torch.randn(5, 3)
    assert isinstance(perceptron, nn.Sequential)
    features, logits = networks.features_and_logits(perceptron, x)
    assert torch.equal(logits, perceptron(x))
    assert torch.equal(features, perceptron[:-1](x))


def test_hoc_rejects_a_network_without_a_linear_layer():
    with pytest.raises(InputError, match="linear"):
        HOC(nn.Conv2d(1, 3, 3), 3)


def test_forward_learns_clean_labels_given_the_true_T():
    data = loader()
    noisy = TensorLoader(data.x, noise.corrupt(data.y.numpy(), PAIR, 0), 30)
    method = Forward(net(), 3, T=PAIR.tolist())
    fit(method, noisy, recipe=Recipe(epochs=30, lr=0.05))
    assert (method(data.x).argmax(1) == data.y).double().mean() > 0.95
