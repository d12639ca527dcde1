"""The ops of bench/op_sweep.py: every op of src/ir/ops.def that has a torch form, and the forms of torch that
usual models write. Sizes are drawn; results are contiguous on both sides.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from drawn_streams import Stream

__all__ = ["NO_TORCH_FORM", "OPS", "Operand", "Sizes", "SweepOp"]

# Of ops.def: why an op stands in no row.
NO_TORCH_FORM = {
    "size_of": "a size is a number in torch",
    "round_tf32": "torch rounds operands inside its products",
    "random_bits": "random numbers are not torch's",
    "if_else": "control flow, of which nothing is left to time but its bodies",
    "while_loop": "control flow",
    "fused": "made by the compiler",
    "call": "made by the compiler",
    "custom": "an op of the user's",
    "stop_gradient": "computes nothing",
    "attention_lse": "torch returns no logsumexp",
    "attention_backward": "the gradient of attention",
    "conv_weight_gradient": "the gradient of conv",
    "recurrent": "torch has it with the products of its inputs; bench/drawn.py draws such layers",
    "recurrent_backward": "the gradient of recurrent",
    "rope_append": "a cache is a state",
    "linear_cross_entropy_backward": "the gradient of linear_cross_entropy",
}


@dataclass(frozen=True)
class Operand:
    """`kind`: "" normal floats, "unit" in (0.05, 0.95), "over" in 1 and above, "distinct" in each row,
    "bool", "i64"; indices lie below `high`."""

    shape: tuple[int, ...]
    kind: str = ""
    high: int = 0


@dataclass(frozen=True)
class SweepOp:
    """`of` are the rows of ops.def that it shows; `draw` gives operands and the call over them."""

    name: str
    of: tuple[str, ...]
    draw: Callable[[Sizes], tuple[list[Operand], Callable[..., Any]]]
    gradient: bool


class Sizes:
    """Draws of shapes with about `elements`: a third each round, odd, and with one short axis."""

    def __init__(self, stream: Stream, device: str) -> None:
        self.stream = stream
        least, most = ((1 << 21), (1 << 25)) if device == "cuda" else ((1 << 17), (1 << 21))
        self.elements = stream.between(least, most)

    def width(self, least: int = 16, most: int = 4096) -> int:
        size = self.stream.between(least, most)
        return int(
            self.stream.choice((2 ** round(math.log2(size)), 8 * max(1, round(size / 8)), round(size)))
        )

    def matrix(self, least: int = 16, most: int = 4096) -> tuple[int, int]:
        columns = self.width(least, most)
        return max(1, round(self.elements / columns)), columns

    def maps(self, channels: int = 0) -> tuple[int, int, int, int]:
        channels = channels or self.stream.choice((16, 24, 32, 64, 96, 128, 192))
        side = self.stream.choice((7, 14, 17, 28, 32, 56, 64))
        return max(1, round(self.elements / (channels * side * side))), channels, side, side

    def cube(self) -> tuple[int, int, int]:
        middle, last = self.stream.choice((8, 17, 32, 64)), self.width(16, 512)
        return max(1, round(self.elements / (middle * last))), middle, last


OPS: list[SweepOp] = []


def add(
    name: str,
    of: str,
    draw: Callable[[Sizes], tuple[list[Operand], Callable[..., Any]]],
    gradient: bool = True,
) -> None:
    OPS.append(SweepOp(name, tuple(of.split()), draw, gradient))


def each(
    name: str, call: Callable[..., Any], of: str = "", kinds: tuple[str, ...] = ("",), gradient: bool = True
) -> None:
    """A pointwise op over matrices of one shape."""

    def draw(s: Sizes) -> tuple[list[Operand], Callable[..., Any]]:
        shape = s.matrix()
        return [Operand(shape, kind) for kind in kinds], call

    add(name, of or name, draw, gradient)


def over(
    name: str,
    of: str,
    shape: Callable[[Sizes], tuple[int, ...]],
    call: Callable[..., Any],
    gradient: bool = True,
) -> None:
    """An op of one operand of normal floats."""
    add(name, of, lambda s: ([Operand(shape(s))], call), gradient)


# ---- pointwise

for _name in "neg abs exp expm1 sin cos tan atan sinh cosh tanh asinh erf sigmoid".split():
    each(_name, getattr(torch, _name))
for _name in "log log1p sqrt rsqrt asin acos atanh".split():
    each(_name, getattr(torch, _name), kinds=("unit",))
each("acosh", torch.acosh, kinds=("over",))
for _name in "sign floor ceil trunc round".split():
    each(_name, getattr(torch, _name), gradient=False)
each("isnan", torch.isnan, "is_nan", gradient=False)
each("isinf", torch.isinf, "is_inf", gradient=False)
for _name, _call in {
    "relu": F.relu,
    "leaky_relu": F.leaky_relu,
    "elu": F.elu,
    "silu": F.silu,
    "gelu": F.gelu,
    "softplus": F.softplus,
}.items():
    each(_name, _call)
each("gelu, tanh", lambda x: F.gelu(x, approximate="tanh"), "gelu")
each("hardswish", F.hardswish, "clamp")
each("mish", F.mish, "softplus tanh")
each("clamp", lambda x: x.clamp(-1, 1))
for _name in "add sub mul atan2".split():
    each(_name, getattr(torch, _name), kinds=("", ""))
each("div", torch.div, kinds=("", "over"))
each("fmod", torch.fmod, "rem", ("", "over"), False)
each("remainder", torch.remainder, "mod", ("", "over"), False)
each("pow", torch.pow, kinds=("unit", ""))
each("pow of 3", lambda x: x**3, "pow")
each("maximum", torch.maximum, "max", ("", ""))
each("minimum", torch.minimum, "min", ("", ""))
for _name in "eq ne lt le gt ge".split():
    each(_name, getattr(torch, _name), kinds=("", ""), gradient=False)
each("where", torch.where, "select", ("bool", "", ""))
each("masked_fill", lambda x, m: x.masked_fill(m, -1.0), "select", ("", "bool"))
each("logical_not", torch.logical_not, kinds=("bool",), gradient=False)
each("bitwise_not", torch.bitwise_not, "bit_not", ("i64",), False)
for _name in "and or xor".split():
    each(f"bitwise_{_name}", getattr(torch, f"bitwise_{_name}"), f"bit_{_name}", ("i64", "i64"), False)
each("shift left", lambda x: x << 3, "shift_left", ("i64",), False)
each("shift right", lambda x: x >> 3, "shift_right", ("i64",), False)
each("cast to i64", lambda x: x.long(), "cast", gradient=False)
each("add a row", lambda x: x + x[:1], "add broadcast_to slice")


def _adamw(p: Any, g: Any, m: Any, v: Any) -> Any:
    m, v = m.lerp(g, 0.1), v * 0.999 + g * g * 0.001
    return p * 0.99999 - 1e-3 * (m / 0.1) / ((v / 0.001).sqrt() + 1e-8), m, v


each("adamw", _adamw, "adamw_step", ("", "", "", "unit"), False)

# ---- moves

over("transpose", "transpose", Sizes.matrix, lambda x: x.t().contiguous())
over("permute 0213", "transpose", Sizes.maps, lambda x: x.transpose(1, 2).contiguous())
over("channels last", "transpose reshape", Sizes.maps, lambda x: x.permute(0, 2, 3, 1).contiguous())
over(
    "channel shuffle",
    "reshape transpose",
    Sizes.maps,
    lambda x: x.view(x.shape[0], 4, -1, *x.shape[2:]).transpose(1, 2).reshape(x.shape).contiguous(),
)
over("expand", "broadcast_to", Sizes.matrix, lambda x: x[:1].expand(x.shape[0], -1).contiguous() + x)
over("slice of columns", "slice", Sizes.matrix, lambda x: x[:, 1:-1].contiguous())
over("every second row", "slice", Sizes.matrix, lambda x: x[::2].contiguous())
over("flip", "reverse", Sizes.matrix, lambda x: x.flip(-1))
over("roll", "slice concat", Sizes.matrix, lambda x: x.roll(3, -1))
over("pad with zeros", "pad", Sizes.maps, lambda x: F.pad(x, (1, 1, 1, 1)))
for _mode in ("reflect", "replicate", "circular"):
    over(f"pad, {_mode}", "pad", Sizes.maps, lambda x, mode=_mode: F.pad(x, (2, 2, 2, 2), mode))
each("concat", lambda x, y: torch.cat([x, y], -1), "concat", ("", ""))
each("stack", lambda x, y: torch.stack([x, y], 1), "concat", ("", ""))
over(
    "arange", "iota", Sizes.matrix, lambda x: x + torch.arange(x.shape[1], device=x.device).to(x.dtype), False
)
over("tril", "iota select", Sizes.matrix, torch.tril)
over("pixel_shuffle", "reshape transpose", Sizes.maps, lambda x: F.pixel_shuffle(x, 2))
over("unfold", "slice", lambda s: s.maps(16), lambda x: F.unfold(x, 3, padding=1))
over("repeat", "concat broadcast_to", Sizes.matrix, lambda x: x.repeat(1, 2))


def _rows(s: Sizes) -> tuple[tuple[int, int], int]:
    shape = s.matrix(16, 512)
    return shape, max(1, shape[0] // 2)


def _indexed(name: str, of: str, call: Callable[..., Any], gradient: bool = True) -> None:
    """A matrix and indices of its rows."""

    def draw(s: Sizes) -> tuple[list[Operand], Callable[..., Any]]:
        shape, count = _rows(s)
        return [Operand(shape), Operand((count,), "i64", shape[0])], call

    add(name, of, draw, gradient)


def _scattered(name: str, of: str, call: Callable[..., Any], like: bool, gradient: bool = True) -> None:
    """A matrix, indices of its rows, and rows to put there; `like`: an index for each element."""

    def draw(s: Sizes) -> tuple[list[Operand], Callable[..., Any]]:
        shape, count = _rows(s)
        rows = (count, shape[1])
        return [Operand(shape), Operand(rows if like else (count,), "i64", shape[0]), Operand(rows)], call

    add(name, of, draw, gradient)


_indexed("rows by index", "gather", lambda x, i: x[i])
_indexed("index_select", "gather", lambda x, i: x.index_select(0, i))
_indexed("embedding", "gather", lambda x, i: F.embedding(i, x))
_indexed("bag of rows", "gather reduce_mean", lambda x, i: x[i[: i.shape[0] // 4 * 4].view(-1, 4)].mean(1))
_indexed("two indices", "gather_nd", lambda x, i: x[i, i % x.shape[1]])
_scattered("gather", "gather_elements", lambda x, i, u: x.gather(0, i) + u, True)
_scattered("scatter_add", "scatter_elements", lambda x, i, u: x.scatter_add(0, i, u), True)
_scattered(
    "scatter_reduce, amax", "scatter_elements", lambda x, i, u: x.scatter_reduce(0, i, u, "amax"), True, False
)
_scattered("index_add", "scatter_nd", lambda x, i, u: x.index_add(0, i, u), False)
_scattered("index_put, added", "scatter_nd", lambda x, i, u: x.index_put((i,), u, True), False)


def _one_hot(s: Sizes) -> tuple[list[Operand], Callable[..., Any]]:
    rows, columns = s.matrix(10, 1000)
    return [Operand((rows,), "i64", columns)], lambda i: F.one_hot(i, columns).float()


add("one_hot", "one_hot", _one_hot, False)

# ---- reductions, scans, order

for _name, _axes in {"last": -1, "first": 0}.items():
    over(f"sum, {_name} axis", "reduce_sum", Sizes.matrix, lambda x, a=_axes: x.sum(a))
    over(f"mean, {_name} axis", "reduce_mean", Sizes.matrix, lambda x, a=_axes: x.mean(a))
    over(f"amax, {_name} axis", "reduce_max", Sizes.matrix, lambda x, a=_axes: x.amax(a))
    over(f"argmax, {_name} axis", "argmax", Sizes.matrix, lambda x, a=_axes: x.argmax(a), False)
    over(f"cumsum, {_name} axis", "cumsum", Sizes.matrix, lambda x, a=_axes: x.cumsum(a))
    over(f"softmax, {_name} axis", "softmax", Sizes.matrix, lambda x, a=_axes: x.softmax(a))
over("sum of all", "reduce_sum", Sizes.matrix, lambda x: x.sum())
over("sum, middle axis", "reduce_sum", Sizes.cube, lambda x: x.sum(1))
over("sum over batch and map", "reduce_sum", Sizes.maps, lambda x: x.sum((0, 2, 3)))
over("mean over maps", "reduce_mean", Sizes.maps, lambda x: x.mean((2, 3)))
over("amin", "reduce_min", Sizes.matrix, lambda x: x.amin(-1))
over("argmin", "argmin", Sizes.matrix, lambda x: x.argmin(-1), False)
over("prod", "reduce_prod", lambda s: s.matrix(16, 64), lambda x: x.prod(-1))
over("max with indices", "reduce_max argmax", Sizes.matrix, lambda x: x.max(-1), False)
over("var", "reduce_mean", Sizes.matrix, lambda x: x.var(-1))
over("norm", "reduce_sum sqrt", Sizes.matrix, lambda x: x.norm(dim=-1))
over("logsumexp", "reduce_logsumexp", Sizes.matrix, lambda x: x.logsumexp(-1))
over("any", "reduce_max", Sizes.matrix, lambda x: (x > 3).any(-1), False)
over("cumprod", "cumprod", lambda s: s.matrix(16, 64), lambda x: x.cumprod(-1), False)
over("sort", "sort", lambda s: s.matrix(16, 1024), lambda x: x.sort(-1), False)
add(  # of equal values torch's choice is its own
    "topk",
    "top_k",
    lambda s: ([Operand(s.matrix(64, 4096), "distinct")], lambda x: x.topk(8, -1)),
    False,
)
over("log_softmax", "log_softmax", Sizes.matrix, lambda x: x.log_softmax(-1))

# ---- norms and losses


def _norm(call: Callable[..., Any], count: int, shape: Callable[[Sizes], tuple[int, ...]], axis: int) -> Any:
    def draw(s: Sizes) -> tuple[list[Operand], Callable[..., Any]]:
        x = shape(s)
        return [Operand(x), *([Operand((x[axis],), "unit")] * count)], call

    return draw


add("layer_norm", "layer_norm", _norm(lambda x, w, b: F.layer_norm(x, w.shape, w, b), 2, Sizes.matrix, -1))
add("rms_norm", "rms_norm", _norm(lambda x, w: F.rms_norm(x, w.shape, w, 1e-5), 1, Sizes.matrix, -1))
add("batch_norm", "batch_norm", _norm(lambda x, w, b, m, v: F.batch_norm(x, m, v, w, b), 4, Sizes.maps, 1))
add(
    "batch_norm, training",
    "batch_norm_train",
    _norm(lambda x, w, b: F.batch_norm(x, None, None, w, b, True), 2, Sizes.maps, 1),
)
add("group_norm", "group_norm", _norm(lambda x, w, b: F.group_norm(x, 8, w, b), 2, Sizes.maps, 1))
add(
    "instance_norm",
    "group_norm",
    _norm(lambda x, w, b: F.instance_norm(x, None, None, w, b), 2, Sizes.maps, 1),
)


def _cross_entropy(s: Sizes) -> tuple[list[Operand], Callable[..., Any]]:
    rows, count = s.matrix(10, 4096)
    return [Operand((rows, count)), Operand((rows,), "i64", count)], F.cross_entropy


def _linear_cross_entropy(s: Sizes) -> tuple[list[Operand], Callable[..., Any]]:
    rows, count = s.matrix(1000, 8000)
    width = 128
    return [Operand((rows, width)), Operand((count, width)), Operand((rows,), "i64", count)], (
        lambda x, w, t: F.cross_entropy(F.linear(x, w), t)
    )


add("cross_entropy", "cross_entropy", _cross_entropy)
add("linear and cross_entropy", "linear_cross_entropy", _linear_cross_entropy)
each("mse_loss", F.mse_loss, "reduce_mean", ("", ""))
each("huber_loss", F.huber_loss, "reduce_mean", ("", ""))

# ---- products


def _product(
    name: str, call: Callable[..., Any], shapes: Callable[[int, int, int], list[tuple[int, ...]]], of: str
) -> None:
    def draw(s: Sizes) -> tuple[list[Operand], Callable[..., Any]]:
        k, n = s.width(64, 2048), s.width(64, 2048)
        m = max(1, round(s.elements / max(k, n)))
        return [Operand(shape) for shape in shapes(m, n, k)], call

    add(name, of, draw)


_product("mm", torch.mm, lambda m, n, k: [(m, k), (k, n)], "matmul")
_product("x transposed times y", lambda x, y: x.t() @ y, lambda m, n, k: [(m, k), (m, n)], "matmul")
_product("linear", F.linear, lambda m, n, k: [(m, k), (n, k), (n,)], "linear")
_product(
    "linear, few rows", F.linear, lambda m, n, k: [(m % 15 + 1, 4 * k), (4 * n, 4 * k), (4 * n,)], "linear"
)
_product("matrix times vector", torch.mv, lambda m, n, k: [(m, k), (k,)], "matmul")
_product("outer", torch.outer, lambda m, n, k: [(m,), (k,)], "mul")


def _batched(s: Sizes, m: int, k: int) -> tuple[list[Operand], Callable[..., Any]]:
    count = max(1, round(s.elements / (m * k)))
    return [Operand((count, m, k)), Operand((count, k, m))], torch.bmm


add("bmm", "matmul", lambda s: _batched(s, s.stream.choice((32, 49, 64, 100)), s.stream.choice((32, 64))))
add("bmm of 8 x 8", "matmul", lambda s: _batched(s, 8, 8))


def _attend(causal: bool, few: bool) -> Callable[[Sizes], tuple[list[Operand], Callable[..., Any]]]:
    def draw(s: Sizes) -> tuple[list[Operand], Callable[..., Any]]:
        depth, length = s.stream.choice((32, 64, 80)), s.stream.choice((64, 77, 128, 197, 256, 512))
        heads = max(1, round(s.elements / (depth * length * 4)))
        key = (4, heads, length, depth)
        query = (4, heads, 4, depth) if few else key
        return [Operand(query), Operand(key), Operand(key)], (
            lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        )

    return draw


add("attention", "attention", _attend(False, False))
add("attention, causal", "attention", _attend(True, False))
add("attention, few queries", "attention", _attend(False, True))


def _rope(s: Sizes) -> tuple[list[Operand], Callable[..., Any]]:
    depth, length = s.stream.choice((32, 64, 128)), s.stream.choice((64, 128, 300))
    heads = max(1, round(s.elements / (depth * length)))

    def call(x: Any, cos: Any, sin: Any) -> Any:
        low, high = x.chunk(2, -1)
        return x * cos + torch.cat((-high, low), -1) * sin

    table = (length, depth)
    return [Operand((1, heads, length, depth)), Operand(table), Operand(table)], call


add("rotary positions", "rope", _rope)

# ---- convolutions, pools, interpolation


def _conv(
    kernel: int,
    stride: int = 1,
    dilation: int = 1,
    groups: str = "",
    channels: int = 0,
    transposed: bool = False,
) -> Any:
    def draw(s: Sizes) -> tuple[list[Operand], Callable[..., Any]]:
        n, c, h, w = s.maps(channels)
        n = max(1, n // 4)
        maps = c if groups == "depthwise" else 32 if channels else c
        count = {"depthwise": c, "grouped": 4, "": 1}[groups]
        pad = dilation * (kernel // 2)
        if transposed:
            return [Operand((n, c, h, w)), Operand((c, maps, kernel, kernel))], (
                lambda x, f: F.conv_transpose2d(x, f, None, stride, kernel // 2, stride - 1)
            )
        return [Operand((n, c, h, w)), Operand((maps, c // count, kernel, kernel))], (
            lambda x, f: F.conv2d(x, f, None, stride, pad, dilation, count)
        )

    return draw


add("conv 3x3", "conv", _conv(3))
add("conv 3x3 stride 2", "conv", _conv(3, 2))
add("conv 1x1", "conv", _conv(1))
add("conv 7x7 of RGB", "conv", _conv(7, 2, channels=3))
add("conv 3x3 dilated", "conv", _conv(3, 1, 2))
add("conv 3x3 grouped", "conv", _conv(3, groups="grouped"))
add("conv 3x3 depthwise", "conv", _conv(3, groups="depthwise"))
add("conv 7x7 depthwise", "conv", _conv(7, groups="depthwise"))
add("conv transposed 3x3 stride 2", "conv_transpose", _conv(3, 2, transposed=True))


def _conv1d(s: Sizes) -> tuple[list[Operand], Callable[..., Any]]:
    width, length = s.stream.choice((16, 40, 64, 128)), s.stream.choice((100, 256, 1000, 4000))
    batch = max(1, round(s.elements / (width * length)))
    return [Operand((batch, width, length)), Operand((width, width, 5))], lambda x, f: F.conv1d(
        x, f, None, 1, 2
    )


def _conv3d(s: Sizes) -> tuple[list[Operand], Callable[..., Any]]:
    batch = max(1, round(s.elements / (16 * 8 * 28 * 28 * 2)))
    return [Operand((batch, 16, 8, 28, 28)), Operand((16, 16, 3, 3, 3))], lambda x, f: F.conv3d(
        x, f, None, 1, 1
    )


add("conv 1-D", "conv", _conv1d)
add("conv 3-D", "conv", _conv3d)
over("max_pool", "max_pool", Sizes.maps, lambda x: F.max_pool2d(x, 2))
over("max_pool 3x3 stride 2", "max_pool", Sizes.maps, lambda x: F.max_pool2d(x, 3, 2, 1))
over(
    "max_pool with indices",
    "max_pool_indices",
    Sizes.maps,
    lambda x: F.max_pool2d(x, 2, return_indices=True),
    False,
)
over("avg_pool", "avg_pool", Sizes.maps, lambda x: F.avg_pool2d(x, 2))
over("adaptive_avg_pool", "avg_pool", Sizes.maps, lambda x: F.adaptive_avg_pool2d(x, 5))
for _mode in ("nearest", "bilinear", "bicubic"):
    over(
        f"interpolate, {_mode}",
        "gather",
        Sizes.maps,
        lambda x, m=_mode: F.interpolate(x, scale_factor=2.0, mode=m),
    )


def _grid_sample(s: Sizes) -> tuple[list[Operand], Callable[..., Any]]:
    n, c, h, w = s.maps()
    return [Operand((n, c, h, w)), Operand((n, h, w, 2), "unit")], lambda x, g: F.grid_sample(
        x, g, align_corners=False
    )


add("grid_sample", "gather_nd", _grid_sample)


def _recurrent(kind: str, gates: int) -> Callable[[Sizes], tuple[list[Operand], Callable[..., Any]]]:
    def draw(s: Sizes) -> tuple[list[Operand], Callable[..., Any]]:
        width, length = s.stream.choice((64, 100, 128, 256)), s.stream.choice((8, 20, 32))
        batch = max(1, min(64, round(s.elements / (width * length))))
        x, w, h = (batch, length, width), (gates * width, width), (1, batch, width)

        def call(x: Any, w: Any, u: Any, b: Any, h: Any, c: Any) -> Any:
            run, start = (torch.lstm, (h, c)) if kind == "lstm" else (torch.gru, h)
            return run(x, start, [w, u, b, b], True, 1, 0.0, False, False, True)[0]

        return [Operand(t) for t in (x, w, w, (gates * width,), h, h)], call

    return draw


add("lstm", "scan sigmoid tanh", _recurrent("lstm", 4), False)
add("gru", "scan sigmoid tanh", _recurrent("gru", 3), False)
