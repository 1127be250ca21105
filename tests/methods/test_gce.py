import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from volmin import Recipe, fit, networks
from volmin.data import Batch, TensorLoader
from volmin.exceptions import InputError
from volmin.methods import GCE


def table(*probs):
    """A network of two classes that gives class 0 these probabilities in rows 0, 1, ..."""
    p = torch.tensor(probs)
    return nn.Embedding.from_pretrained(torch.stack([p, 1 - p], 1).log(), freeze=False)


def test_examples_with_improbable_labels_are_left_out_by_index():
    net = table(0.9, 0.2, 0.6, 0.4)
    method = GCE(net, 2, truncate=0.5)
    y = torch.zeros(4, dtype=torch.long)
    shuffled = torch.tensor([2, 0, 3, 1])
    with torch.no_grad():
        method.select([Batch(shuffled, y, shuffled)])
    assert method.kept.tolist() == [1, 0, 1, 0]
    loss = method.truncated_loss(Batch(torch.arange(4), y, torch.arange(4)), 0)
    gradient = torch.autograd.grad(loss, net.weight)[0].abs().sum(1)
    assert (gradient > 0).tolist() == [True, False, True, False]
    each = [(1 - p**0.7) / 0.7 - (1 - 0.5**0.7) / 0.7 for p in (0.9, 0.6)]
    assert loss.item() == pytest.approx(sum(each) / 4, rel=1e-4)


def test_truncation_at_zero_shifts_the_loss_by_a_constant():
    method = GCE(table(0.9, 0.2, 0.6, 0.4), 2, truncate=0.0)
    batch = Batch(torch.arange(4), torch.zeros(4, dtype=torch.long), torch.arange(4))
    with torch.no_grad():
        method.select([batch])
    assert (method.loss(batch, 0) - method.truncated_loss(batch, 0)).item() == pytest.approx(1 / 0.7, rel=1e-5)


def test_phases_of_the_truncated_form_share_one_optimizer():
    method = GCE(networks.mlp(2, 2), 2, truncate=0.5)
    phases = method.phases(Recipe(epochs=120, milestones=(40, 80)))
    assert [phase.epochs for phase in phases] == [40] + 8 * [10]
    factors = [phase.schedule(0.0) for phase in phases if phase.schedule is not None]
    assert factors == pytest.approx([1, *4 * [0.1], *4 * [0.01]])
    assert len({id(phase.optimizers()[0]) for phase in phases}) == 1
    assert sum(phase.epochs for phase in method.phases(Recipe(epochs=7))) == 7


def test_truncation_requires_a_loader_with_indices():
    data = DataLoader(TensorDataset(torch.randn(20, 2), torch.arange(20) % 2), batch_size=10)
    with pytest.raises(InputError, match=r"\(x, y, index\)"):
        fit(GCE(networks.mlp(2, 2), 2, truncate=0.5), data, recipe=Recipe(epochs=3))
    fit(GCE(networks.mlp(2, 2), 2), data, recipe=Recipe(epochs=1))


def test_state_dict_loads_into_a_new_method():
    method = GCE(networks.mlp(2, 2), 2, truncate=0.5)
    fit(method, TensorLoader(torch.randn(20, 2), torch.arange(20) % 2, 10), recipe=Recipe(epochs=3))
    fresh = GCE(networks.mlp(2, 2), 2, truncate=0.5)
    fresh.load_state_dict(method.state_dict())
    assert torch.equal(fresh.kept, method.kept)
    assert len(fresh.kept) == 20


@pytest.mark.parametrize("q", [0, 1.5])
def test_q_outside_its_range_is_rejected(q):
    with pytest.raises(InputError, match="q must"):
        GCE(networks.mlp(2, 2), 2, q=q)
