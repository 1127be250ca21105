import subprocess
import sys

import pytest
import torch
from torch import nn

from volmin import fit, methods, networks
from volmin.data import TensorLoader
from volmin.networks import lenet
from volmin.training import Recipe, thread_limit


@pytest.fixture
def net():
    torch.manual_seed(0)
    return networks.lenet5()


def images(count):
    x = torch.randn(count, 1, 28, 28, generator=torch.Generator().manual_seed(count))
    # Black borders, as digits have: windows whose four outputs are equal.
    x[:, :, :10] = -0.42
    return x


def published(net, x):
    """The layers in the order of the authors' code."""
    pool = nn.MaxPool2d(2)
    return net.head(pool(net.conv2(pool(net.conv1(x).relu())).relu()).flatten(1))


def assert_same(net, x):
    """Values and gradients are those of the published layers."""
    given, expected = net(x), published(net, x)
    assert torch.allclose(given, expected, atol=1e-6)
    # Another weight for every output, so that no two gradients can be exchanged.
    weights = torch.randn(expected.shape, dtype=x.dtype, generator=torch.Generator().manual_seed(0))
    slopes = [torch.autograd.grad((out * weights).mean(), net.parameters()) for out in (given, expected)]
    for found, wanted in zip(*slopes, strict=True):
        assert torch.allclose(found, wanted, atol=1e-6, rtol=1e-4)


def test_lenet5_is_the_authors_network():
    net = networks.lenet5()
    assert sum(p.numel() for p in net.parameters()) == 61_706
    assert net(torch.zeros(2, 1, 28, 28)).shape == (2, 10)
    assert networks.lenet5(3)(torch.zeros(1, 1, 28, 28)).shape == (1, 3)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("count", [1, 5, 31, 33, 128])
def test_it_computes_what_the_published_order_of_its_layers_does(net, count, threads):
    assert net._can_be_compiled(images(count))
    with thread_limit(threads):
        assert_same(net, images(count))


def test_images_need_not_lie_in_order_in_memory(net):
    x = images(6)
    for same in (x.repeat_interleave(2, 0)[::2], x.mT.contiguous().mT, x.expand(6, 3, 28, 28)[:, 1:2]):
        assert torch.equal(net(same), net(x))


def test_nor_need_gradients_lie_in_order_in_memory(net):
    outs = net._compiled(images(6)), net._layer_by_layer(images(6))
    # The gradient of a sum is one number for all.
    slopes = [torch.autograd.grad(out.sum(), net.conv1.weight)[0] for out in outs]
    assert torch.allclose(*slopes, rtol=1e-4, atol=1e-3)


def test_in_training_the_kernels_have_the_threads_and_torch_has_one(net, monkeypatch):
    seen, chunks = [], lenet._in_chunks
    monkeypatch.setattr(
        lenet, "_in_chunks", lambda *given: seen.append((torch.get_num_threads(), found := chunks(*given))) or found
    )
    with thread_limit(2):
        fit(methods.CrossEntropy(net, 10), TensorLoader(images(64), torch.arange(64) % 10, 64), recipe=Recipe(epochs=1))
        assert torch.get_num_threads() == 2
    _tried, *trained = seen  # two rows are tried before training
    assert {(threads, len(found)) for threads, found in trained} == {(1, 2)}


def test_torch_keeps_its_threads_where_nothing_is_compiled(net, monkeypatch):
    monkeypatch.setattr(lenet, "numba_is_here", lambda: False)
    with thread_limit(2), lenet.threads_lent(net):
        assert torch.get_num_threads() == 2


def test_no_image_is_no_mistake(net):
    assert net(images(0)).shape == (0, 10)
    net(images(0)).sum().backward()
    assert net.conv1.weight.grad.abs().sum() == 0


def test_what_the_kernels_do_not_take_goes_through_the_layers(net):
    assert_same(net.double(), images(3).double())
    net, x = net.float(), images(3).requires_grad_()
    (found,), (wanted,) = (torch.autograd.grad(out.sum(), x) for out in (net(x), published(net, x)))
    assert torch.allclose(found, wanted, atol=1e-6)


def test_it_needs_no_numba(net, monkeypatch):
    monkeypatch.setattr(lenet, "numba_is_here", lambda: False)
    monkeypatch.setitem(sys.modules, "numba", None)
    assert not net._can_be_compiled(images(1))
    assert_same(net, images(3))


def test_numba_is_not_imported_before_it_is_needed():
    code = "import sys; from volmin import networks; networks.lenet5(); assert 'numba' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("layer", ["conv1", "conv2"])
def test_weights_that_are_no_numbers_are_not_hidden(net, layer):
    nn.init.constant_(net.get_submodule(layer).weight, float("nan"))
    assert net(images(2)).isnan().all()


@pytest.mark.parametrize("threads", [1, 2])
def test_training_gives_the_same_bits_again_and_after_a_restart(tmp_path, threads):
    x, y = images(200), torch.arange(200) % 10

    def trained(checkpoint=None, stop_after=None):
        def stop(history):
            if len(history) == stop_after:
                raise KeyboardInterrupt

        torch.manual_seed(0)
        method = methods.VolMinNet(networks.lenet5(), 10)
        fit(method, TensorLoader(x, y, 64), recipe=Recipe(epochs=3), checkpoint=checkpoint, on_epoch=stop)
        return torch.cat([p.detach().flatten() for p in method.parameters()])

    with thread_limit(threads):
        whole = trained()
        assert torch.equal(trained(), whole)
        with pytest.raises(KeyboardInterrupt):
            trained(tmp_path / "run.ckpt", stop_after=2)
        assert torch.equal(trained(tmp_path / "run.ckpt"), whole)
