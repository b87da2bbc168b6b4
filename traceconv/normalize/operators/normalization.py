"""Normalization and softmax: operations per element, counted in the definition.

Bytes are without the mean and deviation of each row or channel that a forward pass saves.
"""

from __future__ import annotations

from collections.abc import Mapping

from traceconv.normalize.operators.arguments import Arguments, require
from traceconv.normalize.operators.work import Formula, Work, bytes_as, bytes_of, vector_type, with_options


def _normalization(
    of: Arguments, per_element: int | None, *, x: int = 0, scale: int | None = None, shift: int | None = None,
    reads: tuple[int, ...] = (), writes: tuple[int, ...] = (),
) -> Work:  # fmt: skip
    """Normalization of the argument x: operations per element, one more for a scale and a shift if they are given."""
    tensor = of.tensor(x)
    affine = [one for place in (scale, shift) if place is not None and (one := of.optional(place))]
    flops = None if per_element is None else tensor.count * (per_element + len(affine))
    read = bytes_of(tensor, *affine, *(of.optional(place) for place in reads))
    write = bytes_of(*(of.optional(place) for place in writes)) if writes else tensor.size_bytes
    return Work("normalization", vector_type([tensor]), flops, read, write)


def _batch_norm(of: Arguments) -> Work:
    """Training: mean (1), variance (3), centre and divide (2). Otherwise the last alone; the flag is argument 5."""
    is_training = of.flag(5)
    per_element = None if is_training is None else 6 if is_training else 2
    reads = (3, 4) if is_training is False else ()
    return _normalization(of, per_element, scale=1, shift=2, reads=reads)


def _backward(
    of: Arguments, *, scale: int, saved: tuple[int, ...], x: int = 1, mask: int | None = None,
    is_centred: bool = True, per_channel: bool = False, training: int | None = None,
) -> Work:  # fmt: skip
    """Gradients of input, scale and shift.

    x            argument with the input, 0 or 1; the other is the gradient
    saved        arguments with what the forward pass saved: mean and deviation
    mask         argument with the flags of the gradients that are wanted; None: all
    is_centred   the forward pass subtracts the mean; otherwise there is no shift
    per_channel  the scale is a factor of a sum, as in a batch norm
    training     argument with the flag whether the statistics are those of the batch; None: they are

    Normalized input: difference (if centred) and product. Gradient of the scale: product and sum. Of the shift: a sum.
    Of the input: the product with the scale, if it isn't one factor per sum; the sums of the gradient (if centred) and
    of its product with the normalized input; two differences (one if not centred) and two products.
    """
    given, tensor = of.tensor(1 - x), of.tensor(x)
    flags = [True, True, is_centred] if mask is None else of.flags(mask)
    is_training = True if training is None else of.flag(training)
    require(given.shape == tensor.shape)
    weight = of.optional(scale)
    read = bytes_of(given, tensor, weight, *(of.optional(place) for place in saved))
    if flags is None or len(flags) != (3 if is_centred else 2) or is_training is None:
        return Work("normalization", vector_type([tensor]), None, read)
    of_x, of_scale, of_shift = (*flags, False)[:3]
    if is_training:
        sums_of_product, sums = of_x or of_scale, is_centred and (of_x or of_shift)
        own = of_x * ((4 if is_centred else 3) + (weight is not None and not per_channel))
        # The scale's and the shift's gradients are other sums than the input's, if the scale differs within them.
        others = 0 if per_channel else of_x * (2 * of_scale + of_shift)
    else:
        sums_of_product, sums, own, others = of_scale, of_shift, of_x, 0
    normalized = sums_of_product * (2 if is_centred else 1)
    flops = tensor.count * (normalized + 2 * sums_of_product + sums + own + others)
    write = bytes_of(tensor if of_x else None, weight if of_scale else None, weight if of_shift else None)
    return Work("normalization", vector_type([tensor]), flops, read, write)


