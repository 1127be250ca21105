"""VolMinNet's loss, and its resumption to the same bits."""

import pytest
import torch

from volmin import networks
from volmin.data import Batch, TensorLoader
from volmin.losses import forward_nll
from volmin.methods import VolMinNet
from volmin.training import Recipe, fit
from volmin.transition import log_volume


def noisy_blobs(num_classes, count):
    torch.manual_seed(0)
    y = torch.arange(count) % num_classes
    x = torch.nn.functional.one_hot(y, num_classes).float() * 3 + torch.randn(count, num_classes)
    return x, torch.where(torch.rand(count) < 0.3, (y + 1) % num_classes, y)


@pytest.mark.parametrize("shared_level", [False, True])
@pytest.mark.parametrize("num_classes", [3, 60])
def test_loss_and_gradients_are_those_of_the_paper(num_classes, shared_level):
    x, y = noisy_blobs(num_classes, 240)
    method = VolMinNet(networks.mlp(num_classes, num_classes), num_classes, lam=0.5, shared_level=shared_level)
    torch.nn.init.normal_(method.T.w, -3)
    T = method.transition()
    paper = forward_nll(method(x), T, y) + 0.5 * log_volume(T)
    loss = method.loss(Batch(x, y), 0)
    assert torch.isclose(loss, paper, rtol=1e-4)
    expected, found = (torch.autograd.grad(value, [*method.parameters()]) for value in (paper, loss))
    for a, b in zip(expected, found, strict=True):
        assert torch.allclose(a, b, atol=1e-6)


def test_evaluation_and_training_mode_reset_the_tangent():
    method = VolMinNet(networks.mlp(3, 3), 3)
    T = method.transition()
    method.log_volume(torch.eye(3))
    on_tangent = method.log_volume(T)  # tangent at the identity, where the slope is the identity
    assert torch.isclose(on_tangent, T.trace() - 3, atol=1e-5)
    for mode in (True, False):
        method.train(mode)
        assert torch.isclose(method.log_volume(T), log_volume(T), atol=1e-6)


def test_training_resumes_to_the_same_bits_with_a_partly_used_tangent(tmp_path):
    x, y = noisy_blobs(60, 900)
    loader = TensorLoader(x, y, 75)

    def build():
        torch.manual_seed(1)
        return VolMinNet(networks.mlp(60, 60), 60, lam=1e-2)

    whole, parts = build(), build()
    assert 2 * len(loader) % whole.log_volume.every != 0  # the interruption falls between two renewals
    fit(whole, loader, loader, Recipe(epochs=4))

    def stop(history):
        if len(history) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(parts, loader, loader, Recipe(epochs=4), tmp_path / "checkpoint", on_epoch=stop)
    again = build()
    fit(again, loader, loader, Recipe(epochs=4), tmp_path / "checkpoint")
    for a, b in zip(whole.state_dict().values(), again.state_dict().values(), strict=True):
        assert torch.equal(a, b)
