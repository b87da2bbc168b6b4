"""Scaled dot-product attention.

Only its products count. Forward: query · key and scores · value. Backward: the scores again, as no implementation
stores them, and the gradients of scores, value, query and key. A causal mask halves them, because implementations skip
the masked half; where the part that is masked depends on the implementation, the operations are unknown. They are for
packed sequences and paged keys, too: the lengths are a tensor's elements, which profiles don't contain.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from traceconv.normalize.operators.arguments import Arguments, promoted, require
from traceconv.normalize.operators.work import Formula, Work, bytes_as, bytes_of, matrix_type, with_options


def _attention(
    of: Arguments, *, causal: int, backward: bool = False, heads: int = 1, more: int | None = None,
    window: int | None = None,
) -> Work:  # fmt: skip
    """Attention of query, key and value; in a backward pass they follow the gradient.

    heads   dimension of the heads: 1, before the sequence, or 2, after it
    causal  argument with the flag
    more    another argument that is read, such as a bias
    window  the first of two arguments with the reach of a sliding window, -1 if it is unlimited
    """
    is_causal = of.flag(causal)
    is_known = is_causal is not None and not _is_limited(of, window, is_causal)
    return _work(of, heads, is_causal if is_known else None, backward=backward, more=more)


def _is_limited(of: Arguments, window: int | None, is_causal: bool) -> bool:
    """Whether a sliding window limits the attention more than the causal mask."""
    if window is None:
        return False
    left, right = of.integers(window), of.integers(window + 1)
    return left not in (None, [-1]) or right not in (None, [-1], *([[0]] if is_causal else []))


def _work(
    of: Arguments, heads: int, is_causal: bool | None, *, backward: bool = False, more: int | None = None
) -> Work:
    """The work with a causal mask, without one, or with an unknown one."""
    first = 1 if backward else 0
    q, k, v = (of.tensor(first + place) for place in range(3))
    require(len(q.shape) == len(k.shape) == len(v.shape) == 4)
    order = (0, 1, 2, 3) if heads == 1 else (0, 2, 1, 3)
    batch, q_heads, rows, depth = (q.shape[place] for place in order)
    v_batch, k_heads, columns, v_depth = (v.shape[place] for place in order)
    require(tuple(k.shape[place] for place in order) == (batch, k_heads, columns, depth) and v_batch == batch)
    require(k_heads and q_heads % k_heads == 0)
    flops: int | None = batch * q_heads * rows * columns * (3 * depth + 2 * v_depth if backward else depth + v_depth)
    if is_causal is None or (is_causal and rows != columns):
        flops = None
    elif not is_causal:
        flops = 2 * (flops or 0)
    read, write = _moved(of, backward=backward, more=more)
    return Work("attention", matrix_type(q, k), flops, read, write, is_composite=True)


def _moved(of: Arguments, *, backward: bool, more: int | None = None) -> tuple[int, int | None]:
    """Bytes read and written; a backward pass also reads the gradient, the result and the sums of its softmax."""
    first = 1 if backward else 0
    q, k, v = (of.tensor(first + place) for place in range(3))
    count = q.count + k.count + v.count if backward else prod(q.shape[:-1]) * v.shape[-1]
    places = range(6) if backward else range(3)
    read = bytes_of(*(of.optional(place) for place in places), None if more is None else of.optional(more))
    return read, bytes_as(count, promoted([q, k, v]))


def _packed(of: Arguments, *, backward: bool = False) -> Work:
    """Sequences of several lengths, packed into one dimension: query, key and value of tokens, heads and depth."""
    first = 1 if backward else 0
    q, k, v = (of.tensor(first + place) for place in range(3))
    require(len(q.shape) == len(k.shape) == len(v.shape) == 3)
    return Work("attention", matrix_type(q, k), None, *_moved(of, backward=backward), is_composite=True)


def _npu_attention(of: Arguments) -> Work:
    """npu_fusion_attention: the layout is a value, which torch_npu doesn't record, so only the bytes are known."""
    q, k, v = of.tensor(0), of.tensor(1), of.tensor(2)
    require(k.shape == v.shape and len(q.shape) == len(k.shape) >= 3)
    read = bytes_of(q, k, v, of.optional(5), of.optional(7))
    return Work("attention", matrix_type(q, k), None, read, bytes_as(q.count, promoted([q, k, v])))


_FLASH = with_options(_attention, heads=2, causal=5, window=6)
#: Not _flash_attention_forward and others inside PyTorch's operators: these may get heads that are padded.
FORMULAS: Mapping[str, Formula] = {
    "aten::_scaled_dot_product_flash_attention": with_options(_attention, causal=4),
    "aten::_scaled_dot_product_efficient_attention": with_options(_attention, causal=6, more=3),
    "aten::_scaled_dot_product_cudnn_attention": with_options(_attention, causal=6, more=3),
    "aten::_scaled_dot_product_fused_attention_overrideable": with_options(_attention, causal=5, more=3),
    "aten::_scaled_dot_product_flash_attention_backward": with_options(_attention, backward=True, causal=11),
    "aten::_scaled_dot_product_efficient_attention_backward": with_options(
        _attention, backward=True, causal=11, more=6
    ),
    "aten::_scaled_dot_product_cudnn_attention_backward": with_options(_attention, backward=True, causal=14, more=8),
    "FlashAttnFunc": with_options(_attention, heads=2, causal=5),
    "flash_attn::_flash_attn_forward": _FLASH,
    "flash_attn::_flash_attn_backward": with_options(_attention, backward=True, heads=2, causal=11, window=12),
    "flash_attn::_flash_attn_varlen_forward": _packed,
    "flash_attn::_flash_attn_varlen_backward": with_options(_packed, backward=True),
    "aiter::_flash_attn_forward": _FLASH,
    "aiter::_flash_attn_backward": with_options(_attention, backward=True, heads=2, causal=12, window=13),
    "aiter::mha_fwd": _FLASH,
    "aiter::fmha_v3_fwd": _FLASH,
    "aiter::mha_bwd": with_options(_attention, backward=True, heads=2, causal=8, window=9),
    "aiter::fmha_v3_bwd": with_options(_attention, backward=True, heads=2, causal=8, window=9),
    "npu::npu_fusion_attention": _npu_attention,
}
