"""L-BFGS for many independent small problems at once, each with its own step sizes and curvature."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Pair = tuple[Tensor, Tensor, Tensor]
"""Change of position (B, P), change of gradient (B, P), and the inverse of their inner product (B,)."""

SUFFICIENT_DECREASE = 1e-4
LINE_SEARCH_STEPS = 20
SMALLEST_CURVATURE = 1e-12
GRADIENT_TOLERANCE = 1e-6


def minimise_rows(
    loss: Callable[[Tensor], Tensor],
    start: Tensor,
    max_iterations: int,
    memory: int = 10,
    tolerance: float = GRADIENT_TOLERANCE,
) -> Tensor:
    """Minimise B independent losses, with a backtracking line search for each.

    Args:
        loss: Function from (B, P) parameters to (B,) losses, each a function of its own row only.
        start: (B, P) parameters to start from.
        max_iterations: Limit of iterations.
        memory: Number of past steps that approximate the curvature.
        tolerance: Largest entry of the gradients at which the iteration ends.

    Returns:
        (B, P) parameters.
    """

    def evaluate(parameters: Tensor) -> tuple[Tensor, Tensor]:
        parameters = parameters.detach().requires_grad_()
        values = loss(parameters)
        (gradient,) = torch.autograd.grad(values.sum(), parameters)
        return values.detach(), gradient

    position = start.clone()
    value, gradient = evaluate(position)
    pairs: list[Pair] = []
    active, rounding = torch.ones_like(value, dtype=torch.bool), 4 * torch.finfo(value.dtype).eps
    for _ in range(max_iterations):
        active = active & (gradient.abs().amax(dim=1) >= tolerance)
        if not active.any():
            break
        direction = -_inverse_hessian_times(gradient, pairs)
        slope = (direction * gradient).sum(dim=1)
        step = torch.ones_like(value) if pairs else 1 / (1 + gradient.norm(dim=1))
        proposal, accepted = position, torch.zeros_like(value, dtype=torch.bool)
        new_value, new_gradient = value, gradient
        for _ in range(LINE_SEARCH_STEPS):
            proposal = position + step[:, None] * direction
            new_value, new_gradient = evaluate(proposal)
            accepted = new_value <= value + SUFFICIENT_DECREASE * step * slope + rounding * value.abs()
            if (accepted | ~active).all():
                break
            step = torch.where(accepted, step, step / 2)
        # A row without any decrease has converged up to rounding; it is not moved, nor waited for again.
        active = active & accepted
        moved = active[:, None]
        difference = torch.where(moved, proposal - position, 0.0)
        change = torch.where(moved, new_gradient - gradient, 0.0)
        curvature = (difference * change).sum(dim=1)
        usable = curvature > SMALLEST_CURVATURE
        inverse = torch.where(usable, 1 / curvature.where(usable, 1.0), 0.0)
        pairs = [*pairs[-(memory - 1) :], (difference, change, inverse)]
        position, gradient = position + difference, gradient + change
        value = torch.where(active, new_value, value)
    return position


def _inverse_hessian_times(gradient: Tensor, pairs: list[Pair]) -> Tensor:
    """The two-loop recursion for each row; a pair with inverse curvature zero has no effect on its row."""
    result = gradient
    shares = []
    for difference, change, inverse in reversed(pairs):
        share = inverse * (difference * result).sum(dim=1)
        result = result - share[:, None] * change
        shares.append(share)
    if pairs:
        difference, change, inverse = pairs[-1]
        squared = change.square().sum(dim=1)
        scale = torch.where(inverse > 0, (difference * change).sum(dim=1) / squared.clamp_min(1e-300), 1.0)
        result = scale[:, None] * result
    for (difference, change, inverse), share in zip(pairs, reversed(shares), strict=True):
        back = inverse * (change * result).sum(dim=1)
        result = result + (share - back)[:, None] * difference
    return result
