import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from volmin.exceptions import InputError
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

BINARY = torch.tensor([[0.8, 0.3], [0.2, 0.7]], dtype=torch.double)
Batch = tuple[Tensor, Tensor, Tensor]


@pytest.mark.parametrize("loss", [forward_nll, backward_nll, reweighted_nll, revised_nll])
def test_corrected_losses_equal_cross_entropy_without_noise(batch: Batch, loss):
    logits, _, y = batch
    plain, corrected = F.cross_entropy(logits, y), loss(logits, torch.eye(5).double(), y)
    assert torch.isclose(plain, corrected)
    expected, found = torch.autograd.grad(plain, logits)[0], torch.autograd.grad(corrected, logits)[0]
    assert torch.allclose(expected, found, atol=1e-12)


def test_two_class_closed_form():
    """The posterior is (0.6, 0.4), and the transpose of T would give other numbers."""
    logits = torch.tensor([[0.6, 0.4]], dtype=torch.double).log()
    y = torch.tensor([0])
    assert forward_nll(logits, BINARY, y).item() == pytest.approx(-math.log(0.3 + 0.5 * 0.6))
    assert backward_nll(logits, BINARY, y).item() == pytest.approx((-0.7 * math.log(0.6) + 0.2 * math.log(0.4)) / 0.5)
    assert importance(logits, BINARY, y).item() == pytest.approx(0.6 / 0.6)


def test_backward_nll_is_unbiased_for_the_clean_cross_entropy(batch: Batch):
    logits, T, _ = batch
    for clean in range(5):
        over_noise = [T[i, clean] * backward_nll(logits, T, torch.full((40,), i)) for i in range(5)]
        assert torch.isclose(torch.stack(over_noise).sum(), F.cross_entropy(logits, torch.full((40,), clean)))


def test_backward_nll_is_bounded_by_clip_and_accepts_a_singular_T():
    logits = torch.tensor([[80.0, -80.0]])
    y = torch.tensor([0])
    assert backward_nll(logits, BINARY.float(), y) < -50
    assert backward_nll(logits, BINARY.float(), y, clip=1e-7).item() == pytest.approx(0.4 * math.log(1e-7), rel=1e-5)
    assert backward_nll(logits, torch.full((2, 2), 0.5), y).isfinite()


def test_reweighting_gives_the_clean_risk_when_h_is_the_clean_posterior(batch: Batch):
    logits, T, _ = batch
    h = logits.softmax(1)
    noisy = h @ T.T
    labels = [torch.full((40,), i) for i in range(5)]
    over_noise = [noisy[:, i] * importance(logits, T, y) * cross_entropies(logits, y) for i, y in enumerate(labels)]
    over_clean = [h[:, i] * cross_entropies(logits, y) for i, y in enumerate(labels)]
    assert torch.allclose(torch.stack(over_noise).sum(0), torch.stack(over_clean).sum(0))


def test_importance_weights_are_constant_in_reweighting_and_differentiated_in_revision(batch: Batch):
    logits, T, y = batch
    slack = torch.zeros(5, 5, dtype=torch.double, requires_grad=True)
    reweighted, revised = reweighted_nll(logits, T + slack, y), revised_nll(logits, T + slack, y)
    assert torch.isclose(reweighted, revised)
    weights = importance(logits, T, y).detach()
    constant = torch.autograd.grad((weights * cross_entropies(logits, y)).mean(), logits)[0]
    assert torch.allclose(torch.autograd.grad(reweighted, logits, retain_graph=True)[0], constant)
    assert torch.autograd.grad(reweighted, slack, allow_unused=True)[0] is None
    assert not torch.allclose(torch.autograd.grad(revised, logits, retain_graph=True)[0], constant)


def test_revised_nll_gradient_for_the_slack_has_the_closed_form(batch: Batch):
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
def test_losses_accept_one_T_per_example(batch: Batch, loss):
    logits, T, y = batch
    each = torch.stack([T if k % 2 else T @ T for k in range(40)])
    odd = torch.arange(40) % 2 == 1
    mixed = loss(logits, each, y).mean()
    halves = 0.5 * loss(logits[odd], T, y[odd]).mean() + 0.5 * loss(logits[~odd], T @ T, y[~odd]).mean()
    assert torch.isclose(mixed, halves)


