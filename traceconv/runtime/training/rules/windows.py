"""Windows of an image: the inputs of each output of a convolution or pooling, and the way back."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from traceconv.runtime.training.gradient import NoRule, Site, Values


@dataclass(frozen=True, slots=True)
class Windows:
    """A kernel that moves over the spatial dimensions of N × C × extents. Each tuple has an entry per dimension.

    `ends`: the end padding that the last window needs. If sizes are rounded up, it exceeds `stated_ends`.
    """

    extents: tuple[int, ...]
    outputs: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]
    stated_ends: tuple[int, ...]

    @property
    def ends(self) -> tuple[int, ...]:
        spans = zip(self.outputs, self.strides, self.kernel, self.dilations, self.extents, self.begins, strict=True)
        needed = ((o - 1) * s + (k - 1) * d + 1 - n - b for o, s, k, d, n, b in spans)
        return tuple(max(0, need) for need in needed)

    def of(self, x: Values, fill: float = 0.0) -> Values:
        """Return a view of the padded `x`: N × C × outputs × kernel."""
        widths = [(0, 0), (0, 0), *zip(self.begins, self.ends, strict=True)]
        padded = np.pad(x, widths, constant_values=fill)
        rank = len(self.kernel)
        spans = tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))
        windows = np.lib.stride_tricks.sliding_window_view(padded, spans, axis=tuple(range(2, 2 + rank)))
        places = [slice(None, (o - 1) * s + 1, s) for o, s in zip(self.outputs, self.strides, strict=True)]
        taps = [slice(None, None, d) for d in self.dilations]
        view: Values = windows[tuple([slice(None)] * 2 + places + taps)]
        return view

    def back(self, parts: Values) -> Values:
        """Return the sum of all windows (N × C × outputs × kernel) for each element: N × C × extents."""
        widths = zip(self.extents, self.begins, self.ends, strict=True)
        total = np.zeros((*parts.shape[:2], *(n + b + e for n, b, e in widths)), parts.dtype)
        flat = parts.reshape(*parts.shape[: 2 + len(self.kernel)], -1)
        for index, tap in enumerate(itertools.product(*map(range, self.kernel))):
            steps = zip(tap, self.dilations, self.strides, self.outputs, strict=True)
            places = [slice(t * d, t * d + (o - 1) * s + 1, s) for t, d, s, o in steps]
            total[tuple([slice(None)] * 2 + places)] += flat[..., index]
        inner = [slice(None)] * 2 + [slice(b, b + n) for b, n in zip(self.begins, self.extents, strict=True)]
        return np.ascontiguousarray(total[tuple(inner)])


def windows_of(site: Site, extents: Sequence[int], outputs: Sequence[int], kernel: Sequence[int]) -> Windows:
    """Return the windows of a Conv or pooling node from `extents` to `outputs`."""
    rank = len(kernel)
    strides = site.node.ints("strides", [1] * rank)
    dilations = site.node.ints("dilations", [1] * rank)
    pads = site.node.ints("pads", [0] * 2 * rank)
    auto = site.node.text("auto_pad", "NOTSET")
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        pads = [0] * 2 * rank
        for axis in range(rank):
            span = (outputs[axis] - 1) * strides[axis] + (kernel[axis] - 1) * dilations[axis] + 1
            total = max(0, span - extents[axis])
            less, more = total // 2, total - total // 2
            pads[axis], pads[axis + rank] = (less, more) if auto == "SAME_UPPER" else (more, less)
    elif auto == "VALID":
        pads = [0] * 2 * rank
    elif auto != "NOTSET":
        raise NoRule(f"auto_pad {auto[:20]!r}")
    if min(pads, default=0) < 0:
        raise NoRule("negative padding")
    return Windows(
        tuple(extents), tuple(outputs), tuple(kernel), tuple(strides), tuple(dilations),
        tuple(pads[:rank]), tuple(pads[rank:]),
    )  # fmt: skip
