"""LeNet-5 with both convolutions as loops compiled by numba.

Library convolutions with six or sixteen channels reach a fraction of the processor's speed. Pooling then discards three
quarters of their output, and yet the gradient is computed for all of it. ``lenet_kernels`` skips that work.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, TypeVar, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from volmin.networks.lenet import LeNet5

Result = TypeVar("Result")


class AcceleratedLeNet5(LeNet5):
    """``LeNet5`` with compiled convolutions for single precision on CPUs; parameters have the same names.

    For other devices, double precision and gradients with respect to the images it computes like ``LeNet5``. The
    compiled convolutions can be differentiated once, and ``torch.func`` does not support them.
    """

    def features(self, x: Tensor) -> Tensor:
        if not self._can_be_compiled(x):
            return super().features(x)
        conv1, conv2 = self.conv1, self.conv2
        return cast("Tensor", _Convolutions.apply(x, conv1.weight, conv1.bias, conv2.weight, conv2.bias))

    def _can_be_compiled(self, x: Tensor) -> bool:
        single = x.dtype == self.conv1.weight.dtype == torch.float32
        # The kernels do not compute the gradient with respect to the images.
        return single and not x.requires_grad and x.device.type == "cpu" and x.shape[1:] == (1, 28, 28)


class _Convolutions(torch.autograd.Function):
    """Both convolutions with pooling and ReLU: (N, 1, 28, 28) to (N, 16, 5, 5)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, kernel1: Tensor, bias1: Tensor, kernel2: Tensor, bias2: Tensor) -> Tensor:
        from volmin.accelerated import lenet_kernels as kernels

        x = x.squeeze(1)
        layer1, layer2 = x.new_empty(len(x), 14, 14, 6), x.new_empty(len(x), 16, 5, 5)
        argmax1, argmax2 = (torch.empty_like(layer, dtype=torch.uint8) for layer in (layer1, layer2))
        results = layer1, argmax1, layer2, argmax2
        images, *filled = map(_array, (x, *results))
        weights = tuple(map(_array, (kernel1, bias1, kernel2, bias2)))

        def fill(chunk: slice) -> None:
            kernels.forward(images[chunk], weights, tuple(array[chunk] for array in filled))

        _in_chunks(fill, len(x), kernels.LANES)
        ctx.save_for_backward(x, kernel2, *results)
        return layer2

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        from volmin.accelerated import lenet_kernels as kernels

        x, kernel2, *results = ctx.saved_tensors
        rows2 = _array(F.pad(kernel2.permute(0, 2, 3, 1).reshape(16, 5, 30), (0, kernels.RUN2 - 30)).view(-1))
        images, grad2, *filled = map(_array, (x, grad, *results))

        def sums(chunk: slice) -> tuple[Any, ...]:
            grads = tuple(np.zeros(size, np.float32) for size in (6 * 5 * kernels.RUN1, 6, 16 * 5 * kernels.RUN2, 16))
            kernels.backward(grad2[chunk], images[chunk], rows2, tuple(array[chunk] for array in filled), grads)
            return grads

        # Added in the order of the chunks, so that the result depends on the number of threads but not on their timing.
        totals = [torch.from_numpy(sum(each)) for each in zip(*_in_chunks(sums, len(x), kernels.LANES), strict=True)]
        grad_rows1, grad_bias1, grad_rows2, grad_bias2 = totals
        grad_kernel1 = grad_rows1.view(6, 1, 5, -1)[..., :5]
        grad_kernel2 = grad_rows2.view(16, 5, -1)[..., :30].reshape(16, 5, 5, 6).permute(0, 3, 1, 2)
        return None, grad_kernel1, grad_bias1, grad_kernel2, grad_bias2


_kernel_threads: ContextVar[int | None] = ContextVar("kernel_threads", default=None)
"""Number of threads that the kernels use inside ``thread_share``, where torch uses one."""


@contextmanager
def thread_share(module: nn.Module) -> Iterator[None]:
    """A context in which the kernels use torch's threads, if ``module`` contains an accelerated network.

    The other layers of LeNet-5 are too small to gain from a second thread, and torch's threads spin while they wait for
    work, which would take the processor from the kernels.
    """
    count = torch.get_num_threads()
    if count == 1 or not any(isinstance(part, AcceleratedLeNet5) for part in module.modules()):
        yield
        return
    before = _kernel_threads.set(count)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(count)
        _kernel_threads.reset(before)


def _in_chunks(work: Callable[[slice], Result], count: int, multiple: int) -> list[Result]:
    """Results of ``work`` on one chunk of the ``count`` rows per thread, computed in parallel.

    Chunks other than the last hold a multiple of ``multiple`` rows.
    """
    threads = _kernel_threads.get() or torch.get_num_threads()
    size = max(1, -(-count // (threads * multiple))) * multiple
    chunks = [slice(start, start + size) for start in range(0, count, size)] or [slice(0, 0)]
    others = [_threads(os.getpid(), len(chunks) - 1).submit(work, chunk) for chunk in chunks[1:]]
    return [work(chunks[0]), *(other.result() for other in others)]


@cache
def _threads(process: int, count: int) -> ThreadPoolExecutor:
    """The thread pool of a process, given by its id because threads do not survive a fork."""
    return ThreadPoolExecutor(count, "lenet")


def _array(tensor: Tensor) -> Any:
    return tensor.detach().contiguous().numpy()
