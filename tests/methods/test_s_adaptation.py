import numpy as np
import pytest
import torch
from torch import nn

from volmin import networks, noise
from volmin.data import Batch, TensorLoader
from volmin.exceptions import InputError
from volmin.losses import forward_nll
from volmin.methods import SAdaptation

BATCH = Batch(torch.randn(12, 3, generator=torch.Generator().manual_seed(0)), torch.arange(12) % 3)


def build(**options):
    torch.manual_seed(0)
    return SAdaptation(networks.mlp(3, 3, (8,)), 3, **options)


def test_untrained_layer_is_the_identity():
    method = build()
    assert torch.allclose(method.transition(), torch.eye(3), atol=1e-6)
    assert torch.isclose(method.loss(BATCH, 0), method.cross_entropy(BATCH, 0), atol=1e-5)


def test_simple_model_is_forward_correction_with_a_softmax_T():
    method = build()
    T = torch.tensor(noise.pair(3, 0.3), dtype=torch.float32)
    method.noise.start_at(T)
    assert torch.allclose(method.transition(), T, atol=1e-6)
    assert torch.isclose(method.loss(BATCH, 0), forward_nll(method(BATCH.x), T, BATCH.y), atol=1e-5)


def test_complex_model_starts_as_the_simple_one():
    simple, extended = build(), build(model="complex")
    T = torch.tensor(noise.pair(3, 0.3), dtype=torch.float32)
    for method in (simple, extended):
        method.noise.start_at(T)
    assert torch.isclose(simple.loss(BATCH, 0), extended.loss(BATCH, 0))
    assert extended.slopes is not None
    nn.init.normal_(extended.slopes.weight)
    each = extended.transition(BATCH.x)
    assert each.shape == (12, 3, 3)
    assert torch.allclose(each.sum(1), torch.ones(12, 3))
    assert not torch.allclose(each[0], each[1], atol=1e-3)


def test_layer_starts_at_the_noise_if_predictions_are_perfect():
    clean = torch.arange(300) % 3
    noisy = noise.corrupt(clean.numpy(), noise.pair(3, 0.3), 0)
    counts = np.zeros((3, 3))
    np.add.at(counts, (noisy, clean.numpy()), 1)
    method = SAdaptation(nn.Embedding.from_pretrained(5 * torch.eye(3)[clean], freeze=False), 3)
    with torch.no_grad():
        method.start_at_confusion(TensorLoader(torch.arange(300), noisy, 100))
    np.testing.assert_allclose(method.transition().detach(), counts / counts.sum(0), atol=1e-5)


def test_class_that_is_never_predicted_gets_an_identity_column():
    method = SAdaptation(nn.Embedding.from_pretrained(torch.eye(3)[[0, 1]]), 3)
    method.start_at_confusion(TensorLoader(torch.tensor([0, 1, 0, 1]), torch.tensor([0, 1, 1, 2]), 4))
    expected = torch.tensor([[0.5, 0.0, 0.0], [0.5, 0.5, 0.0], [0.0, 0.5, 1.0]])
    assert torch.allclose(method.transition(), expected, atol=1e-6)


def test_beta_is_the_weight_of_plain_cross_entropy():
    T = torch.tensor(noise.pair(3, 0.3), dtype=torch.float32)
    plain, half = build(), build(beta=0.5)
    for method in (plain, half):
        method.noise.start_at(T)
    expected = 0.5 * plain.loss(BATCH, 0) + 0.5 * plain.cross_entropy(BATCH, 0)
    assert torch.isclose(half.loss(BATCH, 0), expected, atol=1e-6)
    with pytest.raises(InputError, match="complex"):
        build(model="c")
