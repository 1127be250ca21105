"""LeNet-5, with convolutions that are compiled for the processor they run on.

A library's convolution handles six or sixteen channels at a fraction of the processor's speed, pooling throws three
quarters of its result away, and the gradient is computed for all of it nevertheless. Where numba is installed,
``lenet_kernels`` does only what counts.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from volmin.accelerated.compilation import numba_is_here


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
        features = self._compiled(x) if self._can_be_compiled(x) else self._layer_by_layer(x)
        return self.head(features.flatten(1))

    def _layer_by_layer(self, x: Tensor) -> Tensor:
        # Pooling before the ReLU gives the same values as after it, on a quarter of the pixels.
        x = F.max_pool2d(self.conv1(x), 2).relu()
        return F.max_pool2d(self.conv2(x), 2).relu()

    def _compiled(self, x: Tensor) -> Tensor:
        conv1, conv2 = self.conv1, self.conv2
        return cast("Tensor", _Convolutions.apply(x, conv1.weight, conv1.bias, conv2.weight, conv2.bias))

    def _can_be_compiled(self, x: Tensor) -> bool:
        # The kernels have no gradient for the images themselves.
        numbers = x.dtype == self.conv1.weight.dtype == torch.float32 and not x.requires_grad
        return numbers and x.device.type == "cpu" and x.shape[1:] == (1, 28, 28) and numba_is_here()


class _Convolutions(torch.autograd.Function):
    """Both convolutions with pooling and ReLU: (N, 1, 28, 28) to (N, 16, 5, 5)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, kernel1: Tensor, bias1: Tensor, kernel2: Tensor, bias2: Tensor) -> Tensor:
        from volmin.accelerated import lenet_kernels as kernels

        x = x.squeeze(1)
        once, twice = x.new_empty(len(x), 14, 14, 6), x.new_empty(len(x), 16, 5, 5)
        places = [torch.empty_like(layer, dtype=torch.uint8) for layer in (once, twice)]
        results = once, places[0], twice, places[1]
        images, *filled = map(_array, (x, *results))
        weights = tuple(map(_array, (kernel1, bias1, kernel2, bias2)))

        def fill(chunk: slice) -> None:
            kernels.forward(images[chunk], weights, tuple(array[chunk] for array in filled))

        _in_chunks(fill, len(x), kernels.LANES)
        ctx.save_for_backward(x, kernel2, *results)
        return twice

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        from volmin.accelerated import lenet_kernels as kernels

        x, kernel2, *results = ctx.saved_tensors
        rows = _array(F.pad(kernel2.permute(0, 2, 3, 1).reshape(16, 5, 30), (0, kernels.RUN2 - 30)).view(-1))
        images, slopes, *filled = map(_array, (x, grad, *results))

        def sums(chunk: slice) -> tuple[Any, ...]:
            found = tuple(np.zeros(size, np.float32) for size in (6 * 5 * kernels.RUN1, 6, 16 * 5 * kernels.RUN2, 16))
            kernels.backward(slopes[chunk], images[chunk], rows, tuple(array[chunk] for array in filled), found)
            return found

        # Added in the order of the chunks: the result depends on the number of threads, but not on who was first.
        totals = [torch.from_numpy(sum(each)) for each in zip(*_in_chunks(sums, len(x), kernels.LANES), strict=True)]
        for_rows1, for_bias1, for_rows2, for_bias2 = totals
        for_kernel1 = for_rows1.view(6, 1, 5, -1)[..., :5]
        for_kernel2 = for_rows2.view(16, 5, -1)[..., :30].reshape(16, 5, 5, 6).permute(0, 3, 1, 2)
        return None, for_kernel1, for_bias1, for_kernel2, for_bias2


_lent: ContextVar[int | None] = ContextVar("lent", default=None)
"""How many of torch's threads the kernels have for themselves."""


@contextmanager
def threads_lent(module: nn.Module) -> Iterator[None]:
    """Lend torch's threads to the kernels, where ``module`` has some: between two calls torch's own would spin.

    What else LeNet-5 computes is too small for a second thread, and while that one waits for work, it takes the
    processor from the kernels.
    """
    count = torch.get_num_threads()
    if count == 1 or not numba_is_here() or not any(isinstance(part, LeNet5) for part in module.modules()):
        yield
        return
    before = _lent.set(count)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(count)
        _lent.reset(before)


def _in_chunks(work: Callable[[slice], Any], count: int, multiple: int) -> list[Any]:
    """What ``work`` gives for as many chunks of ``count`` rows as there are threads, side by side."""
    threads = _lent.get() or torch.get_num_threads()
    size = max(1, -(-count // (threads * multiple))) * multiple
    chunks = [slice(start, start + size) for start in range(0, count, size)] or [slice(0, 0)]
    others = [_threads(os.getpid(), len(chunks) - 1).submit(work, chunk) for chunk in chunks[1:]]
    return [work(chunks[0]), *(other.result() for other in others)]


@cache
def _threads(process: int, count: int) -> ThreadPoolExecutor:
    """Threads of this process: those of the one that it was forked from are not here."""
    return ThreadPoolExecutor(count, "lenet")


def _array(tensor: Tensor) -> Any:
    return tensor.detach().contiguous().numpy()
