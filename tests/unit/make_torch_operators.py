"""Write torch_operators.json: calls of PyTorch's operators as its profiler records them, and what PyTorch says of them.

Run it with a Python that has torch (the CPU build is enough). Per call: name, the three keys of the event's args, the
operations of torch.utils.flop_counter (null where it has no formula), and the bytes of the results.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch.profiler import profile
from torch.utils.flop_counter import FlopCounterMode, flop_registry

aten, r = torch.ops.aten, torch.randn
Call = tuple[str, tuple[Any, ...]]


def indices(most: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, most, shape)


def products() -> list[Call]:
    bf16 = {"dtype": torch.bfloat16}
    return [
        ("mm", (r(3, 4), r(4, 5))), ("mm", (r(3, 4, **bf16), r(4, 5, **bf16))), ("bmm", (r(7, 3, 4), r(7, 4, 5))),
        ("addmm", (r(5), r(3, 4), r(4, 5))), ("baddbmm", (r(7, 3, 5), r(7, 3, 4), r(7, 4, 5))),
        ("mv", (r(3, 4), r(4))), ("dot", (r(4), r(4))), ("matmul", (r(2, 1, 3, 4), r(3, 4, 5))),
        ("linear", (r(2, 3, 4), r(5, 4), r(5))), ("linear", (r(2, 3, 4), r(5, 4))),
        ("_grouped_mm", (r(2, 3, 16, **bf16), r(2, 16, 8, **bf16))),
        ("_grouped_mm", (r(6, 16, **bf16), r(2, 16, 8, **bf16), torch.tensor([2, 6], dtype=torch.int32))),
        ("_grouped_mm", (r(8, 16, **bf16), r(16, 8, **bf16), torch.tensor([8, 16], dtype=torch.int32))),
    ]  # fmt: skip


def convolutions() -> list[Call]:
    found: list[Call] = []
    for x, weight, bias, *rest in (
        (r(2, 3, 20, 20), r(6, 3, 7, 7), None, [2, 2], [3, 3], [1, 1], False, [0, 0], 1),
        (r(1, 8, 10), r(6, 4, 3), r(6), [1], [1], [1], False, [0], 2),
        (r(1, 5, 4), r(5, 3, 3), None, [2], [1], [1], True, [1], 1),
        (r(1, 4, 9, 9), r(4, 1, 3, 3), None, [1, 1], [0, 0], [2, 2], False, [0, 0], 4),
        (r(2, 4, 5, 6), r(4, 3, 3, 2), r(6), [2, 1], [1, 0], [1, 2], True, [0, 0], 2),
        (r(1, 2, 4, 5, 6), r(3, 2, 2, 2, 2), None, [1, 1, 1], [0, 0, 0], [1, 1, 1], False, [0, 0, 0], 1),
    ):
        found.append(("convolution", (x, weight, bias, *rest)))
        gradient = torch.ones_like(aten.convolution(x, weight, bias, *rest))
        sizes = None if bias is None else [6]
        for mask in ([True, True, True], [False, True, False], [True, False, False]):
            found.append(("convolution_backward", (gradient, x, weight, sizes, *rest, mask)))
    return found


def attention() -> list[Call]:
    """On the device meta, where operators of GPUs have results without elements."""
    q, few, sums = (torch.empty(shape, device="meta") for shape in ((2, 8, 16, 4), (2, 8, 24, 4), (2, 8, 16)))
    seed = torch.empty((), device="meta", dtype=torch.long)
    flash, efficient = "_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention"
    return [
        (flash, (q, q, q)), (flash, (q, few, few)), (efficient, (q, few, few, None, True)),
        (f"{flash}_backward", (q, q, few, few, q, sums, None, None, 16, 24, 0.0, False, seed, seed)),
        (f"{efficient}_backward",
         (q, q, few, few, None, q, sums, seed, seed, 0.0, [True, True, True, False])),
    ]  # fmt: skip


def normalizations() -> list[Call]:
    rows, image, four, eight = r(5, 8), r(2, 4, 3), r(4), r(8)
    layer, mean, deviation = aten.native_layer_norm(rows, [8], eight, eight, 1e-5)
    group, *saved = aten.native_group_norm(image, four, four, 2, 4, 3, 2, 1e-5)
    batch, *of_batch = aten.native_batch_norm(image, four, four, None, None, True, 0.1, 1e-5)
    every = [True, True, True]
    return [
        ("native_layer_norm_backward", (layer, rows, [8], mean, deviation, eight, eight, every)),
        ("native_layer_norm_backward", (layer, rows, [8], mean, deviation, None, None, [True, False, False])),
        ("native_group_norm_backward", (group, image, *saved, four, 2, 4, 3, 2, every)),
        ("native_batch_norm_backward", (batch, image, four, None, None, *of_batch, True, 1e-5, every)),
        ("_softmax", (rows, -1, False)), ("_softmax_backward_data", (rows, rows, -1, torch.float)),
        ("_log_softmax", (rows, 1, False)), ("_log_softmax_backward_data", (rows, rows, 1, torch.float)),
    ]  # fmt: skip


def pooling() -> list[Call]:
    found: list[Call] = []
    for shape in ((1, 2, 7, 9), (2, 7, 9)):
        for window, stride, padding, dilation, is_up in (
            ([2, 3], [], [0, 1], [1, 1], False), ([3, 3], [2, 2], [1, 1], [1, 1], True),
            ([2, 2], [3, 3], [1, 1], [1, 1], True), ([2, 2], [2, 2], [0, 0], [2, 2], True), ([3], [2], [1], [1], False),
        ):  # fmt: skip
            x = r(shape)
            found.append(("max_pool2d_with_indices", (x, window, stride, padding, dilation, is_up)))
            y, places = aten.max_pool2d_with_indices(x, window, stride, padding, dilation, is_up)
            backward = (y, x, window, stride, padding, dilation, is_up, places)
            found.append(("max_pool2d_with_indices_backward", backward))
            if dilation != [2, 2]:
                found.append(("avg_pool2d", (x, window, stride, padding, is_up, True)))
                found.append(("avg_pool2d_backward", (y, x, window, stride, padding, is_up, True, None)))
    x = r(1, 2, 7, 8, 9)
    found.append(("max_pool3d_with_indices", (x, [2, 2, 2], [2, 2, 2], [0, 0, 0], [1, 1, 1], False)))
    found.append(("avg_pool3d", (x, [2, 2, 2], [2, 2, 2], [0, 0, 0], True, True)))
    for extents in ([3, 5], [7, 9], [14, 4], [1, 1]):
        x = r(2, 3, 7, 9)
        y, places = aten.adaptive_max_pool2d(x, extents)
        found += [("_adaptive_avg_pool2d", (x, extents)), ("_adaptive_avg_pool2d_backward", (y, x)),
                  ("adaptive_max_pool2d", (x, extents)), ("adaptive_max_pool2d_backward", (y, x, places))]  # fmt: skip
    found.append(("_adaptive_avg_pool3d", (r(2, 3, 7, 9, 4), [2, 3, 3])))
    return found


def interpolations() -> list[Call]:
    x, gradient, shape = r(2, 3, 4, 5), r(2, 3, 8, 10), [2, 3, 4, 5]
    return [
        ("upsample_nearest2d", (x, [8, 10])), ("upsample_bilinear2d", (x, [8, 11], False)),
        ("upsample_bicubic2d", (x, [8, 11], False)), ("upsample_nearest2d", (x, [2, 10])),
        ("upsample_nearest2d_backward", (gradient, [8, 10], shape)),
        ("upsample_bilinear2d_backward", (gradient, [8, 10], shape, False)),
        ("upsample_linear1d", (r(2, 3, 4), [9], True)), ("upsample_trilinear3d", (r(2, 3, 4, 4, 4), [9, 5, 4], True)),
    ]  # fmt: skip


def others() -> list[Call]:
    table, rows, half = r(100, 8), r(5, 8), {"dtype": torch.bfloat16}
    return [
        ("embedding", (table, indices(100, 3, 2))),
        ("embedding_dense_backward", (r(3, 2, 8), indices(100, 3, 2), 100, -1, False)),
        ("index_select", (table, 0, indices(100, 3))), ("gather", (table, 0, indices(100, 3, 2))),
        ("mse_loss", (rows, rows, 0)), ("mse_loss_backward", (r([]), rows, rows, 1)),
        *((name, (rows,)) for name in ("hardswish", "hardsigmoid", "gelu", "relu", "exp", "triu")),
        *((name, (rows, rows)) for name in ("hardswish_backward", "sigmoid_backward", "gelu_backward")),
        ("flip", (rows, [0])), ("roll", (rows, [1], [0])), ("glu", (rows, -1)), ("glu_backward", (r(5, 4), rows, -1)),
        ("native_dropout", (rows, 0.5, True)), ("native_dropout_backward", (rows, rows > 0, 2.0)),
        ("add", (r(3, 1), r(4))), ("mul", (r(3, 4, **half), r([]))), ("eq", (indices(5, 12), 3)),
        ("where", (r(12) > 0, r(12, **half), r([]))), ("lerp", (r(3), r(3), 0.5)), ("cumsum", (rows, 1)),
        *((name, (rows, *more)) for name in ("sum", "mean") for more in ((), ([1], True), ([0, -1], False))),
        ("sum", (rows > 0, [0], False)), ("argmax", (rows, 1, False)), ("amax", (rows, [0], True)), ("max", (rows,)),
        ("max", (rows, 1, False)), ("min", (rows, 0, True)), ("linalg_vector_norm", (rows, 2, [1], False)),
    ]  # fmt: skip


def tensors_of(result: object) -> list[torch.Tensor]:
    if isinstance(result, torch.Tensor):
        return [result]
    return [one for part in result for one in tensors_of(part)] if isinstance(result, (tuple, list)) else []


def recorded(name: str, arguments: tuple[Any, ...]) -> list[object]:
    function = getattr(aten, name)
    with profile(record_shapes=True) as found:
        result = function(*arguments)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        found.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    args = next(event["args"] for event in events if event.get("name") == f"aten::{name}" and event["ph"] == "X")
    with FlopCounterMode(display=False) as counter:
        function(*arguments)
    inside = {"linear": aten.mm, "matmul": aten.bmm}.get(name, function)
    flops = counter.get_total_flops() if inside in flop_registry else None
    size = sum(one.numel() * one.element_size() for one in tensors_of(result))
    return [f"aten::{name}", args["Input Dims"], args["Input type"], args["Concrete Inputs"], flops, size]


if __name__ == "__main__":
    calls = [*products(), *convolutions(), *attention(), *normalizations(), *pooling(), *interpolations(), *others()]
    lines = ",\n".join(json.dumps(recorded(*call), separators=(",", ":")) for call in calls)
    text = f'{{"torch":"{torch.__version__}","calls":[\n{lines}\n]}}\n'
    Path(__file__).with_name("torch_operators.json").write_text(text)
