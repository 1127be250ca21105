"""What VolMinNet minimises, and that it does so in the same way wherever it is interrupted."""

import pytest
import torch

from volmin import networks
from volmin.data import Batch, TensorLoader
from volmin.losses import forward_nll
from volmin.methods import VolMinNet
from volmin.training import Recipe, fit
from volmin.transition import log_volume


def noisy_clouds(num_classes, count):
    torch.manual_seed(0)
    y = torch.arange(count) % num_classes
    x = torch.nn.functional.one_hot(y, num_classes).float() * 3 + torch.randn(count, num_classes)
    return x, torch.where(torch.rand(count) < 0.3, (y + 1) % num_classes, y)


@pytest.mark.parametrize("shared_level", [False, True])
@pytest.mark.parametrize("num_classes", [3, 60])
def test_the_loss_is_the_papers(num_classes, shared_level):
    x, y = noisy_clouds(num_classes, 240)
    method = VolMinNet(networks.mlp(num_classes, num_classes), num_classes, lam=0.5, shared_level=shared_level)
    torch.nn.init.normal_(method.T.w, -3)
    T = method.transition()
    paper = forward_nll(method(x), T, y) + 0.5 * log_volume(T)
    ours = method.loss(Batch(x, y, None), 0)
    assert torch.isclose(ours, paper, rtol=1e-4)
    expected, found = (torch.autograd.grad(loss, method.parameters()) for loss in (paper, ours))
    for a, b in zip(expected, found, strict=True):
        assert torch.allclose(a, b, atol=1e-6)


def test_a_run_of_many_classes_resumes_to_the_same_bits(tmp_path):
    x, y = noisy_clouds(60, 900)
    loader = TensorLoader(x, y, 90)

    def build():
        torch.manual_seed(1)
        return VolMinNet(networks.mlp(60, 60), 60, lam=1e-2)

    whole, parts = build(), build()
    assert whole.log_volume.every > 1
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
