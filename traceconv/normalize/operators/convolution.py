"""Convolutions. The bias is added by a kernel of its own, so its additions don't count here."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from traceconv.normalize.operators.arguments import Arguments, Shape, Tensor, element_bytes, known, require
from traceconv.normalize.operators.work import Formula, Work, bytes_as, bytes_of, matrix_type, of_each, same_type


def _convolution(of: Arguments) -> Work:
    """Input, weight, bias, stride, padding, dilation, transposed, output padding, groups."""
    x, weight = of.tensor(0), of.tensor(1)
    shape = _convolved(of, x, weight)
    # Each element of the larger side of the window is multiplied with a filter's elements: those of one group.
    places = x.count if of.flag(6) else prod(shape)
    dtype = same_type(x, weight)
    return Work(
        "conv", matrix_type(x, weight), 2 * places * prod(weight.shape[1:]), bytes_of(x, weight, of.optional(2)),
        bytes_as(prod(shape), dtype), is_composite=True,
    )  # fmt: skip


def _convolved(of: Arguments, x: Tensor, weight: Tensor) -> Shape:
    """The shape of a convolution's result."""
    require(len(x.shape) == len(weight.shape) >= 3)
    transposed, groups = known(of.flag(6)), of.integer(8)
    stride, padding, dilation, more = (known(of_each(of.integers(place), len(x.shape) - 2)) for place in (3, 4, 5, 7))
    require(min(stride) >= 1 and groups >= 1)
    require(x.shape[1] == (weight.shape[0] if transposed else weight.shape[1] * groups))
    spatial = []
    for place, (extent, size) in enumerate(zip(x.shape[2:], weight.shape[2:], strict=True)):
        reach = dilation[place] * (size - 1)
        if transposed:
            spatial.append((extent - 1) * stride[place] - 2 * padding[place] + reach + more[place] + 1)
        else:
            spatial.append((extent + 2 * padding[place] - reach - 1) // stride[place] + 1)
    require(min(spatial) >= 0)
    return (x.shape[0], weight.shape[1] * groups if transposed else weight.shape[0], *spatial)


def _convolution_backward(of: Arguments) -> Work:
    """Gradient, input, weight, sizes of the bias, stride, padding, dilation, transposed, …, mask of the results.

    The gradients of input and weight have as many multiply-accumulates as the convolution has; that of the bias is a
    sum, in a kernel of its own.
    """
    gradient, x, weight = of.tensor(0), of.tensor(1), of.tensor(2)
    transposed, mask = known(of.flag(7)), known(of.flags(10))
    require(len(mask) == 3 and len(gradient.shape) == len(x.shape) == len(weight.shape) >= 3)
    one = 2 * (x if transposed else gradient).count * prod(weight.shape[1:])
    read = bytes_of(gradient, weight if mask[0] else None, x if mask[1] else None)
    out = [x] * mask[0] + [weight] * mask[1]
    bias = gradient.shape[1] * element_bytes(gradient.dtype) if mask[2] else 0
    return Work("conv", matrix_type(x, weight), (mask[0] + mask[1]) * one, read, bytes_of(*out) + bias, True)


def _cudnn_backward_input(of: Arguments) -> Work:
    """Sizes of the input, gradient, weight."""
    gradient, weight = of.tensor(1), of.tensor(2)
    require(len(gradient.shape) == len(weight.shape) >= 3)
    # The size of the input isn't recorded.
    flops = 2 * gradient.count * prod(weight.shape[1:])
    return Work("conv", matrix_type(gradient, weight), flops, bytes_of(gradient, weight))


def _cudnn_backward(of: Arguments) -> Work:
    """Input, gradient, weight: the gradient of the weight.

    That of the input is computed by cudnn_convolution_backward_input inside. The one inside for the weight's gradient
    doesn't have the weight's shape, and so no formula.
    """
    x, gradient, weight = of.tensor(0), of.tensor(1), of.tensor(2)
    require(len(x.shape) == len(gradient.shape) == len(weight.shape))
    flops = 2 * gradient.count * prod(weight.shape[1:])
    return Work("conv", matrix_type(x, gradient), flops, bytes_of(x, gradient), weight.size_bytes)


FORMULAS: Mapping[str, Formula] = {
    "aten::convolution": _convolution,
    "aten::convolution_overrideable": _convolution,
    "aten::convolution_backward": _convolution_backward,
    "aten::convolution_backward_overrideable": _convolution_backward,
    "aten::cudnn_convolution_backward_input": _cudnn_backward_input,
    "aten::cudnn_convolution_backward": _cudnn_backward,
}
