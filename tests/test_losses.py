import math

import pytest
import torch
import torch.nn.functional as F

from volmin import losses, noise
from volmin.losses import (
    backward_nll,
    cross_entropies,
    dmi_loss,
    forward_nll,
    generalized_cross_entropy,
    importance,
    joint_matrix,
    noisy_likelihood,
    revised_nll,
    reweighted_nll,
    smallest,
    total_variation,
    weighted_mean,
)

TWO = torch.tensor([[0.8, 0.3], [0.2, 0.7]], dtype=torch.double)


@pytest.fixture
def batch():
    """Logits, a random T that is far from symmetric, and labels, all of them of five classes."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(40, 5, generator=generator, dtype=torch.double).requires_grad_()
    T = torch.tensor(noise.pair(5, 0.3)) * 0.9 + 0.1 * torch.rand(5, 5, generator=generator).double()
    return logits, T / T.sum(0), torch.arange(40) % 5


@pytest.mark.parametrize("loss", [forward_nll, backward_nll, reweighted_nll, revised_nll])
def test_without_noise_every_correction_is_cross_entropy(batch, loss):
    logits, _, y = batch
    plain, corrected = F.cross_entropy(logits, y), loss(logits, torch.eye(5).double(), y)
    assert torch.isclose(plain, corrected)
    expected, found = torch.autograd.grad(plain, logits)[0], torch.autograd.grad(corrected, logits)[0]
    assert torch.allclose(expected, found, atol=1e-12)


def test_the_card_of_two_classes():
    """h = (p, 1 - p) and a T whose transpose would give other numbers."""
    logits = torch.tensor([[0.6, 0.4]], dtype=torch.double).log()
    y = torch.tensor([0])
    assert forward_nll(logits, TWO, y).item() == pytest.approx(-math.log(0.3 + 0.5 * 0.6))
    assert backward_nll(logits, TWO, y).item() == pytest.approx((-0.7 * math.log(0.6) + 0.2 * math.log(0.4)) / 0.5)
    assert importance(logits, TWO, y).item() == pytest.approx(0.6 / 0.6)


def test_the_gradient_of_forward(batch):
    logits, T, y = batch
    h = logits.softmax(1)
    noisy = (h @ T.T).gather(1, y[:, None])
    expected = (h - h * T[y] / noisy) / len(y)
    assert torch.allclose(torch.autograd.grad(forward_nll(logits, T, y), logits)[0], expected)


def test_the_gradient_of_forward_for_T(batch):
    logits, T, y = batch
    T = T.requires_grad_()
    assert torch.autograd.gradcheck(lambda logits, T: forward_nll(logits, T, y), (logits, T))
    # Where T holds zeros, too: the slope there is what an entry would gain.
    zeros = torch.tensor(noise.pair(5, 0.3), requires_grad=True)
    h = logits.detach().softmax(1)
    ratio = h / (h @ zeros.detach().T).gather(1, y[:, None])
    expected = -torch.zeros(5, 5).double().index_add(0, y, ratio) / len(y)
    assert torch.allclose(torch.autograd.grad(forward_nll(logits, zeros, y), zeros)[0], expected)


def test_backward_is_unbiased(batch):
    logits, T, _ = batch
    for clean in range(5):
        over_noise = sum(T[i, clean] * backward_nll(logits, T, torch.full((40,), i)) for i in range(5))
        assert torch.isclose(over_noise, F.cross_entropy(logits, torch.full((40,), clean)))


def test_backward_can_be_bounded_and_takes_a_singular_T():
    logits = torch.tensor([[80.0, -80.0]])
    y = torch.tensor([0])
    assert backward_nll(logits, TWO.float(), y) < -50
    assert backward_nll(logits, TWO.float(), y, clip=1e-7).item() == pytest.approx(0.4 * math.log(1e-7), rel=1e-5)
    assert backward_nll(logits, torch.full((2, 2), 0.5), y).isfinite()


def test_reweighting_gives_the_clean_risk_where_h_is_the_clean_posterior(batch):
    logits, T, _ = batch
    h = logits.softmax(1)
    noisy = h @ T.T
    labels = [torch.full((40,), i) for i in range(5)]
    over_noise = sum(noisy[:, i] * importance(logits, T, y) * cross_entropies(logits, y) for i, y in enumerate(labels))
    over_clean = sum(h[:, i] * cross_entropies(logits, y) for i, y in enumerate(labels))
    assert torch.allclose(over_noise, over_clean)


def test_weights_are_constants_in_reweighting_and_the_way_to_T_in_revision(batch):
    logits, T, y = batch
    slack = torch.zeros(5, 5, dtype=torch.double, requires_grad=True)
    reweighted, revised = reweighted_nll(logits, T + slack, y), revised_nll(logits, T + slack, y)
    assert torch.isclose(reweighted, revised)
    weights = importance(logits, T, y).detach()
    constant = torch.autograd.grad((weights * cross_entropies(logits, y)).mean(), logits)[0]
    assert torch.allclose(torch.autograd.grad(reweighted, logits, retain_graph=True)[0], constant)
    assert torch.autograd.grad(reweighted, slack, allow_unused=True)[0] is None
    assert not torch.allclose(torch.autograd.grad(revised, logits, retain_graph=True)[0], constant)


def test_the_gradient_of_the_slack(batch):
    logits, T, _ = batch
    y = torch.arange(40) % 4
    slack = torch.zeros(5, 5, dtype=torch.double, requires_grad=True)
    found = torch.autograd.grad(revised_nll(logits, T + slack, y), slack)[0]
    h = logits.softmax(1)
    own, noisy = h.gather(1, y[:, None]), (h @ T.T).gather(1, y[:, None])
    each = -cross_entropies(logits, y)[:, None] * own * h / noisy**2
    expected = torch.zeros(5, 5, dtype=torch.double).index_add(0, y, each / 40)
    assert torch.allclose(found, expected)
    assert found[4].abs().max() == 0


@pytest.mark.parametrize("loss", [forward_nll, reweighted_nll, revised_nll, noisy_likelihood])
def test_a_T_for_each_example(batch, loss):
    logits, T, y = batch
    each = torch.stack([T if k % 2 else T @ T for k in range(40)])
    odd = torch.arange(40) % 2 == 1
    mixed = loss(logits, each, y).mean()
    halves = 0.5 * loss(logits[odd], T, y[odd]).mean() + 0.5 * loss(logits[~odd], T @ T, y[~odd]).mean()
    assert torch.isclose(mixed, halves)


@pytest.mark.parametrize("loss", [forward_nll, backward_nll, reweighted_nll, revised_nll])
def test_a_batch_twice_is_the_same_batch(batch, loss):
    logits, T, y = batch
    assert torch.isclose(loss(logits, T, y), loss(logits.repeat(2, 1), T, y.repeat(2)))


def test_noise_adds_a_constant_to_dmi(batch):
    _, T, _ = batch
    clean = torch.rand(5, 5, generator=torch.Generator().manual_seed(1)).double() + torch.eye(5)
    clean = clean / clean.sum()
    # Up to the floor that keeps a singular joint matrix finite.
    assert torch.isclose(dmi_loss(T @ clean) - dmi_loss(clean), -torch.linalg.det(T).abs().log(), atol=1e-3)


def test_dmi_of_a_perfect_and_a_constant_predictor_and_of_permuted_outputs(batch):
    logits, _, y = batch
    perfect = joint_matrix(1e3 * F.one_hot(y).double(), y)
    assert torch.allclose(perfect, torch.eye(5).double() / 5)
    assert dmi_loss(perfect).item() == pytest.approx(5 * math.log(5), abs=1e-6)
    assert dmi_loss(joint_matrix(torch.zeros(40, 5).double(), y)) > dmi_loss(joint_matrix(logits, y)) + 5
    order = torch.tensor([3, 1, 4, 0, 2])
    assert torch.isclose(dmi_loss(joint_matrix(logits, y)), dmi_loss(joint_matrix(logits[:, order], y)))


def test_the_gradient_of_dmi():
    U = (torch.eye(4).double() + 0.1 * torch.rand(4, 4, generator=torch.Generator().manual_seed(0))).div(4)
    U.requires_grad_()
    assert torch.allclose(torch.autograd.grad(dmi_loss(U), U)[0], -torch.linalg.inv(U).T, rtol=1e-4, atol=1e-4)


def test_dmi_learns_from_a_batch_in_which_classes_are_missing():
    """A hundred classes, 64 examples: the plain determinant is zero and has no gradient."""
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(100, (64,), generator=generator)
    logits = (torch.randn(64, 100, generator=generator) + 3 * F.one_hot(y, 100)).requires_grad_()
    before = dmi_loss(joint_matrix(logits, y))
    gradient = torch.autograd.grad(before, logits)[0]
    assert gradient.isfinite().all()
    assert dmi_loss(joint_matrix(logits - gradient / gradient.norm(), y)) < before - 1e-3


def test_generalized_cross_entropy():
    p = torch.tensor([0.05, 0.3, 0.5, 1.0], dtype=torch.double)
    assert torch.allclose(generalized_cross_entropy(p.log(), 1.0), 1 - p)
    assert torch.allclose(generalized_cross_entropy(p.log(), 1e-4), -p.log(), atol=1e-3)
    assert generalized_cross_entropy(p.log(), 0.7)[2].item() == pytest.approx(0.5491826, abs=1e-7)
    assert generalized_cross_entropy(torch.tensor(-200.0), 0.7).item() == pytest.approx(1 / 0.7)


def test_the_gradient_and_the_bounds_of_generalized_cross_entropy(batch):
    logits, _, y = batch
    h = logits.softmax(1)
    own = h.gather(1, y[:, None])
    found = torch.autograd.grad(generalized_cross_entropy(-cross_entropies(logits, y), 0.7).sum(), logits)[0]
    assert torch.allclose(found, -(own**0.7) * (F.one_hot(y, 5) - h))
    over_labels = generalized_cross_entropy(h.log(), 0.7).sum(1)
    assert (over_labels >= (5 - 5**0.3) / 0.7 - 1e-9).all()
    assert (over_labels <= 4 / 0.7).all()


def test_total_variation():
    corners = torch.eye(4)
    pairs = total_variation(corners[:, None], corners[None])
    assert torch.equal(pairs, 1 - torch.eye(4))
    assert pairs.mean().item() == pytest.approx(1 - 1 / 4)


def test_the_smallest_losses_are_kept():
    values = torch.tensor([3.0, 1.0, 2.0, 5.0], requires_grad=True)
    kept = smallest(values, 0.5)
    assert kept.tolist() == [0, 1, 1, 0]
    loss = weighted_mean(values, kept)
    assert loss.item() == 1.5
    assert torch.autograd.grad(loss, values)[0].tolist() == [0, 0.5, 0.5, 0]


@pytest.mark.parametrize(
    ("keep", "count", "kept"), [(0.55, 128, 70), (0.7, 10, 7), (0.8, 10, 8), (0.1, 4, 1), (1, 3, 3)]
)
def test_how_many_are_kept(keep, count, kept):
    values = torch.randn(count, generator=torch.Generator().manual_seed(0))
    assert smallest(values, keep).sum() == kept
    assert smallest(values, torch.tensor(float(keep))).sum() == kept


def test_ties_go_by_order_and_only_candidates_are_kept():
    assert smallest(torch.zeros(4), 0.5).tolist() == [1, 1, 0, 0]
    among = torch.tensor([False, True, True, True])
    assert smallest(torch.tensor([0.0, 3.0, 1.0, 2.0]), 0.7, among).tolist() == [0, 0, 1, 1]
    assert smallest(torch.tensor([0.0, 3.0, 1.0]), 0.1, torch.tensor([False, True, False])).tolist() == [0, 1, 0]
    assert smallest(torch.ones(3), 0.5, torch.zeros(3, dtype=torch.bool)).tolist() == [0, 0, 0]


def test_the_mean_of_nothing_is_zero_and_few_may_weigh_less():
    values = torch.tensor([2.0, 4.0])
    assert weighted_mean(values, torch.zeros(2)) == 0
    assert weighted_mean(values, torch.tensor([0.0, 1.0]), least=12.8).item() == pytest.approx(4 / 12.8)


def test_underflowing_probabilities_stay_finite():
    logits, y = torch.tensor([[500.0, -500.0]]).requires_grad_(), torch.tensor([1])
    for loss in (forward_nll, reweighted_nll, revised_nll):
        value = loss(logits, torch.eye(2), y)
        assert value.isfinite(), loss
        assert torch.autograd.grad(value, logits)[0].isfinite().all(), loss
    assert losses.importance(logits, TWO.float(), y).item() == 0


@pytest.mark.parametrize("loss", [losses.forward_nll, losses.backward_nll, losses.noisy_likelihood])
@pytest.mark.parametrize("per_example", [False, True])
def test_one_row_of_logits_is_not_taken_for_all_labels(loss, per_example):
    T = torch.eye(3).expand(4, 3, 3) if per_example and loss is not losses.backward_nll else torch.eye(3)
    with pytest.raises(ValueError, match="y must hold a label for each of the 1 rows|T is for 4 rows"):
        loss(torch.zeros(1, 3), T, torch.tensor([0, 1, 2, 0]))


def single_precision(num_classes, scale=1.0, count=30):
    """Logits, T and labels that the compiled loop takes."""
    generator = torch.Generator().manual_seed(num_classes)
    logits = scale * torch.randn(count, num_classes, generator=generator)
    T = torch.tensor(noise.pair(num_classes, 0.3), dtype=torch.float32)
    return logits, T, torch.arange(count) % num_classes


@pytest.mark.parametrize("num_classes", [2, 3, 10, 200])
def test_the_compiled_loss_is_the_loss(num_classes):
    logits, T, y = single_precision(num_classes)
    assert losses._can_be_compiled(logits, T, y)
    found, expected = (
        losses.forward_nll_and_slopes(logits.to(dtype), T.to(dtype), y)[:3] for dtype in (torch.float32, torch.double)
    )
    for ours, wanted in zip(found, expected, strict=True):
        assert ours.dtype == torch.float32
        assert torch.allclose(ours.double(), wanted, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("scale", [1.0, 60.0])
def test_the_compiled_loss_and_that_of_torch_agree_where_labels_are_all_but_impossible(monkeypatch, scale):
    # T holds zeros, and large logits leave nothing of some probabilities.
    batch = single_precision(10, scale, count=500)
    found = losses.forward_nll_and_slopes(*batch)
    monkeypatch.setattr(losses, "numba_is_here", lambda: False)
    assert not losses._can_be_compiled(*batch)
    for ours, wanted in zip(found[:3], losses.forward_nll_and_slopes(*batch)[:3], strict=True):
        assert torch.allclose(ours, wanted, rtol=1e-4, atol=1e-6)


def test_the_compiled_loss_takes_tensors_in_any_order_in_memory():
    logits, T, y = single_precision(10)
    strewn = logits.T.contiguous().T, T.T.contiguous().T, y.repeat_interleave(2)[::2]
    for ours, wanted in zip(
        losses.forward_nll_and_slopes(*strewn)[:3], losses.forward_nll_and_slopes(logits, T, y)[:3], strict=True
    ):
        assert torch.equal(ours, wanted)


@pytest.mark.parametrize("label", [-1, 10])
def test_the_compiled_loss_refuses_labels_that_are_no_classes(label):
    logits, T, y = single_precision(10)
    y[7] = label
    with pytest.raises(ValueError, match="y "):
        forward_nll(logits, T, y)


def test_the_compiled_loss_does_not_hide_what_is_no_number():
    logits, T, y = single_precision(10)
    logits[3, 4] = math.nan
    loss, for_logits, *_ = losses.forward_nll_and_slopes(logits, T, y)
    assert loss.isnan()
    assert for_logits[3].isnan().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.double])
@pytest.mark.parametrize("num_classes", [2, 10])
def test_the_loss_of_the_parameters_of_T_has_the_gradient_that_autograd_finds(num_classes, dtype):
    generator = torch.Generator().manual_seed(0)
    logits, _, y = single_precision(num_classes)
    logits = logits.to(dtype).requires_grad_()
    w, tilt = (torch.randn(num_classes, num_classes, generator=generator, dtype=dtype) for _ in range(2))
    w = (w - 2).requires_grad_()  # far from singular, where the volume is the logarithm of the determinant
    T = torch.sigmoid(w).masked_fill(torch.eye(num_classes, dtype=torch.bool), 1)
    T = T / T.sum(0)
    nll = F.nll_loss((logits.softmax(1) @ T.T).log(), y)
    for terms, extra in (({"tilt": tilt}, (tilt * T).sum()), ({"lam": 0.3}, 0.3 * T.double().slogdet().logabsdet)):
        found, *slopes, _ = losses.dominant_nll_and_slopes(logits, w, y, **terms)
        assert torch.allclose(found.double(), (nll + extra).double(), rtol=1e-4)
        wanted = torch.autograd.grad(nll + extra, (logits, w), retain_graph=True)
        for ours, slope in zip(slopes, wanted, strict=True):
            assert torch.allclose(ours, slope, rtol=1e-3, atol=1e-5)
