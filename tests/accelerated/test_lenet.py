import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from volmin import accelerated, fit, methods, networks
from volmin.data import TensorLoader
from volmin.networks.lenet import LeNet5
from volmin.training import Recipe, thread_limit

pytest.importorskip("numba")

from volmin.accelerated import lenet
from volmin.accelerated.lenet import AcceleratedLeNet5

Pair = tuple[AcceleratedLeNet5, LeNet5]


@pytest.fixture
def pair() -> Pair:
    """An accelerated and a plain network with the same weights."""
    torch.manual_seed(0)
    fast, plain = AcceleratedLeNet5(10), networks.lenet5()
    plain.load_state_dict(fast.state_dict())
    return fast, plain


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Torch's threads and the number of chunks at each call of the kernels."""
    seen: list[tuple[int, int]] = []
    in_chunks = lenet._in_chunks

    def recorded(*args: Any) -> list[Any]:
        found = in_chunks(*args)
        seen.append((torch.get_num_threads(), len(found)))
        return found

    monkeypatch.setattr(lenet, "_in_chunks", recorded)
    return seen


def images(count: int) -> Tensor:
    x = torch.randn(count, 1, 28, 28, generator=torch.Generator().manual_seed(count))
    # A uniform border, as images of digits have: all outputs of a pooling window are equal there.
    x[:, :, :10] = -0.42
    return x


def parameter_gradients(net: LeNet5, x: Tensor) -> tuple[Tensor, ...]:
    logits = net(x)
    # A different weight for every logit, so that exchanged gradients are noticed.
    weights = torch.randn(logits.shape, dtype=x.dtype, generator=torch.Generator().manual_seed(0))
    return torch.autograd.grad((logits * weights).mean(), list(net.parameters()))