def _softmax(of: Arguments) -> Work:
    """Maximum, difference, exponential, sum, quotient; for log_softmax the difference from the sum's logarithm."""
    x, out = of.tensor(0), of.optional(3)
    to_float = of.flag(2)
    dtype = out.dtype if out else "fp32" if to_float else x.dtype if to_float is False or x.dtype == "fp32" else None
    write = bytes_as(x.count, dtype)
    return Work("softmax", vector_type([x]), 5 * x.count, x.size_bytes, write)


def _softmax_backward(of: Arguments) -> Work:
    """Product with the result, its sum, difference, product; for log_softmax exponential, sum, product, difference."""
    gradient, out = of.tensor(0), of.tensor(1)
    require(gradient.shape == out.shape)
    x = of.optional(3)  # older versions of PyTorch pass the input instead of its type
    dtype = x.dtype if x else of.dtype(3) or (gradient.dtype if gradient.dtype != "fp32" else None)
    write = bytes_as(gradient.count, dtype)
    return Work("softmax", vector_type([gradient]), 4 * gradient.count, bytes_of(gradient, out), write)


_CUDNN_BACKWARD = with_options(_backward, x=0, scale=2, saved=(5, 6), per_channel=True)
#: Result, input, weight.
_RMS_NORM = with_options(_normalization, per_element=3, x=1, scale=2)
#: Input and residual, which become the result and their sum; weight.
_ADD_RMS_NORM = with_options(_normalization, per_element=4, scale=2, reads=(1,), writes=(0, 1))
FORMULAS: Mapping[str, Formula] = {
    "aten::native_batch_norm": _batch_norm,
    "aten::cudnn_batch_norm": _batch_norm,
    "aten::miopen_batch_norm": _batch_norm,
    "aten::native_batch_norm_backward": with_options(
        _backward, scale=2, saved=(5, 6), mask=9, per_channel=True, training=7
    ),
    "aten::cudnn_batch_norm_backward": _CUDNN_BACKWARD,
    "aten::miopen_batch_norm_backward": _CUDNN_BACKWARD,
    # Mean (1), variance (3), centre and divide (2).
    "aten::native_layer_norm": with_options(_normalization, per_element=6, scale=2, shift=3),
    "aten::native_layer_norm_backward": with_options(_backward, scale=5, saved=(3, 4), mask=7),
    "aten::native_group_norm": with_options(_normalization, per_element=6, scale=1, shift=2),
    "aten::native_group_norm_backward": with_options(_backward, scale=4, saved=(2, 3), mask=9),
    # Square, sum, product with the reciprocal root.
    "aten::_fused_rms_norm": with_options(_normalization, per_element=3, scale=2),
    "aten::_fused_rms_norm_backward": with_options(_backward, scale=4, saved=(3,), mask=5, is_centred=False),
    "_C::rms_norm": _RMS_NORM,
    "sgl_kernel::rmsnorm": _RMS_NORM,
    "sgl_kernel::gemma_rmsnorm": _RMS_NORM,
    "aiter::rms_norm": with_options(_normalization, per_element=3, scale=1),
    "_C::fused_add_rms_norm": _ADD_RMS_NORM,
    "sgl_kernel::fused_add_rmsnorm": _ADD_RMS_NORM,
    "sgl_kernel::gemma_fused_add_rmsnorm": _ADD_RMS_NORM,
    "aiter::rmsnorm2d_fwd_with_add_ck": with_options(
        _normalization, per_element=4, x=1, scale=4, reads=(2,), writes=(0, 3)
    ),
    # One more product, with the scale of the result.
    "_C::rms_norm_static_fp8_quant": with_options(_normalization, per_element=4, x=1, scale=2, reads=(3,), writes=(0,)),
    "_C::fused_add_rms_norm_static_fp8_quant": with_options(
        _normalization, per_element=5, x=1, scale=3, reads=(2, 4), writes=(0, 2)
    ),
    "npu::npu_rms_norm": with_options(_normalization, per_element=3, scale=1),
    "aten::_softmax": _softmax,
    "aten::_log_softmax": _softmax,
    "aten::_softmax_backward_data": _softmax_backward,
    "aten::_log_softmax_backward_data": _softmax_backward,
}
