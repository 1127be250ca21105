"""Compiled loops for the two convolutional layers of LeNet-5: convolution, 2 x 2 max-pooling and ReLU each.

The forward pass interleaves ``LANES`` images in memory, so that every inner loop runs over contiguous numbers without a
remainder.

In the backward pass at most one of the four outputs of a pooling window has a gradient, and none if the ReLU is zero.
The loops process one image after the other and skip all other outputs, which is most of the arithmetic of the
equivalent matrix products. With the channels of a pixel adjacent in memory, each row of a convolution window is one run
of contiguous numbers. Runs are rounded up to whole vector registers: the surplus numbers are multiplied by zeros, or
added to padding of the kernel's gradient that is never read.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from volmin._typing import AnyArray
from volmin.accelerated.compilation import compiled

LANES = 32
"""Number of images that are interleaved in the forward pass."""
RUN1, RUN2 = 8, 32
"""Padded lengths of a row of the first and second kernel in the backward pass; 5 and 30 of the numbers are used."""

_SIDE, _PADDED = 28, 32
_CHANNELS1, _CHANNELS2, _SIDE1, _SIDE2 = 6, 16, 14, 5


@compiled
def forward(x: AnyArray, weights: tuple[AnyArray, ...], results: tuple[AnyArray, ...]) -> None:
    """Compute the outputs of both layers, and which output of each pooling window was the largest.

    The four outputs of a window are numbered 0 (top left), 1 (top right), 2 (bottom left) and 3 (bottom right).

    Args:
        x: (N, 28, 28) images.
        weights: Kernel (6, 1, 5, 5) and bias (6,) of the first layer, (16, 6, 5, 5) and (16,) of the second.
        results: Arrays to fill: output (N, 14, 14, 6) and argmax of the first layer, output (N, 16, 5, 5) and argmax of
            the second. Each argmax has the shape of its output.
    """
    kernel1, bias1, kernel2, bias2 = weights
    layer1, argmax1, layer2, argmax2 = results
    images = np.zeros((1, _PADDED, _PADDED * LANES), np.float32)
    pooled1 = np.empty((_CHANNELS1, _SIDE1, _SIDE1 * LANES), np.float32)
    pooled2 = np.empty((_CHANNELS2, _SIDE2, _SIDE2 * LANES), np.float32)
    largest1, largest2 = np.empty(pooled1.shape, np.uint8), np.empty(pooled2.shape, np.uint8)
    for first in range(0, len(x), LANES):
        lanes = min(LANES, len(x) - first)
        for lane in range(lanes):
            for row in range(_SIDE):
                for column in range(_SIDE):
                    images[0, row + 2, (column + 2) * LANES + lane] = x[first + lane, row, column]
        _layer(images, kernel1, bias1, pooled1, largest1)
        _layer(pooled1, kernel2, bias2, pooled2, largest2)
        for lane in range(lanes):
            for channel in range(_CHANNELS1):
                for row in range(_SIDE1):
                    for column in range(_SIDE1):
                        layer1[first + lane, row, column, channel] = pooled1[channel, row, column * LANES + lane]
                        argmax1[first + lane, row, column, channel] = largest1[channel, row, column * LANES + lane]
            for channel in range(_CHANNELS2):
                for row in range(_SIDE2):
                    for column in range(_SIDE2):
                        layer2[first + lane, channel, row, column] = pooled2[channel, row, column * LANES + lane]
                        argmax2[first + lane, channel, row, column] = largest2[channel, row, column * LANES + lane]


@compiled
def _layer(x: AnyArray, kernel: AnyArray, bias: AnyArray, pooled: AnyArray, argmax: AnyArray) -> None:
    """One layer for interleaved images: (I, H, W * LANES) to (O, H', W' * LANES)."""
    outputs = np.empty((2, 2, 2 * pooled.shape[2]), np.float32)
    for row in range(pooled.shape[1]):
        for channel in range(0, len(kernel), 2):
            for down in range(2):
                outputs[0, down], outputs[1, down] = bias[channel], bias[channel + 1]
                for source in range(len(x)):
                    for k in range(5):
                        _add_row_of_taps(
                            outputs[0, down],
                            outputs[1, down],
                            x[source, 2 * row + down + k],
                            kernel[channel, source, k],
                            kernel[channel + 1, source, k],
                        )
            for offset in range(2):
                _pool(outputs[offset], pooled[channel + offset, row], argmax[channel + offset, row])


@compiled
def _add_row_of_taps(output: AnyArray, other: AnyArray, x: AnyArray, taps: AnyArray, other_taps: AnyArray) -> None:
    """Add the products of one input row and one kernel row to an output row, for two output channels at once."""
    # The ten weights stay in registers, and each input that is read serves two channels.
    a0, a1, a2, a3, a4 = taps[0], taps[1], taps[2], taps[3], taps[4]
    b0, b1, b2, b3, b4 = other_taps[0], other_taps[1], other_taps[2], other_taps[3], other_taps[4]
    # A row is a multiple of LANES long. Written so, the compiler generates no remainder loop and has enough registers.
    for n in range(len(output) // LANES * LANES):
        x0, x1, x2, x3, x4 = x[n], x[n + LANES], x[n + 2 * LANES], x[n + 3 * LANES], x[n + 4 * LANES]
        output[n] += a0 * x0 + a1 * x1 + a2 * x2 + a3 * x3 + a4 * x4
        other[n] += b0 * x0 + b1 * x1 + b2 * x2 + b3 * x3 + b4 * x4


@compiled
def _pool(outputs: AnyArray, pooled: AnyArray, argmax: AnyArray) -> None:
    """ReLU of the maximum of each 2 x 2 window, and the number of that output; the first one if several are equal."""
    for column in range(len(pooled) // LANES):
        for lane in range(LANES):
            at = 2 * column * LANES + lane
            largest, place = outputs[0, at], np.uint8(0)
            if outputs[0, at + LANES] > largest:
                largest, place = outputs[0, at + LANES], np.uint8(1)
            if outputs[1, at] > largest:
                largest, place = outputs[1, at], np.uint8(2)
            if outputs[1, at + LANES] > largest:
                largest, place = outputs[1, at + LANES], np.uint8(3)
            pooled[column * LANES + lane] = np.float32(0) if largest < 0 else largest
            argmax[column * LANES + lane] = place


@compiled
def backward(
    grad: AnyArray, x: AnyArray, kernel2: AnyArray, results: tuple[AnyArray, ...], grads: tuple[AnyArray, ...]
) -> None:
    """Add the gradients with respect to kernels and biases to ``grads``.

    Args:
        grad: (N, 16, 5, 5) gradient with respect to the output of the second layer.
        x: (N, 28, 28) images.
        kernel2: (16 * 5 * RUN2,) second kernel: rows of 5 pixels with 6 channels each, padded with zeros.
        results: Arrays filled by ``forward``.
        grads: Arrays to add to: for the first kernel, (6 * 5 * RUN1,), rows of 5 pixels with meaningless padding, and
            its bias, (6,); for the second kernel, in the order of ``kernel2``, and its bias, (16,).
    """
    layer1, argmax1, layer2, argmax2 = results
    grad_kernel1, grad_bias1, grad_kernel2, grad_bias2 = grads
    wide = _SIDE1 * _CHANNELS1
    image = np.zeros(_PADDED * _PADDED + RUN1, np.float32)
    features, grad_features = np.zeros((2, _SIDE1 * wide + RUN2), np.float32)
    for n in range(len(x)):
        features[: _SIDE1 * wide] = layer1[n].reshape(-1)
        grad_features[:] = 0
        for channel in range(_CHANNELS2):
            for row in range(_SIDE2):
                for column in range(_SIDE2):
                    if layer2[n, channel, row, column] > 0:
                        slope, place = grad[n, channel, row, column], argmax2[n, channel, row, column]
                        grad_bias2[channel] += slope
                        at = (2 * row + place // 2) * wide + (2 * column + place % 2) * _CHANNELS1
                        for k in range(5):
                            weights = (5 * channel + k) * RUN2
                            _add_run(grad_kernel2, weights, features, at + k * wide, slope, RUN2)
                            _add_run(grad_features, at + k * wide, kernel2, weights, slope, RUN2)
        for row in range(_SIDE):
            for column in range(_SIDE):
                image[(row + 2) * _PADDED + column + 2] = x[n, row, column]
        for row in range(_SIDE1):
            for column in range(_SIDE1):
                for channel in range(_CHANNELS1):
                    if layer1[n, row, column, channel] > 0:
                        slope = grad_features[row * wide + column * _CHANNELS1 + channel]
                        place = argmax1[n, row, column, channel]
                        grad_bias1[channel] += slope
                        at = (2 * row + place // 2) * _PADDED + 2 * column + place % 2
                        for k in range(5):
                            _add_run(grad_kernel1, (5 * channel + k) * RUN1, image, at + k * _PADDED, slope, RUN1)


def _run_adder(typing_context, target, start, source, begin, factor, length):
    """Code for ``target[start : start + length] += factor * source[begin : begin + length]`` with a constant length.

    A loop would be compiled with a test for overlapping arrays, which takes longer than the few additions.
    """
    vector = ir.VectorType(ir.FloatType(), length.literal_value)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def pointer(number: int) -> Any:
            array = context.make_array(signature.args[number])(context, builder, arguments[number])
            return builder.bitcast(builder.gep(array.data, [arguments[number + 1]]), vector.as_pointer())

        undefined, zero = ir.Constant(vector, ir.Undefined), ir.Constant(ir.IntType(32), 0)
        mask = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), [0] * vector.count)
        factors = builder.shuffle_vector(builder.insert_element(undefined, arguments[4], zero), undefined, mask)
        product = builder.fmul(factors, builder.load(pointer(2), align=4), flags=["contract"])
        total = builder.fadd(builder.load(pointer(0), align=4), product, flags=["contract"])
        builder.store(total, pointer(0), align=4)
        return context.get_dummy_value()

    return types.void(target, types.intp, source, types.intp, types.float32, length), generate


_add_run: Any = intrinsic(prefer_literal=True)(_run_adder)
