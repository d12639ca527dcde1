"""The grid of bench/families.py: of each kernel family calls of torch over shapes that are round, odd, with
few rows, with few columns, and large; with what each has to move and to compute.

Gradients are ATen's own backward ops, so that each case is one op on both sides. Attention's gradient is our
op beside torch's, because no op of ATen states it without its forward pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F

__all__ = ["Case", "cases"]

aten = torch.ops.aten
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """`operands`: kind and shape of each: "" floats, "positive" ones, "weights" as layers begin with, "f32"
    ones whatever the dtype, as norms keep their statistics, "f32 positive" ones, or a number below which
    indices lie.
    `elements` are those read and written at least, in the dtype."""

    family: str
    name: str
    operands: list[tuple[str, Shape]]
    call: Callable[..., Any]
    elements: float
    flops: float = 0.0
    maps: bool = False  # both sides run in both layouts
    peers: dict[str, Callable[..., Any]] = field(default_factory=dict)
    traced: Callable[..., Any] | None = None  # ours, over aicf.ops, where it is no op of torch


def size(*shapes: Shape) -> float:
    return float(sum(math.prod(s) for s in shapes))


def floats(*shapes: Shape) -> list[tuple[str, Shape]]:
    return [("", s) for s in shapes]


def matmuls() -> Iterator[Case]:
    grid = {
        "round": [(4096, 4096, 4096), (2048, 1024, 1024), (512, 512, 512)],
        "odd": [(1000, 1000, 1000), (777, 1024, 520), (1032, 904, 1304), (3000, 776, 776)],
        "few rows": [(1, 4096, 4096), (8, 1024, 4096), (16, 4096, 4096), (64, 2048, 2048)],
        "few columns": [(8192, 64, 1024), (16384, 16, 512), (4096, 10, 784)],
        "large": [(8192, 8192, 4096), (4096, 50257, 768), (2048, 128256, 512)],
    }
    for kind, shapes in grid.items():
        for m, n, k in shapes:
            a, b = (m, k), (n, k)
            yield Case(
                "matmul", f"{kind} {m}x{n}x{k}", floats(a, b), F.linear, size(a, b, (m, n)), 2.0 * m * n * k
            )
    for m, n, k in [(768, 3072, 8192), (512, 512, 16384), (128, 784, 4096), (64, 1000, 256)]:
        a, b = (k, m), (k, n)  # rows are what is summed over, as in a weight's gradient
        yield Case(
            "matmul weight gradient",
            f"{m}x{n}x{k}",
            floats(a, b),
            lambda a, b: a.t() @ b,
            size(a, b, (m, n)),
            2.0 * m * n * k,
        )
    for count, m, n, k in [(96, 197, 197, 64), (768, 64, 64, 32), (32, 512, 512, 80), (4096, 8, 8, 16)]:
        a, b = (count, m, k), (count, k, n)
        yield Case(
            "batched matmul",
            f"{count} of {m}x{n}x{k}",
            floats(a, b),
            torch.bmm,
            size(a, b, (count, m, n)),
            2.0 * count * m * n * k,
        )


# name, batch, channels, side, maps, kernel, stride, groups
CONVOLUTIONS = [
    ("round 3x3", 32, 64, 56, 64, 3, 1, 1),
    ("round 1x1", 32, 256, 28, 512, 1, 1, 1),
    ("stem 7x7", 32, 3, 224, 64, 7, 2, 1),
    ("few channels 3x3", 16, 3, 256, 16, 3, 2, 1),
    ("odd 3x3", 17, 50, 31, 70, 3, 1, 1),
    ("strided 3x3", 32, 128, 56, 128, 3, 2, 1),
    ("small maps 3x3", 8, 512, 7, 512, 3, 1, 1),
    ("one picture 3x3", 1, 128, 64, 128, 3, 1, 1),
    ("large 3x3", 64, 256, 56, 256, 3, 1, 1),
    ("grouped 3x3", 32, 256, 28, 256, 3, 1, 32),
]
DEPTHWISE = [
    ("3x3", 32, 96, 112, 96, 3, 1, 96),
    ("3x3 stride 2", 32, 144, 56, 144, 3, 2, 144),
    ("5x5", 32, 240, 28, 240, 5, 1, 240),
    ("5x5 stride 2", 32, 120, 28, 120, 5, 2, 120),
    ("7x7", 32, 192, 28, 192, 7, 1, 192),
    ("odd 3x3", 3, 73, 37, 73, 3, 1, 73),
    ("one picture 7x7", 1, 384, 14, 384, 7, 1, 384),
]


def convolutions() -> Iterator[Case]:
    for family, rows in (("convolution", CONVOLUTIONS), ("depthwise", DEPTHWISE)):
        for name, batch, channels, side, maps, kernel, stride, groups in rows:
            pad = kernel // 2
            out = (side + 2 * pad - kernel) // stride + 1
            x, y = (batch, channels, side, side), (batch, maps, out, out)
            w = (maps, channels // groups, kernel, kernel)
            flops, moved = 2.0 * size(y) * math.prod(w[1:]), size(x, w, y)
            text = f"{name}, {batch}x{channels}x{side} to {maps}"
            numbers = ([stride] * 2, [pad] * 2, [1, 1], False, [0, 0], groups)

            def forward(x: Any, w: Any, stride: int = stride, pad: int = pad, groups: int = groups) -> Any:
                return F.conv2d(x, w, None, stride, pad, 1, groups)

            def by_data(dy: Any, x: Any, w: Any, numbers: Any = numbers) -> Any:
                return aten.convolution_backward(dy, x, w, None, *numbers, [True, False, False])[0]

            def by_filter(dy: Any, x: Any, w: Any, numbers: Any = numbers) -> Any:
                return aten.convolution_backward(dy, x, w, None, *numbers, [False, True, False])[1]

            yield Case(family, text, floats(x, w), forward, moved, flops, True)
            yield Case(f"{family} by data", text, floats(y, x, w), by_data, moved, flops, True)
            yield Case(f"{family} by filter", text, floats(y, x, w), by_filter, moved, flops, True)
    for batch, channels, side, maps, kernel, stride in [(16, 128, 32, 64, 2, 2), (8, 64, 33, 32, 4, 2)]:
        x, w = (batch, channels, side, side), (channels, maps, kernel, kernel)
        pad = (kernel - stride) // 2
        y = (batch, maps, (side - 1) * stride - 2 * pad + kernel, (side - 1) * stride - 2 * pad + kernel)
        yield Case(
            "convolution transposed",
            f"{kernel}x{kernel} stride {stride}, {batch}x{channels}x{side} to {maps}",
            floats(x, w),
            lambda x, w, s=stride, p=pad: F.conv_transpose2d(x, w, None, s, p),
            size(x, w, y),
            2.0 * size(x) * math.prod(w[1:]),
            True,
        )


ROWS = {
    "round": (8192, 1024), "odd": (3001, 777), "few rows": (16, 4096), "few columns": (65536, 64),
    "long rows": (256, 50257), "large": (16384, 4096),
}  # fmt: skip
MAPS = {
    "round": (32, 64, 56, 56), "odd": (9, 72, 35, 35), "small maps": (64, 512, 7, 7),
    "one picture": (1, 64, 128, 128), "large": (64, 128, 56, 56),
}  # fmt: skip


def layer_norm_back(dy: Any, x: Any, w: Any, mean: Any, spread: Any) -> Any:
    return aten.native_layer_norm_backward(dy, x, [x.shape[-1]], mean, spread, w, w, [True, True, True])


def norms() -> Iterator[Case]:
    for name, (rows, columns) in ROWS.items():
        x, w, one = (rows, columns), (columns,), (rows, 1)
        text, each = f"{name} {rows}x{columns}", size((rows, columns))
        yield Case(
            "layer norm", text, floats(x, w, w), lambda x, w, b: F.layer_norm(x, w.shape, w, b), 2 * each
        )
        yield Case("rms norm", text, floats(x, w), lambda x, w: F.rms_norm(x, w.shape, w, 1e-5), 2 * each)
        operands = [*floats(x, x, w), ("f32", one), ("f32 positive", one)]
        yield Case("layer norm backward", text, operands, layer_norm_back, 3 * each)
        yield Case("softmax", text, floats(x), lambda x: F.softmax(x, -1), 2 * each)
        yield Case("log softmax", text, floats(x), lambda x: F.log_softmax(x, -1), 2 * each)
        yield Case(
            "softmax backward",
            text,
            [("", x), ("positive", x)],
            lambda dy, y: aten._softmax_backward_data(dy, y, -1, dy.dtype),
            3 * each,
        )
    for name, shape in MAPS.items():
        n, c, h, w = shape
        each, text, channels = size(shape), f"{name} {n}x{c}x{h}", (c,)
        yield Case(
            "batch norm training",
            text,
            [("", shape), ("f32", channels), ("f32", channels)],
            lambda x, w, b: F.relu(aten._native_batch_norm_legit.no_stats(x, w, b, True, 0.1, 1e-5)[0]),
            3 * each,
            0.0,
            True,
        )
        yield Case(
            "batch norm backward",
            text,
            [*floats(shape, shape), ("f32", channels), ("f32", channels), ("f32 positive", channels)],
            lambda dy, x, w, m, r: aten.native_batch_norm_backward(
                dy, x, w, None, None, m, r, True, 1e-5, [True] * 3
            ),
            5 * each,
            0.0,
            True,
        )
        yield Case(
            "group norm",
            text,
            floats(shape, channels, channels),
            lambda x, w, b: F.silu(F.group_norm(x, 8, w, b)),
            2 * each,
            0.0,
            True,
        )
        groups = (n, 8)
        yield Case(
            "group norm backward",
            text,
            [*floats(shape, shape, channels, groups), ("positive", groups)],
            lambda dy, x, w, m, r, s=shape: aten.native_group_norm_backward(
                dy, x, m, r, w, s[0], s[1], s[2] * s[3], 8, [True] * 3
            ),
            3 * each,
        )


# batch, heads, queries, keys, depth, causal
ATTENTION = [
    (4, 16, 1024, 1024, 64, True), (8, 12, 512, 512, 64, False), (16, 8, 512, 512, 128, True),
    (64, 6, 77, 77, 64, True), (32, 12, 197, 197, 64, False), (2, 8, 4096, 4096, 40, False),
    (8, 16, 1, 2048, 128, False), (4, 8, 16, 4096, 64, False), (64, 4, 49, 49, 32, False),
]  # fmt: skip


def attention() -> Iterator[Case]:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    for batch, heads, queries, keys, depth, causal in ATTENTION:
        q, k = (batch, heads, queries, depth), (batch, heads, keys, depth)
        flops = 4.0 * batch * heads * queries * keys * depth / (2 if causal else 1)
        text = f"{batch}x{heads} {queries}:{keys}x{depth}{' causal' if causal else ''}"

        def forward(q: Any, k: Any, v: Any, causal: bool = causal) -> Any:
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

        def by_cudnn(*operands: Any, call: Any = forward) -> Any:
            with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                return call(*operands)

        yield Case(
            "attention", text, floats(q, k, k), forward, size(q, k, k, q), flops, peers={"cuDNN": by_cudnn}
        )
        if queries < 32:
            continue

        def both(q: Any, k: Any, v: Any, dout: Any, call: Any = forward) -> Any:
            with torch.enable_grad():
                operands = [x.detach().requires_grad_() for x in (q, k, v)]
                out = call(*operands)
                return out.detach(), *torch.autograd.grad(out, operands, dout)

        def both_by_cudnn(*operands: Any, call: Any = both) -> Any:
            with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                return call(*operands)

        def traced(q: Any, k: Any, v: Any, dout: Any, depth: int = depth, causal: bool = causal) -> Any:
            from aicf import ops

            attributes = {"scale": depth**-0.5, "causal": causal}
            out = ops.attention(q, k, v, **attributes)
            return out, *ops.attention_backward(q, k, v, out, dout, **attributes)

        yield Case(
            "attention both ways",
            text,
            floats(q, k, k, q),
            both,
            size(q, k, k, q) * 2,
            3.5 * flops,
            peers={"cuDNN": both_by_cudnn},
            traced=traced,
        )


def gathers() -> Iterator[Case]:
    for rows, count, width in [
        (100_000, 8192, 64),
        (30522, 16384, 768),
        (5000, 200_000, 16),
        (1_000_000, 4096, 32),
    ]:
        table, index, text = (rows, width), (count,), f"{count} of {rows}x{width}"
        moved = 2 * size((count, width))
        yield Case("gather rows", text, [("", table), (str(rows), index)], lambda t, i: t[i], moved)
        yield Case(
            "embedding backward",
            text,
            [("", (count, width)), (str(rows), index)],
            lambda dy, i, rows=rows: aten.embedding_dense_backward(dy, i, rows, -1, False),
            size((count, width), table),
        )
    for nodes, edges, width in [
        (2708, 10556, 64),
        (20000, 160_000, 128),
        (100_000, 400_000, 16),
        (1000, 50_000, 33),
    ]:
        text = f"{edges} into {nodes}x{width}"
        yield Case(
            "index add",
            text,
            [("", (edges, width)), (str(nodes), (edges,))],
            lambda x, i, n=nodes: torch.zeros(n, x.shape[1], dtype=x.dtype, device=x.device).index_add(
                0, i, x
            ),
            size((edges, width), (nodes, width)),
        )
        yield Case(
            "scatter add",
            text,
            [("", (edges, width)), (str(nodes), (edges, width))],
            lambda x, i, n=nodes: torch.zeros(n, x.shape[1], dtype=x.dtype, device=x.device).scatter_add(
                0, i, x
            ),
            size((edges, width), (nodes, width)) + 4 * size((edges, width)),
        )


def pools() -> Iterator[Case]:
    for name, shape in MAPS.items():
        n, c, h, w = shape
        half = (n, c, h // 2, w // 2)
        text, each = f"{name} {n}x{c}x{h}", size(shape)
        yield Case("max pool", text, floats(shape), lambda x: F.max_pool2d(x, 2), 1.25 * each, 0.0, True)
        yield Case(
            "max pool 3x3", text, floats(shape), lambda x: F.max_pool2d(x, 3, 2, 1), 1.25 * each, 0.0, True
        )
        yield Case("average pool", text, floats(shape), lambda x: F.avg_pool2d(x, 2), 1.25 * each, 0.0, True)
        yield Case("global pool", text, floats(shape), lambda x: x.mean((2, 3)), each, 0.0, True)
        yield Case(
            "max pool backward",
            text,
            floats(half, shape),
            lambda dy, x: aten.max_pool2d_with_indices_backward(
                dy,
                x,
                [2, 2],
                [2, 2],
                [0, 0],
                [1, 1],
                False,
                aten.max_pool2d_with_indices(x, [2, 2], [2, 2])[1],
            ),
            2.25 * each,
        )
        yield Case(
            "average pool backward",
            text,
            floats(half, shape),
            lambda dy, x: aten.avg_pool2d_backward(dy, x, [2, 2], [2, 2], [0, 0], False, True, None),
            1.25 * each,
        )
        for mode in ("nearest", "bilinear"):
            yield Case(
                f"interpolation {mode}",
                text,
                floats(shape),
                lambda x, mode=mode: F.interpolate(x, scale_factor=2.0, mode=mode),
                5 * each,
                0.0,
                True,
            )
        double = (n, c, 2 * h, 2 * w)
        sizes = [[2 * h, 2 * w], list(shape)]
        yield Case(
            "interpolation nearest backward",
            text,
            floats(double),
            lambda dy, s=sizes: aten.upsample_nearest2d_backward(dy, *s),
            5 * each,
        )
        yield Case(
            "interpolation bilinear backward",
            text,
            floats(double),
            lambda dy, s=sizes: aten.upsample_bilinear2d_backward(dy, *s, False),
            5 * each,
        )


def moves() -> Iterator[Case]:
    for name, shape in ROWS.items():
        text, each = f"{name} {shape[0]}x{shape[1]}", size(shape)
        yield Case("sum of rows", text, floats(shape), lambda x: x.sum(-1), each)
        yield Case("sum of columns", text, floats(shape), lambda x: x.sum(0), each)
        yield Case("maximum of rows", text, floats(shape), lambda x: x.amax(-1), each)
        yield Case("argmax of rows", text, floats(shape), lambda x: x.argmax(-1), each)
        yield Case("transpose", text, floats(shape), lambda x: x.t().contiguous(), 2 * each)
        yield Case("pointwise", text, floats(shape, shape), lambda x, y: F.silu(x) * y, 3 * each)
        yield Case("concat", text, floats(shape, shape), lambda x, y: torch.cat([x, y], -1), 4 * each)
    for batch, length, heads, depth in [(32, 128, 12, 64), (8, 1024, 16, 64), (3, 77, 7, 40)]:
        shape = (batch, length, heads, depth)
        yield Case(
            "heads apart",
            "x".join(map(str, shape)),
            floats(shape),
            lambda x: x.transpose(1, 2).contiguous() * 1.0,
            2 * size(shape),
        )
    for n, c, h, groups in [(32, 64, 56, 4), (16, 116, 28, 2)]:
        shape = (n, c, h, h)
        yield Case(
            "channel shuffle",
            f"{n}x{c}x{h} of {groups}",
            floats(shape),
            lambda x, g=groups: (
                x.view(x.shape[0], g, -1, *x.shape[2:]).transpose(1, 2).reshape(x.shape) * 1.0
            ),
            2 * size(shape),
        )


def recurrent() -> Iterator[Case]:
    """One layer over a batch that comes first, all gates' weights given."""
    for kind, gates in (("lstm", 4), ("gru", 3)):
        for batch, length, width in [
            (16, 64, 256),
            (1, 128, 128),
            (64, 32, 512),
            (32, 100, 1024),
            (9, 50, 100),
        ]:
            x, w, b = (batch, length, width), (gates * width, width), (gates * width,)
            h = (1, batch, width)

            def call(x: Any, w: Any, u: Any, b: Any, h: Any, c: Any, kind: str = kind) -> Any:
                start = (h, c) if kind == "lstm" else h
                run = torch.lstm if kind == "lstm" else torch.gru
                return run(x, start, [w, u, b, b], True, 1, 0.0, False, False, True)[0]

            yield Case(
                kind,
                f"batch {batch}, {length} steps of {width}",
                [*floats(x), ("weights", w), ("weights", w), *floats(b, h, h)],
                call,
                size(x, w, w, x),
                4.0 * batch * length * gates * width * width,
            )


def cases() -> Iterator[Case]:
    for group in (matmuls, convolutions, norms, attention, gathers, pools, moves, recurrent):
        yield from group()
