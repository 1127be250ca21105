import numpy as np
import pytest
import torch

from volmin import Recipe, fit, networks, noise
from volmin.data import TensorLoader
from volmin.methods import HOC, Backward, DualT, Forward, Reweight

PAIR = noise.pair(3, 0.3)


def net():
    torch.manual_seed(0)
    return networks.mlp(3, 3, (8,))


def loader():
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(90) % 3
    return TensorLoader(3 * torch.eye(3)[y] + 0.3 * torch.randn(90, 3, generator=generator), y, 30)


@pytest.mark.parametrize("method", [Forward, Backward, Reweight])
def test_a_given_T_is_kept_and_saves_the_warm_up(method, tmp_path):
    np.save(tmp_path / "T.npy", PAIR)
    for T in (PAIR.tolist(), str(tmp_path / "T.npy")):
        given = method(net(), 3, T=T)
        assert [phase.name for phase in given.phases(Recipe())] == ["train"]
        np.testing.assert_allclose(given.transition().numpy(), PAIR, atol=1e-7)


@pytest.mark.parametrize(
    ("T", "message"),
    [(PAIR.T.tolist(), None), ([[0.9, 0.2], [0.2, 0.8]], "3"), ([[1.0, 2.0]], "square"), ("nowhere.npy", "not exist")],
)
def test_a_wrong_T_is_refused(T, message):
    if message is None:  # pair noise is doubly stochastic: only its columns are checked
        Forward(net(), 3, T=T)
        return
    with pytest.raises(ValueError, match=message):
        Forward(net(), 3, T=T)


def test_an_unknown_estimator_is_refused_before_the_warm_up():
    with pytest.raises(ValueError, match="percentile"):
        Forward(net(), 3, estimator="oracle")


@pytest.mark.parametrize(("method", "restarts"), [(Forward, True), (Backward, True), (HOC, True), (Reweight, False)])
def test_who_starts_anew_after_the_estimate(method, restarts):
    trained = method(net(), 3)
    before = trained.net[1].weight.detach().clone()
    with torch.no_grad():
        trained.prepare(loader())
    assert torch.equal(trained.net[1].weight, before) != restarts
    assert not torch.equal(trained.transition(), torch.eye(3))
    np.testing.assert_allclose(trained.transition().sum(0), 1, atol=1e-6)


def test_plain_training_is_judged_by_h_itself():
    method = Forward(net(), 3)
    x = torch.randn(5, 3)
    assert torch.allclose(method.noisy_log_probs(x), method(x).log_softmax(1), atol=1e-6)


def test_shorter_training_shortens_every_stage():
    assert [phase.epochs for phase in DualT(net(), 3).phases(Recipe(epochs=200))] == [100, 200]
    assert [phase.epochs for phase in DualT(net(), 3).phases(Recipe(epochs=3))] == [2, 3]
    assert [phase.epochs for phase in Reweight(net(), 3).phases(Recipe(epochs=1))] == [1, 1]
    with pytest.raises(ValueError, match="positive share"):
        Reweight(net(), 3, warm_up=0).phases(Recipe())


def test_features_are_what_the_last_linear_layer_sees():
    perceptron, x = net(), torch.randn(5, 3)
    features, logits = networks.features_and_logits(perceptron, x)
    assert torch.equal(logits, perceptron(x))
    assert torch.equal(features, perceptron[:-1](x))


def test_a_network_without_a_linear_layer_has_no_features_for_hoc():
    with pytest.raises(ValueError, match="linear"):
        HOC(torch.nn.Conv2d(1, 3, 3), 3)


def test_forward_learns_through_pair_noise_with_the_truth_given():
    data = loader()
    noisy = TensorLoader(data.x, noise.corrupt(data.y.numpy(), PAIR, 0), 30)
    method = Forward(net(), 3, T=PAIR.tolist())
    fit(method, noisy, recipe=Recipe(epochs=30, lr=0.05))
    assert (method(data.x).argmax(1) == data.y).double().mean() > 0.95