@pytest.mark.parametrize("loss", [forward_nll, backward_nll, reweighted_nll, revised_nll])
def test_losses_do_not_change_when_the_batch_is_repeated(batch: Batch, loss):
    logits, T, y = batch
    assert torch.isclose(loss(logits, T, y), loss(logits.repeat(2, 1), T, y.repeat(2)))


def test_label_noise_adds_a_constant_to_dmi(batch: Batch):
    _, T, _ = batch
    clean = torch.rand(5, 5, generator=torch.Generator().manual_seed(1)).double() + torch.eye(5)
    clean = clean / clean.sum()
    # Up to the floor that keeps a singular joint matrix finite.
    assert torch.isclose(dmi_loss(T @ clean) - dmi_loss(clean), -torch.linalg.det(T).abs().log(), atol=1e-3)


def test_dmi_of_perfect_constant_and_permuted_predictions(batch: Batch):
    logits, _, y = batch
    perfect = joint_matrix(1e3 * F.one_hot(y).double(), y)
    assert torch.allclose(perfect, torch.eye(5).double() / 5)
    assert dmi_loss(perfect).item() == pytest.approx(5 * math.log(5), abs=1e-6)
    assert dmi_loss(joint_matrix(torch.zeros(40, 5).double(), y)) > dmi_loss(joint_matrix(logits, y)) + 5
    order = torch.tensor([3, 1, 4, 0, 2])
    assert torch.isclose(dmi_loss(joint_matrix(logits, y)), dmi_loss(joint_matrix(logits[:, order], y)))


def test_dmi_gradient_is_the_negative_inverse_transpose():
    U = (torch.eye(4).double() + 0.1 * torch.rand(4, 4, generator=torch.Generator().manual_seed(0))).div(4)
    U.requires_grad_()
    assert torch.allclose(torch.autograd.grad(dmi_loss(U), U)[0], -torch.linalg.inv(U).T, rtol=1e-4, atol=1e-4)


def test_dmi_gradient_decreases_the_loss_when_classes_are_missing_from_the_batch():
    """A hundred classes, 64 examples: the plain determinant is zero and has no gradient."""
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(100, (64,), generator=generator)
    logits = (torch.randn(64, 100, generator=generator) + 3 * F.one_hot(y, 100)).requires_grad_()
    before = dmi_loss(joint_matrix(logits, y))
    gradient = torch.autograd.grad(before, logits)[0]
    assert gradient.isfinite().all()
    assert dmi_loss(joint_matrix(logits - gradient / gradient.norm(), y)) < before - 1e-3


def test_generalized_cross_entropy_closed_forms():
    p = torch.tensor([0.05, 0.3, 0.5, 1.0], dtype=torch.double)
    assert torch.allclose(generalized_cross_entropy(p.log(), 1.0), 1 - p)
    assert torch.allclose(generalized_cross_entropy(p.log(), 1e-4), -p.log(), atol=1e-3)
    assert generalized_cross_entropy(p.log(), 0.7)[2].item() == pytest.approx(0.5491826, abs=1e-7)
    assert generalized_cross_entropy(torch.tensor(-200.0), 0.7).item() == pytest.approx(1 / 0.7)


def test_generalized_cross_entropy_gradient_and_bounds(batch: Batch):
    logits, _, y = batch
    h = logits.softmax(1)
    own = h.gather(1, y[:, None])
    found = torch.autograd.grad(generalized_cross_entropy(-cross_entropies(logits, y), 0.7).sum(), logits)[0]
    assert torch.allclose(found, -(own**0.7) * (F.one_hot(y, 5) - h))
    over_labels = generalized_cross_entropy(h.log(), 0.7).sum(1)
    assert (over_labels >= (5 - 5**0.3) / 0.7 - 1e-9).all()
    assert (over_labels <= 4 / 0.7).all()


def test_total_variation_of_one_hot_distributions():
    corners = torch.eye(4)
    pairs = total_variation(corners[:, None], corners[None])
    assert torch.equal(pairs, 1 - torch.eye(4))
    assert pairs.mean().item() == pytest.approx(1 - 1 / 4)


