import torch

from volmin import Recipe, fit, networks, noise, transition_error
from volmin.data import Batch, TensorLoader
from volmin.methods import TRevision

PAIR = noise.pair(3, 0.3)


def revision(**options):
    torch.manual_seed(0)
    return TRevision(networks.mlp(3, 3, (8,)), 3, T=PAIR.tolist(), **options)


def batch():
    generator = torch.Generator().manual_seed(0)
    return Batch(torch.randn(30, 3, generator=generator), torch.arange(30) % 3)


def test_without_slack_revision_is_reweighting():
    method = revision()
    assert torch.isclose(method.loss(batch(), 0), method.revision_loss(batch(), 0))


def test_slack_is_trained_in_revision_and_added_once():
    method = revision()
    _, revise = method.phases(Recipe())
    (optimizer,) = revise.optimizers()
    assert any(p is method.slack for group in optimizer.param_groups for p in group["params"])
    assert optimizer.defaults["lr"] == 5e-7
    gradient = torch.autograd.grad(method.revision_loss(batch(), 0), method.slack)[0]
    assert gradient.abs().min() > 0
    with torch.no_grad():
        method.slack[0, 1] = 0.25
    assert torch.allclose(method.transition(), torch.tensor(PAIR).float() + method.slack)
    twice = Batch(batch().x.repeat(2, 1), batch().y.repeat(2))
    assert torch.isclose(method.revision_loss(batch(), 0), method.revision_loss(twice, 0))


def test_projected_T_is_stochastic_for_any_slack():
    method = revision(project=True)
    with torch.no_grad():
        method.slack.uniform_(-1, 1)
    T = method.transition()
    assert T.min() >= 0
    assert torch.allclose(T.sum(0), torch.ones(3))
    assert not torch.allclose(T, torch.tensor(PAIR).float(), atol=0.05)


def test_correct_T_is_hardly_revised():
    method = revision()
    y = torch.arange(300) % 3
    x = 3 * torch.eye(3)[y] + 0.5 * torch.randn(300, 3, generator=torch.Generator().manual_seed(0))
    fit(method, TensorLoader(x, noise.corrupt(y.numpy(), PAIR, 0), 50), recipe=Recipe(epochs=10, lr=0.05))
    assert 0 < transition_error(PAIR, method.transition()) < 0.05
