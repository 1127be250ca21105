"""Mixed precision: as accurate as single precision, T in single precision, and no NaN after an overflow."""

import math

import pytest
import torch
from torch import nn
from torch.optim import SGD

from volmin import Recipe, fit, methods, networks, noise, transition_error
from volmin.data import TensorLoader
from volmin.exceptions import InputError
from volmin.methods import CrossEntropy, LinearNoiseLayer, VolMinNet
from volmin.training import Precision, clean_probs
from volmin.transition import apply_transition

CPU = torch.device("cpu")


class Seen(nn.Linear):
    """A layer that remembers the types it computes with."""

    def forward(self, input):
        output = super().forward(input)
        self.types = self.weight.dtype, output.dtype
        return output


@pytest.mark.parametrize(("precision", "inside"), [("bf16-mixed", torch.bfloat16), ("16-mixed", torch.float16)])
def test_only_networks_compute_in_half_precision(precision, inside):
    layer, T = Seen(4, 3), torch.tensor(noise.pair(3, 0.3), dtype=torch.float32)
    with Precision(precision, CPU).applied_to([layer]):
        logits = layer(torch.randn(5, 4))
        noisy = apply_transition(logits.softmax(1), T)
    assert layer.types == (torch.float32, inside)
    assert (logits.dtype, noisy.dtype) == (torch.float32, torch.float32)
    assert torch.equal(noisy, logits.softmax(1) @ T.T), "with eight bits they would differ"
    layer(torch.randn(5, 4))
    assert layer.types[1] == torch.float32, "the network is as before"


def test_network_that_fails_leaves_no_autocast_behind():
    layer = nn.Linear(4, 3)
    with Precision("bf16-mixed", CPU).applied_to([layer]), pytest.raises(RuntimeError, match="shapes"):
        layer(torch.randn(5, 9))
    assert not torch.is_autocast_enabled("cpu")


@pytest.mark.parametrize("precision", ["bf16-mixed", pytest.param("16-mixed", marks=pytest.mark.slow)])
def test_digits_are_learned_as_well_as_in_single_precision(noisy_digits, digits, precision):
    split, T = noisy_digits
    test = TensorLoader(digits.test.x, digits.test.y, 360)
    train = TensorLoader(split.train.x, split.train.y)
    validation = TensorLoader(split.validation.x, split.validation.y)

    def trained(chosen):
        torch.manual_seed(1)
        method = VolMinNet(networks.mlp(64, 10), 10)
        fit(method, train, validation, Recipe(epochs=40, lr=0.05, weight_decay=1e-3), seed=1, precision=chosen)
        accuracy = (clean_probs(method, [test.x]).argmax(1) == test.y).float().mean().item()
        return accuracy, transition_error(T, method.transition())

    (single, error), (mixed, mixed_error) = trained("32"), trained(precision)
    # 360 test images: half a point is 1.8 of them, and the standard error of the difference is about one point.
    assert mixed == pytest.approx(single, abs=0.02)
    assert mixed_error == pytest.approx(error, abs=0.03)


class Overflowing(VolMinNet):
    """Its loss overflows in some steps, so that all gradients are infinite or NaN."""

    steps = 0

    def loss(self, batch, epoch):
        self.steps += 1
        return super().loss(batch, epoch) * (1e38 if self.steps in (3, 4, 9) else 1.0)


def blobs(count=240):
    y = torch.arange(count) % 3
    return torch.randn(count, 4, generator=torch.Generator().manual_seed(0)) + 3 * torch.eye(4)[y], y