def assert_equal_networks(pair: Pair, x: Tensor) -> None:
    fast, plain = pair
    assert torch.allclose(fast(x), plain(x), atol=1e-6)
    for found, expected in zip(parameter_gradients(fast, x), parameter_gradients(plain, x), strict=True):
        assert torch.allclose(found, expected, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("count", [1, 5, 33, 95, 150])
def test_values_and_gradients_equal_those_of_the_plain_network(pair: Pair, calls: list[Any], count: int, threads: int):
    with thread_limit(threads):
        assert_equal_networks(pair, images(count))
    if count == 150:
        assert {chunks for _, chunks in calls} == {threads}


def test_images_may_be_strided(pair: Pair):
    fast, x = pair[0], images(6)
    for strided in (x.repeat_interleave(2, 0)[::2], x.mT.contiguous().mT, x.expand(6, 3, 28, 28)[:, 1:2]):
        assert torch.equal(fast(strided), fast(x))


def test_gradients_may_be_strided(pair: Pair):
    # The gradient of a sum is one number with strides of zero; that of a transpose has exchanged strides.
    weights = torch.randn(5, 5, 16, 6, generator=torch.Generator().manual_seed(0))
    for reduce in (Tensor.sum, lambda out: (out.permute(3, 2, 1, 0) * weights).sum()):
        found, expected = (
            torch.autograd.grad(reduce(net.features(images(6))), [net.conv1.weight, net.conv2.weight]) for net in pair
        )
        for ours, theirs in zip(found, expected, strict=True):
            assert torch.allclose(ours, theirs, rtol=1e-4, atol=1e-3)


def test_empty_batch_is_accepted(pair: Pair):
    fast, _ = pair
    assert fast(images(0)).shape == (0, 10)
    fast(images(0)).sum().backward()
    assert fast.conv1.weight.grad is not None
    assert fast.conv1.weight.grad.abs().sum() == 0


def test_double_precision_falls_back_to_the_plain_layers(pair: Pair, calls: list[Any]):
    fast, plain = pair
    assert_equal_networks((fast.double(), plain.double()), images(3).double())
    assert not calls


def test_images_that_require_a_gradient_fall_back_to_the_plain_layers(pair: Pair, calls: list[Any]):
    x = images(3).requires_grad_()
    found, expected = (torch.autograd.grad(net(x).sum(), x)[0] for net in pair)
    assert torch.allclose(found, expected, atol=1e-6)
    assert not calls
    pair[0](x.detach())
    assert calls


def test_second_derivatives_are_refused_and_not_wrong(pair: Pair):
    fast, _ = pair
    (gradient,) = torch.autograd.grad(fast(images(2)).square().sum(), fast.conv1.weight, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


@pytest.mark.parametrize("layer", ["conv1", "conv2"])
def test_nan_weights_are_propagated(pair: Pair, layer: str):
    fast, _ = pair
    nn.init.constant_(fast.get_parameter(f"{layer}.weight"), float("nan"))
    assert fast(images(2)).isnan().all()


def test_thread_share_gives_the_kernels_the_threads_and_torch_one(pair: Pair, calls: list[Any]):
    fast, _ = pair
    with thread_limit(2):
        with accelerated.thread_share(nn.Sequential(fast)):
            fast(images(64)).sum().backward()
        assert torch.get_num_threads() == 2
        fast(images(64))
    assert calls == [(1, 2), (1, 2), (2, 2)]


def test_thread_share_leaves_torch_its_threads_for_plain_networks(pair: Pair):
    with thread_limit(2), accelerated.thread_share(pair[1]):
        assert torch.get_num_threads() == 2


def test_thread_share_is_restored_after_an_error(pair: Pair):
    with thread_limit(2):
        with pytest.raises(RuntimeError), accelerated.thread_share(pair[0]):
            raise RuntimeError
        assert torch.get_num_threads() == 2


def test_state_dicts_are_exchanged_in_both_directions():
    torch.manual_seed(0)
    plain, fast = networks.build("lenet5", (1, 28, 28), 7), accelerated.build("lenet5", (1, 28, 28), 7)
    assert isinstance(fast, LeNet5)
    x = images(4)
    assert not torch.allclose(fast(x), plain(x), atol=1e-3)
    fast.load_state_dict(plain.state_dict())
    assert torch.allclose(fast(x), plain(x), atol=1e-6)
    nn.init.normal_(fast.get_parameter("conv2.weight"))
    plain.load_state_dict(fast.state_dict())
    assert torch.allclose(fast(x), plain(x), rtol=1e-4, atol=1e-5)


def test_the_same_seed_draws_the_same_weights():
    states = []
    for build in (networks.build, accelerated.build):
        torch.manual_seed(3)
        states.append(build("lenet5", (1, 28, 28), 10).state_dict())
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_numba_is_imported_only_when_the_kernels_are_used(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delitem(sys.modules, "volmin.accelerated.lenet_kernels", raising=False)
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.delattr(accelerated, "lenet_kernels", raising=False)
    net = AcceleratedLeNet5(10)
    assert net.double()(images(1).double()).shape == (1, 10)
    with pytest.raises(ModuleNotFoundError, match="numba"):
        net.float()(images(1))


@pytest.mark.parametrize("threads", [1, 2])
def test_training_and_resuming_give_the_same_bits(tmp_path: Path, threads: int):
    x, y = images(150), torch.arange(150) % 10

    def train(checkpoint: Path | None = None, stop_after: int | None = None) -> Tensor:
        def stop(history: Any) -> None:
            if len(history) == stop_after:
                raise KeyboardInterrupt

        torch.manual_seed(0)
        method = methods.VolMinNet(AcceleratedLeNet5(10), 10)
        with accelerated.thread_share(method):
            fit(method, TensorLoader(x, y, 64), recipe=Recipe(epochs=3), checkpoint=checkpoint, on_epoch=stop)
        return torch.cat([p.detach().flatten() for p in method.parameters()])

    with thread_limit(threads):
        expected = train()
        assert torch.equal(train(), expected)
        with pytest.raises(KeyboardInterrupt):
            train(tmp_path / "run.ckpt", stop_after=2)
        assert torch.equal(train(tmp_path / "run.ckpt"), expected)
