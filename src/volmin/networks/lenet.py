"""LeNet-5, with convolutions that run at the speed of matrix products on a CPU.

A library's convolution handles six or sixteen channels at a fraction of the processor's speed, and pooling throws three
quarters of its result away. Here the images of a batch lie side by side in memory, (H, C, W, N), so that every step
runs over N contiguous numbers; and a convolution is a matrix product with windows that are just large enough for the
2 x 2 outputs pooled together. That is nearly half as much arithmetic again, but at full speed, with less to move.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


class LeNet5(nn.Module):
    """What ``volmin.networks.lenet5`` makes."""

    def __init__(self, num_classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.head = nn.Sequential(
            nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, num_classes)
        )

    def forward(self, x: Tensor) -> Tensor:
        features = self._side_by_side(x) if x.device.type == "cpu" else self._one_by_one(x)
        return self.head(features.flatten(1))

    def _one_by_one(self, x: Tensor) -> Tensor:
        # Pooling before the ReLU gives the same values as after it, on a quarter of the pixels.
        x = F.max_pool2d(self.conv1(x), 2).relu()
        return F.max_pool2d(self.conv2(x), 2).relu()

    def _side_by_side(self, x: Tensor) -> Tensor:
        N, C, H, W = x.shape
        padded = x.new_zeros(H + 4, C, W + 4, N)
        padded[2:-2, :, 2:-2] = x.permute(2, 1, 3, 0)
        once: Tensor = PooledConvolution.apply(padded, self.conv1.weight, self.conv1.bias)
        twice: Tensor = PooledConvolution.apply(once, self.conv2.weight, self.conv2.bias)
        return twice.permute(3, 1, 0, 2)


class PooledConvolution(torch.autograd.Function):
    """Convolution, 2 x 2 max-pooling and ReLU: (H, I, W, N) to (H', O, W', N), where 2 H' = H - k + 1.

    There is no padding; the kernel's side k is odd, H and W are even.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        (H, I, W, N), (O, _, k, _) = x.shape, weight.shape
        rows, columns = (H - k + 1) // 2, (W - k + 1) // 2
        of_row, of_channel, of_column, _ = x.stride()
        windows = x.as_strided(
            (rows, I, k + 1, k + 1, columns, N), (2 * of_row, of_channel, of_row, of_column, 2 * of_column, 1)
        ).reshape(rows, -1, columns * N)
        kernels = weight.new_zeros(2, 2, O, I, k + 1, k + 1)
        for placed in _places(kernels, k):
            placed.copy_(weight)
        kernels = kernels.view(4 * O, -1)
        # A product for each row of the image: they run in parallel, where one product of few rows would not.
        outputs = torch.bmm(kernels.expand(rows, -1, -1), windows).view(rows, 2, 2, O, -1)
        halves = torch.maximum(*outputs.unbind(1))
        pooled = torch.maximum(*halves.unbind(1)).add_(bias[:, None]).relu_()
        ctx.save_for_backward(windows, kernels, outputs, halves, pooled)
        ctx.shapes = x.shape, weight.shape
        return pooled.view(rows, O, columns, N)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:  # pyright: ignore[reportIncompatibleMethodOverride]
        windows, kernels, outputs, halves, pooled = ctx.saved_tensors
        (H, I, W, N), (O, _, k, _) = ctx.shapes
        rows = len(windows)
        grad = _where_positive(grad.reshape(pooled.shape), pooled, 0)
        for_outputs = _to_the_larger(_to_the_larger(grad, halves), outputs).view(rows, 4 * O, -1)
        for_kernels = torch.bmm(for_outputs, windows.mT).sum(0).view(2, 2, O, I, k + 1, k + 1)
        for_weight = torch.stack(_places(for_kernels, k)).sum(0)
        for_x = None
        if ctx.needs_input_grad[0]:
            side = (k + 1) // 2
            for_windows = torch.bmm(kernels.T.expand(rows, -1, -1), for_outputs)
            for_windows = for_windows.view(rows, I, side, 2, side, 2, -1, N).permute(2, 4, 0, 3, 1, 6, 5, 7)
            for_x = grad.new_zeros(H // 2, 2, I, W // 2, 2, N)
            columns = for_windows.shape[5]
            for down in range(side):
                for right in range(side):
                    for_x[down : down + rows, :, :, right : right + columns] += for_windows[down, right]
            for_x = for_x.view(H, I, W, N)
        return for_x, for_weight, grad.sum((0, 2))


# The gradient where a value is above a threshold, and zero elsewhere, without a mask of booleans in between.
_where_positive = torch.ops.aten.threshold_backward


def _places(windows: Tensor, k: int) -> list[Tensor]:
    """Where the kernel of side k lies in the windows (2, 2, ..., k + 1, k + 1) of the four outputs."""
    return [windows[down, right, ..., down : down + k, right : right + k] for down in (0, 1) for right in (0, 1)]


def _to_the_larger(grad: Tensor, values: Tensor) -> Tensor:
    """The gradient of the maximum over dimension 1, of size 2; the first gets it where both are equal."""
    first, second = values.unbind(1)
    grads = torch.empty_like(values)
    _where_positive.grad_input(grad, second - first, 0, grad_input=grads[:, 1])
    torch.sub(grad, grads[:, 1], out=grads[:, 0])
    return grads
