import pytest
import torch
from torch import nn

from volmin import Recipe, noise
from volmin.data import Batch
from volmin.losses import forward_nll
from volmin.methods import TV


def table_of(clean, num_classes):
    """A network that predicts the given classes with certainty."""
    return nn.Embedding.from_pretrained(200 * torch.eye(num_classes)[clean])


def test_T_starts_with_a_diagonal_of_one_half():
    T = TV(table_of([0], 5), 5).transition()
    assert torch.allclose(T.diagonal(), torch.full((5,), 0.5))
    assert torch.allclose(T.sum(0), torch.ones(5))
    assert TV(table_of([0], 2), 2).transition()[0, 0].item() == pytest.approx(0.8)


def test_total_variation_lowers_the_loss():
    clean = torch.arange(3000) % 3
    method = TV(table_of(clean, 3), 3, gamma=0.1)
    batch = Batch(torch.arange(3000), clean)
    torch.manual_seed(0)
    gap = forward_nll(method(batch.x), method.transition(), batch.y) - method.loss(batch, 0)
    assert gap.item() == pytest.approx(0.1 * (1 - 1 / 3), abs=0.005)


def test_concentrations_accumulate_counts():
    """Four rows of class 0 with labels 0, 0, 0, 1 and four of class 1 with label 1."""
    method = TV(table_of([0] * 4 + [1] * 4, 2), 2, dirichlet=True)
    method.A.copy_(10 * torch.eye(2) + 1e-9)
    method.loss(Batch(torch.arange(8), torch.tensor([0, 0, 0, 1, 1, 1, 1, 1])), 0)
    assert torch.allclose(method.A, torch.tensor([[10.02, 0.0], [0.01, 10.03]]), atol=1e-5)
    assert [len(phase.optimizers()) for phase in method.phases(Recipe())] == [1]


def test_counts_converge_to_the_noise_if_predictions_are_correct():
    clean = torch.arange(200) % 4
    y = torch.tensor(noise.corrupt(clean.numpy(), noise.pair(4, 0.3), 0))
    method = TV(table_of(clean, 4), 4, dirichlet=True, concentration=1.0)
    torch.manual_seed(0)
    for _ in range(800):
        method.loss(Batch(torch.arange(200), y), 0)
    empirical = torch.stack([torch.bincount(y[clean == j], minlength=4) / 50 for j in range(4)], 1)
    assert torch.allclose(method.transition(), empirical, atol=0.01)
    # The concentrations sum to ten times the batch size in the limit.
    assert method.A.sum().item() == pytest.approx(2000 * (1 - 0.999**800), rel=0.01)
