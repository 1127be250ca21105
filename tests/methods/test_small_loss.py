"""Co-teaching, Co-teaching+, MentorNet and Decoupling on networks with prescribed outputs."""

import pytest
import torch
from torch import nn

from volmin import Recipe, fit, networks
from volmin.data import Batch, TensorLoader
from volmin.exceptions import InputError
from volmin.losses import cross_entropies, curriculum_weights
from volmin.methods import CoTeaching, CoTeachingPlus, Decoupling, MentorNet


def pair_of(method, logits, peer_logits, **options):
    """A method whose two networks are tables of logits."""
    built = method(nn.Embedding.from_pretrained(torch.zeros_like(logits).normal_(), freeze=False), 3, **options)
    built.net.weight.data.copy_(logits)
    built.peer.weight.data.copy_(peer_logits)
    return built


def with_losses(losses):
    """Logits of three classes with the given cross-entropies of class 0."""
    p = (-torch.tensor(losses)).exp()
    return torch.stack([p, (1 - p) / 2, (1 - p) / 2], 1).log()


def predicting(*classes):
    return 2 * torch.eye(3)[list(classes)] + 0.1 * torch.arange(3)


def rows_with_gradient(loss, table):
    return torch.autograd.grad(loss, table, retain_graph=True)[0].abs().sum(1).nonzero().flatten().tolist()


FOUR = Batch(torch.arange(4), torch.zeros(4, dtype=torch.long))


def test_co_teaching_trains_each_network_on_the_selection_of_its_peer():
    method = pair_of(CoTeaching, with_losses([1.0, 2, 3, 4]), with_losses([4.0, 3, 2, 1]), noise_rate=0.5)
    loss = method.loss(FOUR, keep=0.5, done=0.5)
    assert rows_with_gradient(loss, method.net.weight) == [2, 3]
    assert rows_with_gradient(loss, method.peer.weight) == [0, 1]
    assert loss.item() == pytest.approx((3 + 4) / 2 * 2, rel=1e-5)


def test_co_teaching_that_keeps_all_examples_is_cross_entropy():
    method = pair_of(CoTeaching, with_losses([1.0, 2, 3, 4]), with_losses([4.0, 3, 2, 2]), noise_rate=0.0)
    assert method.loss(FOUR, keep=1.0, done=0.5).item() == pytest.approx(10 / 4 + 11 / 4, rel=1e-5)


def test_share_of_dropped_examples_rises_to_the_noise_rate():
    method = CoTeaching(networks.mlp(2, 3), 3, noise_rate=0.45)
    assert [round(1 - method.keep(epoch, 10).item(), 4) for epoch in (0, 3, 9, 50)] == [0, 0.15, 0.45, 0.45]
    assert method.keep(1, 1).item() == pytest.approx(0.55)


def test_late_decay_of_the_learning_rate():
    factor = Recipe(epochs=200, schedule="late_decay").learning_rate_schedule()
    assert factor is not None
    assert [factor(done) for done in (0, 80, 140, 200)] == pytest.approx([1, 1, 0.5, 0])


@pytest.mark.parametrize("method", [CoTeaching, CoTeachingPlus, Decoupling])
def test_networks_start_at_different_weights(method):
    built = method(networks.mlp(2, 3), 3)
    assert not torch.equal(networks.last_linear(built.net).weight, networks.last_linear(built.peer).weight)


def test_co_teaching_plus_selects_among_disagreements():
    y = torch.zeros(4, dtype=torch.long)
    logits, peer_logits = predicting(0, 1, 1, 2), predicting(0, 2, 0, 2)
    method = pair_of(CoTeachingPlus, logits, peer_logits, noise_rate=0.5)
    loss = method.loss(Batch(torch.arange(4), y), keep=0.5, done=0.5)
    among = [1, 2]
    easiest = min(among, key=lambda k: cross_entropies(peer_logits, y)[k].item())
    assert rows_with_gradient(loss, method.net.weight) == [easiest]
    early = method.loss(Batch(torch.arange(4), y), keep=1.0, done=0.0)
    assert rows_with_gradient(early, method.net.weight) == [0, 1, 2, 3]


