"""LeNet-5 with both convolutions as loops that numba compiles for the processor.

Library convolutions with six or sixteen channels reach a fraction of the processor's speed, pooling discards three
quarters of their output, and the gradient is nevertheless computed for all of it. ``lenet_kernels`` skips that work.
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

from volmin.networks.lenet import LeNet5


class AcceleratedLeNet5(LeNet5):
    """``LeNet5`` with compiled convolutions in single precision on CPUs; the same parameters under the same names.

    Elsewhere (other devices, double precision, gradients for the images) it computes like ``LeNet5``.
    """

    def features(self, x: Tensor) -> Tensor:
        if not self._can_be_compiled(x):
            return super().features(x)
        conv1, conv2 = self.conv1, self.conv2
        return cast("Tensor", _Convolutions.apply(x, conv1.weight, conv1.bias, conv2.weight, conv2.bias))

    def _can_be_compiled(self, x: Tensor) -> bool:
        single = x.dtype == self.conv1.weight.dtype == torch.float32
        # The kernels have no gradient for the images themselves.
        return single and not x.requires_grad and x.device.type == "cpu" and x.shape[1:] == (1, 28, 28)


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

        # Added in the order of the chunks: the result depends on the number of threads, not on which one is faster.
        totals = [torch.from_numpy(sum(each)) for each in zip(*_in_chunks(sums, len(x), kernels.LANES), strict=True)]
        for_rows1, for_bias1, for_rows2, for_bias2 = totals
        for_kernel1 = for_rows1.view(6, 1, 5, -1)[..., :5]
        for_kernel2 = for_rows2.view(16, 5, -1)[..., :30].reshape(16, 5, 5, 6).permute(0, 3, 1, 2)
        return None, for_kernel1, for_bias1, for_kernel2, for_bias2


_lent: ContextVar[int | None] = ContextVar("lent", default=None)
"""Number of threads that the kernels use while torch is limited to one."""


@contextmanager
def thread_share(module: nn.Module) -> Iterator[None]:
    """Give torch's threads to the kernels, if ``module`` contains an accelerated network.

    The other layers of LeNet-5 are too small for a second thread; while torch's threads wait for work, they spin and
    take the processor from the kernels.
    """
    count = torch.get_num_threads()
    if count == 1 or not any(isinstance(part, AcceleratedLeNet5) for part in module.modules()):
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
    """Results of ``work`` for as many chunks of ``count`` rows as there are threads, computed in parallel."""
    threads = _lent.get() or torch.get_num_threads()
    size = max(1, -(-count // (threads * multiple))) * multiple
    chunks = [slice(start, start + size) for start in range(0, count, size)] or [slice(0, 0)]
    others = [_threads(os.getpid(), len(chunks) - 1).submit(work, chunk) for chunk in chunks[1:]]
    return [work(chunks[0]), *(other.result() for other in others)]


@cache
def _threads(process: int, count: int) -> ThreadPoolExecutor:
    """A thread pool of this process: threads do not survive a fork."""
    return ThreadPoolExecutor(count, "lenet")


def _array(tensor: Tensor) -> Any:
    return tensor.detach().contiguous().numpy()
