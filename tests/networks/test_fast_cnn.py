import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.datasets import load_sample_image

from volmin import networks
from volmin.networks.fast_cnn import IdentityConv2d, Whitening


@pytest.mark.parametrize(("channels", "side", "stem"), [(3, 32, 24), (1, 28, 8), (4, 16, 32)])
def test_small_images_are_accepted(channels, side, stem):
    net = networks.build("fast_cnn", (channels, side, side), 10)
    assert net(torch.zeros(2, channels, side, side)).shape == (2, 10)
    weights = 9 * (stem * 32 + 32 * 32 + 32 * 128 + 3 * 128 * 128) + 128 * 10
    assert sum(p.numel() for p in net.parameters()) == weights + stem + 4 * (32 + 128 + 128) + 10


@pytest.fixture(scope="module", params=["china.jpg", "flower.jpg"])
def photograph(request):
    """A photograph, (1, 3, H, W), shrunk to the sharpness of small images, each colour with mean 0 and deviation 1."""
    pixels = torch.tensor(np.array(load_sample_image(request.param)), dtype=torch.float32)
    small = F.avg_pool2d(pixels.permute(2, 0, 1)[None], 8)
    std, mean = torch.std_mean(small, dim=(0, 2, 3), keepdim=True)
    return (small - mean) / std


def spread(channels):
    """Largest over smallest variance of the components of (1, C, H, W)."""
    return torch.linalg.cond(torch.cov(channels[0].flatten(1)))


def test_patches_of_a_photograph_are_whitened(photograph):
    whitened = Whitening(3)(photograph).detach()[:, :12]
    patches = F.unfold(photograph, 2).view(1, 12, *whitened.shape[2:])
    assert spread(whitened) < spread(patches) / 20
    # Of the patches themselves, brightness varies ten thousand times as much as the finest contrast of colours.
    assert whitened.var((2, 3)).max() < 20 * whitened.var((2, 3)).min()


@pytest.mark.parametrize("channels", [1, 3, 5])
def test_both_signs_of_orthogonal_components(channels):
    filters = Whitening(channels).filters.flatten(1)
    one, other = filters.chunk(2)
    assert torch.equal(one, -other)
    products = one @ one.T
    assert torch.allclose(products, products.diag().diag(), atol=1e-3)
    assert torch.linalg.matrix_rank(one) == 4 * channels


def test_only_the_bias_of_whitening_is_trained():
    whitening = Whitening(3)
    assert [name for name, _ in whitening.named_parameters()] == ["bias"]
    with torch.no_grad():
        whitening.bias.fill_(1)
    whitening.reset_parameters()
    assert whitening.bias.abs().sum() == 0


def test_convolutions_start_as_the_identity():
    x = torch.randn(2, 5, 8, 8)
    wider = IdentityConv2d(5, 9, 3, padding=1, bias=False)
    assert torch.equal(wider(x)[:, :5], x)
    assert wider(x)[:, 5:].std() > 0
    assert torch.equal(IdentityConv2d(5, 3, 3, padding=1, bias=False)(x), x[:, :3])


def test_two_networks_have_different_initial_weights():
    x = torch.randn(4, 3, 32, 32)
    net = networks.fast_cnn()
    twin = networks.fresh_copy(net)
    assert not torch.allclose(net.eval()(x), twin.eval()(x))


def test_initial_logits_are_near_zero():
    torch.manual_seed(0)
    assert networks.fast_cnn()(torch.randn(64, 3, 32, 32)).std() < 0.8


def test_half_precision_rounds_features_only():
    torch.manual_seed(0)
    net, x = networks.fast_cnn().eval(), torch.randn(8, 3, 32, 32)
    exact = net(x)
    with torch.autocast("cpu", torch.bfloat16):
        features, logits = networks.features_and_logits(net, x)
    assert logits.dtype == torch.float32
    assert torch.equal(features, features.bfloat16().float())
    assert not torch.equal(logits, logits.bfloat16().float())
    assert 0 < (logits - exact).abs().max() < 0.05 * exact.std()


def test_mirror_images_have_the_same_logits_in_evaluation_only():
    torch.manual_seed(0)
    net, x = networks.fast_cnn(mirrored=True), torch.randn(8, 3, 32, 32)
    assert not torch.allclose(net(x), net(x.flip(3)), atol=1e-3)
    assert torch.allclose(net.eval()(x), net(x.flip(3)), atol=1e-5)
    plain = networks.fast_cnn().eval()
    plain.load_state_dict(net.state_dict())
    assert torch.allclose(net(x), (plain(x) + plain(x.flip(3))) / 2, atol=1e-5)