def test_transition_is_finite_after_an_overflow():
    torch.manual_seed(0)
    method, matrices, weights = Overflowing(networks.mlp(4, 3, (8,)), 3), [], []

    class Watching(Precision):
        def step(self, loss, optimizers, backward):
            super().step(loss, optimizers, backward)
            matrices.append(method.transition().detach().clone())
            weights.append(torch.cat([p.detach().flatten() for p in method.net.parameters()]))

    arithmetic = Watching("16-mixed", CPU)
    optimizers = [*method.phases(Recipe())[0].optimizers()]
    for _ in range(12):
        with arithmetic.applied_to(method.networks()):
            loss = method.loss(next(iter(TensorLoader(*blobs(), 240))), 0)
        for parameter in method.parameters():
            parameter.grad = None
        arithmetic.step(loss, optimizers, torch.Tensor.backward)
    assert all(T.isfinite().all() for T in matrices)
    assert all(w.isfinite().all() for w in weights)
    skipped = [i for i in range(1, 12) if torch.equal(weights[i], weights[i - 1])]
    assert skipped == [i for i in range(1, 12) if torch.equal(matrices[i], matrices[i - 1])]
    assert set(skipped) >= {2, 3, 8}, "no optimiser moves in a step that overflows"
    assert len(skipped) < 8


def test_two_optimisers_share_the_scale_of_their_loss():
    """The scale is renewed after both steps: in between, the second step would be off by a factor of two."""
    first, second = (nn.Parameter(torch.ones(1)) for _ in range(2))
    optimizers, arithmetic = [SGD([first], lr=0.1), SGD([second], lr=0.1)], Precision("16-mixed", CPU)
    first.register_hook(lambda gradient: gradient * math.inf)
    arithmetic.step((first + 3 * second).sum(), optimizers, torch.Tensor.backward)
    assert first.item() == 1, "its gradient is infinite"
    assert second.item() == pytest.approx(1 - 0.1 * 3)


def test_hooks_of_an_optimiser_see_gradients_without_the_scale():
    """The noise layer's gradient is clipped to length one; scaled by 65,536 it would nearly vanish."""

    def after_a_step(precision):
        torch.manual_seed(0)
        method = LinearNoiseLayer(networks.mlp(4, 3, (8,)), 3, warm_up=0.01)
        x, y = blobs()
        fit(method, TensorLoader(x, (y + (y < 1)) % 3, 60), recipe=Recipe(epochs=4, lr=0.05), precision=precision)
        return method.transition().detach()

    single = after_a_step("32")
    assert (single - torch.eye(3)).abs().max() > 0.05
    assert torch.allclose(after_a_step("16-mixed"), single, atol=0.02)


@pytest.mark.parametrize("name", ["co_teaching", "decoupling", "s_adaptation", "ptd", "dmi", "tv", "t_revision", "hoc"])
@pytest.mark.parametrize("precision", ["bf16-mixed", "16-mixed"])
def test_every_kind_of_method_trains_in_mixed_precision(name, precision):
    torch.manual_seed(0)
    options = {"model": "complex"} if name == "s_adaptation" else {}
    method = methods.get(name)(networks.mlp(4, 3, (16,)), 3, **options)
    x, y = blobs()
    recipe = Recipe(epochs=3, lr=0.05, selection="loss")
    history = fit(method, TensorLoader(x, y, 40), TensorLoader(x, y, 240), recipe, precision=precision)
    assert all(math.isfinite(record["train_loss"]) for record in history)
    assert {parameter.dtype for parameter in method.parameters()} == {torch.float32}


def test_unknown_precision_is_rejected():
    x, y = blobs()
    with pytest.raises(InputError, match="precision must be one of 32, bf16-mixed, 16-mixed, but is '8'"):
        fit(CrossEntropy(networks.mlp(4, 3), 3), TensorLoader(x, y), precision="8")  # pyright: ignore[reportArgumentType]


def test_precision_of_fabric_is_rejected():
    from lightning_fabric import Fabric

    x, y = blobs()
    method = CrossEntropy(networks.mlp(4, 3), 3)
    with pytest.raises(InputError, match=r"Give the precision to fit \(precision='bf16-mixed'\)"):
        fit(method, TensorLoader(x, y), fabric=Fabric(accelerator="cpu", precision="bf16-mixed"))
    history = fit(method, TensorLoader(x, y), recipe=Recipe(epochs=1), fabric=Fabric(accelerator="cpu"))
    assert len(history) == 1
