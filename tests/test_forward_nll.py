"""The forward-corrected loss: derivatives, precision and extreme values."""

import math

import pytest
import torch
from torch import Tensor

from volmin import noise
from volmin.losses import forward_nll

Batch = tuple[Tensor, Tensor, Tensor]


def by_definition(logits: Tensor, T: Tensor, y: Tensor) -> Tensor:
    """``-log (T h)[y]`` without any protection against underflow."""
    return -(logits.softmax(1) @ T.T).gather(1, y[:, None]).log().mean()


def test_gradient_for_logits_has_the_closed_form(batch: Batch):
    logits, T, y = batch
    h = logits.softmax(1)
    noisy = (h @ T.T).gather(1, y[:, None])
    expected = (h - h * T[y] / noisy) / len(y)
    assert torch.allclose(torch.autograd.grad(forward_nll(logits, T, y), logits)[0], expected)


def test_gradient_at_zeros_of_T_has_the_closed_form(batch: Batch):
    logits, _, y = batch
    T = torch.tensor(noise.pair(5, 0.3), requires_grad=True)
    h = logits.detach().softmax(1)
    ratio = h / (h @ T.detach().T).gather(1, y[:, None])
    expected = -torch.zeros(5, 5).double().index_add(0, y, ratio) / len(y)
    for dtype, tolerance in ((torch.double, 1e-10), (torch.float32, 1e-4)):
        found = torch.autograd.grad(forward_nll(logits.to(dtype), T.to(dtype), y), T)[0]
        assert torch.allclose(found, expected, rtol=tolerance)


def test_hessian_at_zeros_of_T_has_the_closed_form(batch: Batch):
    logits, _, y = batch
    T = torch.tensor(noise.pair(5, 0.3))
    found, expected = (
        torch.func.jacrev(torch.func.jacrev(loss, 1), 1)(logits.detach(), T, y) for loss in (forward_nll, by_definition)
    )
    assert torch.allclose(found, expected)


def test_first_and_second_derivatives_match_finite_differences(batch: Batch):
    logits, T, y = (tensor[:10] for tensor in batch)
    inputs = logits.detach().requires_grad_(), T.requires_grad_()
    assert torch.autograd.gradcheck(lambda logits, T: forward_nll(logits, T, y), inputs)
    assert torch.autograd.gradgradcheck(lambda logits, T: forward_nll(logits, T, y), inputs)


def test_torch_func_grad_and_vmap_are_supported(batch: Batch):
    logits, T, y = batch
    logits = logits.detach()
    for argument in (0, 1):
        found = torch.func.grad(forward_nll, argument)(logits, T, y)
        assert torch.allclose(found, torch.func.grad(by_definition, argument)(logits, T, y))
    batches, matrices, labels = logits.view(4, 10, 5), torch.stack([T, T @ T, T, T @ T]), y.view(4, 10)
    per_batch = torch.func.vmap(forward_nll)(batches, matrices, labels)
    each = [forward_nll(*one) for one in zip(batches, matrices, labels, strict=True)]
    assert torch.allclose(per_batch, torch.stack(each))
    # Gradients per example, the usual composition of both transforms.
    per_example = torch.func.vmap(torch.func.grad(forward_nll), in_dims=(0, None, 0))(logits[:, None], T, y[:, None])
    assert torch.allclose(per_example.squeeze(1) / len(y), torch.func.grad(forward_nll)(logits, T, y))


def test_half_precision_logits_give_a_loss_in_the_precision_of_T(batch: Batch):
    logits, T, y = batch
    half, T = logits.detach().bfloat16().requires_grad_(), T.float().requires_grad_()
    loss = forward_nll(half, T, y)
    loss.backward()
    assert loss.dtype == torch.float32
    assert torch.isclose(loss, forward_nll(half.float(), T, y), rtol=1e-6)
    assert half.grad is not None
    assert half.grad.dtype == torch.bfloat16
    assert T.grad is not None
    assert T.grad.dtype == torch.float32


def test_nan_is_propagated(batch: Batch):
    logits, T, y = batch
    logits = logits.detach().clone()
    logits[3, 4] = math.nan
    logits.requires_grad_()
    loss = forward_nll(logits, T, y)
    assert loss.isnan()
    assert torch.autograd.grad(loss, logits)[0][3].isnan().all()


def test_loss_and_gradients_are_finite_for_underflowing_probabilities():
    logits, y = torch.tensor([[500.0, -500.0]], requires_grad=True), torch.tensor([1])
    T = torch.eye(2, requires_grad=True)
    loss = forward_nll(logits, T, y)
    assert loss.isfinite()
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(loss, (logits, T)))
    almost_clean = torch.tensor([[1.0, 0.0], [1e-20, 1.0]])
    assert forward_nll(logits, almost_clean, y).item() == pytest.approx(20 * math.log(10), rel=1e-5)
    small = 0.2 * logits
    assert forward_nll(small, T, y).item() == pytest.approx(69, abs=0.1), "an impossible label costs -log 1e-30"
