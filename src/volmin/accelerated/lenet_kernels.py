"""The two layers of LeNet-5, each convolution, 2 x 2 max-pooling and ReLU, as compiled loops over images.

Forward, many images lie side by side in memory, so that every loop runs over contiguous numbers without a remainder.
Backward, at most one of four outputs that are pooled together has a gradient, and none where the ReLU was closed: the
loops go from image to image and skip all others, which is most of the arithmetic that matrix products would do.

When the channels of a pixel are neighbours, a window of the input is a few runs of contiguous numbers. Runs are rounded
up to whole vectors of the processor: what lies beyond meets zeros, or ends in entries of a kernel that nobody reads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from volmin.accelerated.compilation import compiled

LANES = 32
"""Images that go through the forward pass together."""
RUN1, RUN2 = 8, 32
"""Lengths of a row of the first and the second kernel in the backward pass, of which 5 and 30 numbers count."""

_SIDE, _PADDED = 28, 32
_CHANNELS, _ONCE, _TWICE = (6, 16), 14, 5

Array = NDArray[Any]


@compiled
def forward(x: Array, weights: tuple[Array, ...], results: tuple[Array, ...]) -> None:
    """Fill what the layers give, and which of four pooled outputs was the largest: 0, 1 (right), 2 (below), 3 (both).

    Args:
        x: (N, 28, 28) images.
        weights: kernel (6, 1, 5, 5) and bias (6,) of the first layer, (16, 6, 5, 5) and (16,) of the second.
        results: to be filled: the first layer, (N, 14, 14, 6), and its places, the second, (N, 16, 5, 5), and its.
    """
    kernel1, bias1, kernel2, bias2 = weights
    once, places1, twice, places2 = results
    images = np.zeros((1, _PADDED, _PADDED * LANES), np.float32)
    pooled1 = np.empty((_CHANNELS[0], _ONCE, _ONCE * LANES), np.float32)
    pooled2 = np.empty((_CHANNELS[1], _TWICE, _TWICE * LANES), np.float32)
    at1, at2 = np.empty(pooled1.shape, np.uint8), np.empty(pooled2.shape, np.uint8)
    for first in range(0, len(x), LANES):
        lanes = min(LANES, len(x) - first)
        for lane in range(lanes):
            for row in range(_SIDE):
                for column in range(_SIDE):
                    images[0, row + 2, (column + 2) * LANES + lane] = x[first + lane, row, column]
        _layer(images, kernel1, bias1, pooled1, at1)
        _layer(pooled1, kernel2, bias2, pooled2, at2)
        for lane in range(lanes):
            for channel in range(_CHANNELS[0]):
                for row in range(_ONCE):
                    for column in range(_ONCE):
                        once[first + lane, row, column, channel] = pooled1[channel, row, column * LANES + lane]
                        places1[first + lane, row, column, channel] = at1[channel, row, column * LANES + lane]
            for channel in range(_CHANNELS[1]):
                for row in range(_TWICE):
                    for column in range(_TWICE):
                        twice[first + lane, channel, row, column] = pooled2[channel, row, column * LANES + lane]
                        places2[first + lane, channel, row, column] = at2[channel, row, column * LANES + lane]


@compiled
def _layer(x: Array, kernel: Array, bias: Array, pooled: Array, places: Array) -> None:
    """(I, H, W * LANES) to (O, H', W' * LANES)."""
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
            for second in range(2):
                _pool(outputs[second], pooled[channel + second, row], places[channel + second, row])


@compiled
def _add_row_of_taps(output: Array, other: Array, x: Array, taps: Array, other_taps: Array) -> None:
    """Add to a row of two channels what one row of their kernels finds in a row of the input."""
    # Ten weights in registers, and two channels for every number that is read.
    a0, a1, a2, a3, a4 = taps[0], taps[1], taps[2], taps[3], taps[4]
    b0, b1, b2, b3, b4 = other_taps[0], other_taps[1], other_taps[2], other_taps[3], other_taps[4]
    # A row is whole lanes: said so, the compiler leaves the remainder out, and its registers to the weights.
    for n in range(len(output) // LANES * LANES):
        x0, x1, x2, x3, x4 = x[n], x[n + LANES], x[n + 2 * LANES], x[n + 3 * LANES], x[n + 4 * LANES]
        output[n] += a0 * x0 + a1 * x1 + a2 * x2 + a3 * x3 + a4 * x4
        other[n] += b0 * x0 + b1 * x1 + b2 * x2 + b3 * x3 + b4 * x4


@compiled
def _pool(outputs: Array, pooled: Array, places: Array) -> None:
    """The largest of two by two outputs, where it is positive, and its place; the first where several are equal."""
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
            places[column * LANES + lane] = place


@compiled
def backward(grad: Array, x: Array, kernel2: Array, results: tuple[Array, ...], slopes: tuple[Array, ...]) -> None:
    """Add to the gradients for kernels and biases.

    Args:
        grad: (N, 16, 5, 5) gradient for the second layer.
        x: (N, 28, 28) images.
        kernel2: the second kernel as (16 * 5 * RUN2,): rows of 5 pixels with 6 channels each, and zeros.
        results: what ``forward`` has filled.
        slopes: to be added to: for the first kernel, (6 * 5 * RUN1,) for rows of 5 pixels and entries without meaning,
            and its bias, (6,), for the second, in the order of ``kernel2``, and its bias, (16,).
    """
    once, places1, twice, places2 = results
    for_kernel1, for_bias1, for_kernel2, for_bias2 = slopes
    wide = _ONCE * _CHANNELS[0]
    image = np.zeros(_PADDED * _PADDED + RUN1, np.float32)
    features, for_features = np.zeros((2, _ONCE * wide + RUN2), np.float32)
    for n in range(len(x)):
        features[: _ONCE * wide] = once[n].reshape(-1)
        for_features[:] = 0
        for channel in range(_CHANNELS[1]):
            for row in range(_TWICE):
                for column in range(_TWICE):
                    if twice[n, channel, row, column] > 0:
                        slope, place = grad[n, channel, row, column], places2[n, channel, row, column]
                        for_bias2[channel] += slope
                        at = (2 * row + place // 2) * wide + (2 * column + place % 2) * _CHANNELS[0]
                        for k in range(5):
                            weights = (5 * channel + k) * RUN2
                            _add_run(for_kernel2, weights, features, at + k * wide, slope, RUN2)
                            _add_run(for_features, at + k * wide, kernel2, weights, slope, RUN2)
        for row in range(_SIDE):
            for column in range(_SIDE):
                image[(row + 2) * _PADDED + column + 2] = x[n, row, column]
        for row in range(_ONCE):
            for column in range(_ONCE):
                for channel in range(_CHANNELS[0]):
                    if once[n, row, column, channel] > 0:
                        slope = for_features[row * wide + column * _CHANNELS[0] + channel]
                        place = places1[n, row, column, channel]
                        for_bias1[channel] += slope
                        at = (2 * row + place // 2) * _PADDED + 2 * column + place % 2
                        for k in range(5):
                            _add_run(for_kernel1, (5 * channel + k) * RUN1, image, at + k * _PADDED, slope, RUN1)


def _run_adder(typing_context, target, start, source, begin, factor, length):
    """``target[start : start + length] += factor * source[begin : begin + length]`` for a constant length.

    A loop would be compiled with a test of whether the arrays overlap, which takes longer than so short a run.
    """
    vector = ir.VectorType(ir.FloatType(), length.literal_value)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def place_of(number: int) -> Any:
            array = context.make_array(signature.args[number])(context, builder, arguments[number])
            return builder.bitcast(builder.gep(array.data, [arguments[number + 1]]), vector.as_pointer())

        nothing, zero = ir.Constant(vector, ir.Undefined), ir.Constant(ir.IntType(32), 0)
        mask = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), [0] * vector.count)
        factors = builder.shuffle_vector(builder.insert_element(nothing, arguments[4], zero), nothing, mask)
        product = builder.fmul(factors, builder.load(place_of(2), align=4), flags=["contract"])
        total = builder.fadd(builder.load(place_of(0), align=4), product, flags=["contract"])
        builder.store(total, place_of(0), align=4)
        return context.get_dummy_value()

    return types.void(target, types.intp, source, types.intp, types.float32, length), generate


_add_run: Any = intrinsic(prefer_literal=True)(_run_adder)