@pytest.mark.parametrize(("method", "options"), [(CoTeachingPlus, {"noise_rate": 0.2, "start": 0.0}), (Decoupling, {})])
def test_networks_that_agree_are_not_updated(method, options):
    torch.manual_seed(0)
    built = method(networks.mlp(2, 3), 3, **options)
    built.peer.load_state_dict(built.net.state_dict())
    before = {name: value.clone() for name, value in built.state_dict().items()}
    data = TensorLoader(torch.randn(40, 2), torch.arange(40) % 3, 20)
    fit(built, data, recipe=Recipe(epochs=2, optimizer="adam", weight_decay=0))
    assert all(torch.equal(value, before[name]) for name, value in built.state_dict().items())


@pytest.mark.parametrize(("least", "divisor"), [(0.0, 2), (0.9, 3.6)])
def test_decoupling_trains_on_disagreements_only(least, divisor):
    logits, peer_logits = predicting(0, 1, 1, 2), predicting(0, 2, 1, 0)
    method = pair_of(Decoupling, logits, peer_logits, least=least)
    loss = method.loss(FOUR, 0)
    each = cross_entropies(logits, FOUR.y) + cross_entropies(peer_logits, FOUR.y)
    assert loss.item() == pytest.approx((each[1] + each[3]).item() / divisor, rel=1e-5)
    assert rows_with_gradient(loss, method.net.weight) == [1, 3]
    assert rows_with_gradient(loss, method.peer.weight) == [1, 3]


def test_mentornet_keeps_the_examples_of_smallest_loss():
    table = nn.Embedding.from_pretrained(with_losses([3.0, 1, 2, 5]), freeze=False)
    method = MentorNet(table, 3, noise_rate=0.5)
    loss = method.loss(FOUR, keep=0.5, done=0.5)
    assert loss.item() == pytest.approx(1.5, rel=1e-5)
    assert rows_with_gradient(loss, table.weight) == [1, 2]


def test_weights_of_the_curricula():
    losses, excess = torch.tensor([2.0, 0.5]), torch.tensor([0.3, -1.2])

    def weights(name, done=0.5, gamma=1.0):
        return [round(w, 4) for w in curriculum_weights(name, losses, excess, done, gamma).tolist()]

    assert [weights("predefined", done) for done in (0.10, 0.50, 0.95)] == [[1, 1], [0, 1], [0.7, 1]]
    assert weights("self_paced") == [0, 1]
    assert weights("hard") == [1, 0]
    assert weights("linear", gamma=0.6) == [0.5, 1]
    assert weights("focal", gamma=2) == pytest.approx([(1 - 0.1353) ** 2, (1 - 0.6065) ** 2], abs=1e-3)


def test_moving_percentile_of_the_losses():
    table = nn.Embedding.from_pretrained(with_losses([2.0] * 4))
    method = MentorNet(table, 3, curriculum="self_paced")
    seen = []
    for _ in range(3):
        method.loss(FOUR, keep=1.0, done=0.5)
        seen.append(method.threshold.item())
    assert seen == pytest.approx([1, 1.5, 1.75], rel=1e-5)


def test_warm_up_is_run_only_for_an_unknown_noise_rate():
    def names(method):
        return [phase.name for phase in method.phases(Recipe(epochs=10))]

    net = networks.mlp(2, 3)
    assert names(CoTeaching(net, 3)) == ["warm-up", "train"]
    assert names(CoTeaching(net, 3, noise_rate=0.2)) == ["train"]
    assert names(MentorNet(net, 3, curriculum="linear")) == ["train"]
    with pytest.raises(InputError, match="noise_rate"):
        CoTeaching(net, 3, noise_rate=1.2)
    with pytest.raises(InputError, match="small_loss"):
        MentorNet(net, 3, curriculum="hardest")  # pyright: ignore[reportArgumentType]


def test_noise_rate_is_estimated():
    """Exact posteriors of separable classes under 25 % noise."""
    labels = torch.arange(400) % 4
    clean = torch.arange(400) // 100
    T = 0.75 * torch.eye(4) + 0.25 * torch.eye(4).roll(1, 0)
    y = torch.where(labels > 0, clean, (clean + 1) % 4)
    table = nn.Embedding.from_pretrained(T.T[clean].clamp_min(1e-6).log(), freeze=False)
    method = MentorNet(table, 4)
    with torch.no_grad():
        method.estimate_noise_rate(TensorLoader(torch.arange(400), y, 100))
    assert method.noise_rate.item() == pytest.approx(0.25, abs=0.01)
