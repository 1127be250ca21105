import torch

from volmin import Recipe, fit, networks, noise
from volmin.data import TensorLoader
from volmin.methods import DMI


def test_determinant_improves_on_plain_training():
    """A linear classifier under pair noise strong enough to bias plain training."""
    generator = torch.Generator().manual_seed(0)
    clean = torch.arange(1200) % 3
    x = 2 * torch.eye(3)[clean] + torch.randn(1200, 3, generator=generator)
    data = TensorLoader(x, noise.corrupt(clean.numpy(), noise.pair(3, 0.45), 0), 200)

    def accuracy(method):
        return (method(x).argmax(1) == clean).double().mean().item()

    torch.manual_seed(0)
    method = DMI(networks.mlp(3, 3, ()), 3, dmi=1.0, dmi_lr=1e-2)
    warm_up = []
    fit(
        method,
        data,
        recipe=Recipe(epochs=40, lr=0.05),
        on_epoch=lambda history: warm_up.append(accuracy(method)) if len(history) == 40 else None,
    )
    assert accuracy(method) > warm_up[0] + 0.02


def test_default_learning_rate_and_length_are_the_published_ones():
    warm_up, dmi = DMI(networks.mlp(3, 3), 3).phases(Recipe(epochs=120))
    assert (warm_up.epochs, dmi.epochs) == (120, 100)
    assert dmi.optimizers()[0].defaults["lr"] == 1e-6