def test_smallest_keeps_the_smallest_losses():
    values = torch.tensor([3.0, 1.0, 2.0, 5.0], requires_grad=True)
    kept = smallest(values, 0.5)
    assert kept.tolist() == [0, 1, 1, 0]
    loss = weighted_mean(values, kept)
    assert loss.item() == 1.5
    assert torch.autograd.grad(loss, values)[0].tolist() == [0, 0.5, 0.5, 0]


@pytest.mark.parametrize(
    ("keep", "count", "kept"), [(0.55, 128, 70), (0.7, 10, 7), (0.8, 10, 8), (0.1, 4, 1), (1, 3, 3)]
)
def test_smallest_keeps_the_given_share_rounded_down(keep, count, kept):
    values = torch.randn(count, generator=torch.Generator().manual_seed(0))
    assert smallest(values, keep).sum() == kept
    assert smallest(values, torch.tensor(float(keep))).sum() == kept


def test_smallest_breaks_ties_by_position_and_respects_the_mask():
    assert smallest(torch.zeros(4), 0.5).tolist() == [1, 1, 0, 0]
    among = torch.tensor([False, True, True, True])
    assert smallest(torch.tensor([0.0, 3.0, 1.0, 2.0]), 0.7, among).tolist() == [0, 0, 1, 1]
    assert smallest(torch.tensor([0.0, 3.0, 1.0]), 0.1, torch.tensor([False, True, False])).tolist() == [0, 1, 0]
    assert smallest(torch.ones(3), 0.5, torch.zeros(3, dtype=torch.bool)).tolist() == [0, 0, 0]


def test_weighted_mean_of_zero_weights_is_zero_and_least_bounds_the_divisor():
    values = torch.tensor([2.0, 4.0])
    assert weighted_mean(values, torch.zeros(2)) == 0
    assert weighted_mean(values, torch.tensor([0.0, 1.0]), least=12.8).item() == pytest.approx(4 / 12.8)


def test_losses_and_gradients_are_finite_for_underflowing_probabilities():
    logits, y = torch.tensor([[500.0, -500.0]]).requires_grad_(), torch.tensor([1])
    for loss in (forward_nll, reweighted_nll, revised_nll):
        value = loss(logits, torch.eye(2), y)
        assert value.isfinite(), loss
        assert torch.autograd.grad(value, logits)[0].isfinite().all(), loss
    assert importance(logits, BINARY.float(), y).item() == 0


@pytest.mark.parametrize("loss", [forward_nll, backward_nll, noisy_likelihood])
@pytest.mark.parametrize("per_example", [False, True])
def test_logits_are_not_broadcast_over_labels(loss, per_example):
    T = torch.eye(3).expand(4, 3, 3) if per_example and loss is not backward_nll else torch.eye(3)
    with pytest.raises(InputError, match="y must hold a label for each of the 1 rows|T is for 4 rows"):
        loss(torch.zeros(1, 3), T, torch.tensor([0, 1, 2, 0]))


@pytest.mark.parametrize("label", [-1, 5])
@pytest.mark.parametrize("loss", [forward_nll, backward_nll, noisy_likelihood, revised_nll])
def test_labels_outside_the_classes_are_rejected(batch: Batch, loss, label):
    logits, T, y = batch
    y[7] = label
    with pytest.raises(InputError, match=r"y must lie in 0\.\.4"):
        loss(logits, T, y)


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("vmap: not supported")])
@pytest.mark.parametrize("loss", [forward_nll, backward_nll, noisy_likelihood, joint_matrix])
def test_errors_of_torch_pass_through_unchanged(batch: Batch, monkeypatch, loss, error):
    def fails(*args, **kwargs):
        raise error

    logits, T, y = batch
    monkeypatch.setattr(F, "embedding", fails)
    with pytest.raises(RuntimeError) as caught:
        loss(logits, y) if loss is joint_matrix else loss(logits, T, y)
    assert caught.value is error


def test_errors_of_function_transforms_pass_through_unchanged(batch: Batch):
    logits, T, y = batch
    with pytest.raises(RuntimeError, match="vmap") as caught:
        # A branch on the values of a mapped tensor is impossible.
        torch.func.vmap(lambda T: backward_nll(logits, T, y))(torch.stack([T, T]))
    assert not isinstance(caught.value, InputError)
