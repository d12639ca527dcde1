"""Random torch modules for random_training.py: parts that follow one another, heads and losses.

A part is a function from a Draw and a shape to a module that takes one tensor of that shape; what it gives is
found by running it. Shapes begin with the batch. Rank 2 is rows, rank 3 a sequence [N, T, F] or a line
[N, C, L], rank 4 an image. `Unfit` says that a part has no use for the shape.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import prune
from torch.utils.checkpoint import checkpoint

Shape = tuple[int, ...]
SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 12, 16, 17, 24, 33)
MOST = 4096  # elements of an activation


class Unfit(Exception):
    """A part finds nothing to draw for this shape."""


class Draw:
    """All choices, from one generator."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def pick(self, items: Sequence[Any]) -> Any:
        return items[int(self.rng.integers(len(items)))]

    def whole(self, low: int, high: int) -> int:
        """From low to high, both included."""
        return int(self.rng.integers(low, high + 1))

    def size(self) -> int:
        return self.pick(SIZES)

    def real(self, low: float, high: float) -> float:
        return round(float(low + (high - low) * self.rng.random()), 3)

    def divisor(self, n: int) -> int:
        return self.pick([d for d in range(1, n + 1) if n % d == 0])

    def normal(self, *shape: int) -> Tensor:
        return torch.from_numpy(self.rng.standard_normal(shape).astype(np.float32))


Part = Callable[[Draw, Shape], nn.Module]
PARTS: dict[str, Part] = {}


def part(build: Part) -> Part:
    PARTS[build.__name__.rstrip("_")] = build
    return build


def need(holds: Any) -> None:
    if not holds:
        raise Unfit


class Apply(nn.Module):
    """A function of a tensor."""

    def __init__(self, function: Callable[[Tensor], Tensor], name: str) -> None:
        super().__init__()
        self.function, self.shown = function, name

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)

    def extra_repr(self) -> str:
        return self.shown


# --- layers


@part
def linear(d: Draw, s: Shape) -> nn.Module:
    return nn.Linear(s[-1], d.size(), bias=d.chance(0.7))


ACTIVATIONS: dict[str, Callable[[Draw], nn.Module]] = {
    "relu": lambda d: nn.ReLU(inplace=d.chance(0.3)),
    "gelu": lambda d: nn.GELU(approximate=d.pick(["none", "tanh"])),
    "silu": lambda d: nn.SiLU(inplace=d.chance(0.3)),
    "tanh": lambda d: nn.Tanh(),
    "sigmoid": lambda d: nn.Sigmoid(),
    "elu": lambda d: nn.ELU(d.real(0.3, 1.5)),
    "selu": lambda d: nn.SELU(),
    "celu": lambda d: nn.CELU(d.real(0.3, 1.5)),
    "leaky": lambda d: nn.LeakyReLU(d.real(0.01, 0.4)),
    "softplus": lambda d: nn.Softplus(d.real(0.5, 2.0)),
    "softsign": lambda d: nn.Softsign(),
    "mish": lambda d: nn.Mish(),
    "hardswish": lambda d: nn.Hardswish(),
    "hardsigmoid": lambda d: nn.Hardsigmoid(),
    "hardtanh": lambda d: nn.Hardtanh(-d.real(0.2, 1.0), d.real(0.2, 1.0)),
    "relu6": lambda d: nn.ReLU6(),
    "logsigmoid": lambda d: nn.LogSigmoid(),
    "tanhshrink": lambda d: nn.Tanhshrink(),
    "hardshrink": lambda d: nn.Hardshrink(d.real(0.1, 0.6)),
    "softshrink": lambda d: nn.Softshrink(d.real(0.1, 0.6)),
    "threshold": lambda d: nn.Threshold(d.real(-0.3, 0.3), d.real(-1.0, 1.0)),
}


@part
def activation(d: Draw, s: Shape) -> nn.Module:
    return ACTIVATIONS[d.pick(list(ACTIVATIONS))](d)


@part
def prelu(d: Draw, s: Shape) -> nn.Module:
    return nn.PReLU(d.pick([1, s[1]]), init=d.real(0.05, 0.5))


@part
def glu(d: Draw, s: Shape) -> nn.Module:
    dims = [i for i in range(1, len(s)) if s[i] % 2 == 0]
    need(dims)
    return nn.GLU(d.pick(dims))


@part
def softmax(d: Draw, s: Shape) -> nn.Module:
    kind = d.pick([nn.Softmax, nn.LogSoftmax, nn.Softmin])
    return kind(dim=d.whole(1, len(s) - 1))


@part
def batch_norm(d: Draw, s: Shape) -> nn.Module:
    need(np.prod(s) // s[1] > 1)
    kind = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d}[len(s)]
    tracks = d.chance(0.85)
    momentum = d.pick([0.1, 0.1, 0.3, None]) if tracks else 0.1
    norm = kind(s[1], d.pick([1e-5, 1e-3]), momentum, affine=d.chance(0.8), track_running_stats=tracks)
    if tracks and d.chance(0.2):
        norm.running_mean.copy_(d.normal(s[1]) / 2)
        norm.running_var.copy_(d.normal(s[1]).abs() + 0.5)
        norm.eval()  # a frozen norm
    return norm


@part
def layer_norm(d: Draw, s: Shape) -> nn.Module:
    dims = s[-d.whole(1, len(s) - 1) :]
    need(np.prod(dims) > 1)
    affine = d.chance(0.8)
    return nn.LayerNorm(dims, elementwise_affine=affine, bias=affine and d.chance(0.7))


@part
def rms_norm(d: Draw, s: Shape) -> nn.Module:
    return nn.RMSNorm(s[-1], eps=d.pick([1e-6, 1e-3]), elementwise_affine=d.chance(0.8))


@part
def group_norm(d: Draw, s: Shape) -> nn.Module:
    groups = d.divisor(s[1])
    need(np.prod(s[1:]) // groups > 1)
    return nn.GroupNorm(groups, s[1], affine=d.chance(0.8))


@part
def instance_norm(d: Draw, s: Shape) -> nn.Module:
    need(len(s) > 2 and np.prod(s[2:]) > 1)
    kind = nn.InstanceNorm1d if len(s) == 3 else nn.InstanceNorm2d
    return kind(s[1], affine=d.chance(0.5), track_running_stats=d.chance(0.3))


@part
def conv(d: Draw, s: Shape) -> nn.Module:
    need(len(s) > 2)
    dims = len(s) - 2
    groups = d.divisor(s[1]) if d.chance(0.5) else 1
    to = groups * d.whole(1, 4)
    if d.chance(0.2):
        groups, to = s[1], s[1] * d.whole(1, 2)  # depthwise
    kernel = [d.whole(1, min(n, 4)) for n in s[2:]]
    dilation = [d.whole(1, 2) if (k - 1) * 2 + 1 <= n else 1 for k, n in zip(kernel, s[2:], strict=True)]
    mode = d.pick(["zeros"] * 4 + ["reflect", "replicate", "circular"])
    least = min(s[2:])
    padding: Any = [d.whole(0, min(2, least - 1)) for _ in range(dims)]
    stride: Any = [d.whole(1, 3) for _ in range(dims)]
    if d.chance(0.15):
        padding, stride = "same", [1] * dims
    kind = nn.Conv1d if dims == 1 else nn.Conv2d
    more = {"groups": groups, "bias": d.chance(0.6), "padding_mode": mode}
    return kind(s[1], to, kernel, stride, padding, dilation, **more)


@part
def conv_transpose(d: Draw, s: Shape) -> nn.Module:
    need(len(s) > 2)
    dims = len(s) - 2
    groups = d.divisor(s[1]) if d.chance(0.4) else 1
    kernel = [d.whole(1, 4) for _ in range(dims)]
    stride = [d.whole(1, 3) for _ in range(dims)]
    padding = [d.whole(0, k - 1) for k in kernel]
    extra = [d.whole(0, n - 1) for n in stride]
    kind = nn.ConvTranspose1d if dims == 1 else nn.ConvTranspose2d
    return kind(s[1], groups * d.whole(1, 3), kernel, stride, padding, extra, groups, bias=d.chance(0.6))


@part
def pool(d: Draw, s: Shape) -> nn.Module:
    need(len(s) > 2)
    dims = len(s) - 2
    window = [d.whole(1, min(3, n)) for n in s[2:]]
    stride = [d.whole(1, 3) for _ in range(dims)]
    padding = [d.whole(0, k // 2) for k in window]
    ceil = d.chance(0.3)
    kind = d.pick(["max", "avg", "adaptive_avg", "adaptive_max", "lp"])
    if kind == "max":
        return (nn.MaxPool1d if dims == 1 else nn.MaxPool2d)(window, stride, padding, ceil_mode=ceil)
    if kind == "avg" and dims == 1:
        return nn.AvgPool1d(window, stride, padding, ceil, d.chance(0.5))
    if kind == "avg":
        return nn.AvgPool2d(window, stride, padding, ceil, d.chance(0.5))
    if kind == "lp":
        squares = nn.LPPool1d(2, window[0]) if dims == 1 else nn.LPPool2d(2, tuple(window))
        return nn.Sequential(nn.Softplus(), squares)
    to = [d.whole(1, n) for n in s[2:]]
    if kind == "adaptive_avg":
        return nn.AdaptiveAvgPool1d(to[0]) if dims == 1 else nn.AdaptiveAvgPool2d(to)
    return nn.AdaptiveMaxPool1d(to[0]) if dims == 1 else nn.AdaptiveMaxPool2d(to)


class Recurrent(nn.Module):
    def __init__(self, cells: nn.RNNBase, takes: str) -> None:
        super().__init__()
        self.cells, self.takes = cells, takes

    def forward(self, x: Tensor) -> Tensor:
        y, state = self.cells(x)
        if self.takes == "all":
            return y
        h = state[0] if isinstance(state, tuple) else state
        return h[-1] if self.takes == "last" else torch.cat(list(h), -1)


@part
def recurrent(d: Draw, s: Shape) -> nn.Module:
    need(len(s) == 3)
    kind = d.pick([nn.LSTM, nn.GRU, nn.RNN])
    more: dict[str, Any] = {}
    if kind is nn.LSTM and d.chance(0.2):
        more["proj_size"] = 2
    if kind is nn.RNN:
        more["nonlinearity"] = d.pick(["tanh", "relu"])
    hidden = d.pick([3, 4, 5, 8])
    cells = kind(
        s[2], hidden, d.whole(1, 2), bias=d.chance(0.8), batch_first=True, bidirectional=d.chance(0.3), **more
    )
    return Recurrent(cells, d.pick(["all", "all", "last", "states"]))


class Attention(nn.Module):
    """Grouped heads of queries over heads of keys, with a mask of one kind."""

    def __init__(self, width: int, heads: int, keys: int, depth: int, mask: str, length: int) -> None:
        super().__init__()
        self.heads, self.keys, self.depth, self.mask = heads, keys, depth, mask
        self.q = nn.Linear(width, heads * depth)
        self.k = nn.Linear(width, keys * depth, bias=False)
        self.v = nn.Linear(width, keys * depth)
        self.o = nn.Linear(heads * depth, width)
        banded = (torch.arange(length)[:, None] - torch.arange(length)[None]).abs() < max(2, length // 2)
        self.register_buffer("kept", banded, persistent=False)
        self.bias = nn.Parameter(torch.zeros(heads, length, length)) if mask == "trained" else None

    def forward(self, x: Tensor) -> Tensor:
        n, t, _ = x.shape
        q, k, v = (
            p(x).reshape(n, t, h, self.depth).transpose(1, 2)
            for p, h in ((self.q, self.heads), (self.k, self.keys), (self.v, self.keys))
        )
        mask = None
        if self.mask == "bool":
            mask = self.kept
        if self.mask == "float":
            mask = torch.zeros_like(self.kept, dtype=x.dtype).masked_fill(~self.kept, float("-inf"))
        if self.mask == "trained":
            mask = self.bias
        y = F.scaled_dot_product_attention(
            q, k, v, mask, is_causal=self.mask == "causal", enable_gqa=self.heads != self.keys
        )
        return self.o(y.transpose(1, 2).reshape(n, t, -1))


@part
def attention(d: Draw, s: Shape) -> nn.Module:
    need(len(s) == 3)
    heads = d.pick([1, 2, 4])
    mask = d.pick(["none", "causal", "bool", "float", "trained"])
    return Attention(s[2], heads, d.divisor(heads), d.pick([1, 2, 4, 5, 8]), mask, s[1])


class MultiHead(nn.Module):
    def __init__(self, attention: nn.MultiheadAttention, weights: bool) -> None:
        super().__init__()
        self.attention, self.weights = attention, weights

    def forward(self, x: Tensor) -> Tensor:
        y, weights = self.attention(x, x, x, need_weights=self.weights)
        return y if weights is None else y + weights.mean(-1, keepdim=True)


@part
def multi_head(d: Draw, s: Shape) -> nn.Module:
    need(len(s) == 3)
    inner = nn.MultiheadAttention(s[2], d.divisor(s[2]), bias=d.chance(0.7), batch_first=True)
    return MultiHead(inner, d.chance(0.4))


@part
def encoder_layer(d: Draw, s: Shape) -> nn.Module:
    need(len(s) == 3 and s[2] > 1)
    return nn.TransformerEncoderLayer(
        s[2],
        d.divisor(s[2]),
        d.size(),
        0.0,
        d.pick(["relu", "gelu"]),
        batch_first=True,
        norm_first=d.chance(0.5),
    )


@part
def dropout(d: Draw, s: Shape) -> nn.Module:
    """Of which the result is known."""
    kind = d.pick([nn.Dropout, nn.AlphaDropout] + ([nn.Dropout2d] if len(s) == 4 else []))
    return kind(0.0) if d.chance(0.6) else kind(0.4).eval()


@part
def random_dropout(d: Draw, s: Shape) -> nn.Module:
    need(d.chance(0.3))
    return nn.Dropout(d.real(0.1, 0.6))


# --- structure


class Residual(nn.Module):
    def __init__(self, body: nn.Module, way: nn.Module | None, scale: float) -> None:
        super().__init__()
        self.body, self.way, self.scale = body, way, scale

    def forward(self, x: Tensor) -> Tensor:
        return (x if self.way is None else self.way(x)) + self.scale * self.body(x)


def body(
    d: Draw, s: Shape, names: Sequence[str] = ("linear", "activation", "layer_norm", "conv")
) -> nn.Module:
    made: list[nn.Module] = []
    for _ in range(d.whole(1, 3)):
        try:
            module = PARTS[d.pick(names)](d, s)
            s = shape_after(module, s)
        except Unfit:
            continue
        made.append(module)
    need(made)
    return nn.Sequential(*made)


@part
def residual(d: Draw, s: Shape) -> nn.Module:
    inner = body(d, s)
    after = shape_after(inner, s)
    if after != s:
        need(after[:-1] == s[:-1])
        if d.chance(0.5):
            return Residual(inner, nn.Linear(s[-1], after[-1], bias=False), d.pick([1.0, 0.5]))
        inner = nn.Sequential(inner, nn.Linear(after[-1], s[-1]))
    return Residual(inner, None, d.pick([1.0, 0.5]))


class Joined(nn.Module):
    def __init__(self, parts: Sequence[nn.Module], axis: int) -> None:
        super().__init__()
        self.parts, self.axis = nn.ModuleList(parts), axis

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([part(x) for part in self.parts], self.axis)


@part
def branches(d: Draw, s: Shape) -> nn.Module:
    made = [body(d, s, ("linear", "activation")) for _ in range(d.whole(2, 3))]
    return Joined(made, len(s) - 1)


class Split(nn.Module):
    def __init__(self, sizes: Sequence[int], axis: int, way: str, inner: nn.Module) -> None:
        super().__init__()
        self.sizes, self.axis, self.way, self.inner = list(sizes), axis, way, inner

    def forward(self, x: Tensor) -> Tensor:
        first, *rest = torch.split(x, self.sizes, self.axis)
        first = self.inner(first)
        if self.way == "swap":
            return torch.cat([*rest, first], self.axis)
        return first + sum(r.sum(self.axis, keepdim=True) for r in rest)


@part
def split(d: Draw, s: Shape) -> nn.Module:
    axis = d.whole(1, len(s) - 1)
    need(s[axis] > 1)
    first = d.whole(1, s[axis] - 1)
    return Split(
        [first, s[axis] - first], axis, d.pick(["swap", "add"]), ACTIVATIONS[d.pick(list(ACTIVATIONS))](d)
    )


class Scaled(nn.Module):
    """A parameter and a buffer that broadcast over the input."""

    def __init__(self, weight: Tensor, shift: Tensor, trained: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight, requires_grad=trained)
        self.register_buffer("shift", shift, persistent=bool(trained))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight + self.shift


@part
def scaled(d: Draw, s: Shape) -> nn.Module:
    shapes = [(), (1,), (s[-1],), (s[1],) + (1,) * (len(s) - 2), (1,) * len(s)]
    return Scaled(d.normal(*d.pick(shapes)), d.normal(*d.pick(shapes)) / 2, d.chance(0.8))


class Running(nn.Module):
    """Buffers that a call moves: an average, and a count."""

    def __init__(self, width: int, way: str) -> None:
        super().__init__()
        self.way = way
        self.register_buffer("average", torch.zeros(width))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            with torch.no_grad():
                mean = x.mean(tuple(range(x.dim() - 1))).to(self.average.dtype)
                if self.way == "lerp":
                    self.average.lerp_(mean, 0.2)
                elif self.way == "mul":
                    self.average.mul_(0.9).add_(mean, alpha=0.1)
                else:
                    self.average = 0.9 * self.average + 0.1 * mean
                self.calls += 1
        return x - self.average + 0.01 * self.calls


@part
def running(d: Draw, s: Shape) -> nn.Module:
    return Running(s[-1], d.pick(["lerp", "mul", "assign"]))


class Tied(nn.Module):
    """One weight used twice, the second time transposed."""

    def __init__(self, width: int, inner: int, own_name: bool) -> None:
        super().__init__()
        self.down = nn.Linear(width, inner)
        self.up = nn.Linear(inner, inner, bias=False) if own_name else None
        if self.up is not None:
            self.again = nn.Linear(inner, inner, bias=False)
            self.again.weight = self.up.weight

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.down(x))
        if self.up is not None:
            h = self.again(torch.sigmoid(self.up(h)))
        return F.linear(h, self.down.weight.t())


@part
def tied(d: Draw, s: Shape) -> nn.Module:
    return Tied(s[-1], d.size(), d.chance(0.5))


class Experts(nn.Module):
    """A soft choice among linear maps that are one stacked parameter."""

    def __init__(self, weight: Tensor, width: int) -> None:
        super().__init__()
        self.weight, self.gate = nn.Parameter(weight), nn.Linear(width, len(weight))

    def forward(self, x: Tensor) -> Tensor:
        share = self.gate(x).softmax(-1)
        return torch.einsum("...e,...d,edf->...f", share, x, self.weight)


@part
def experts(d: Draw, s: Shape) -> nn.Module:
    return Experts(d.normal(d.whole(1, 3), s[-1], d.pick([1, 3, 5])) / s[-1] ** 0.5, s[-1])


class Stopped(nn.Module):
    """A part of which no gradient comes, or none is kept."""

    def __init__(self, inner: nn.Module, way: str) -> None:
        super().__init__()
        self.inner, self.way = inner, way

    def forward(self, x: Tensor) -> Tensor:
        if self.way == "checkpoint":
            return x + checkpoint(self.inner, x, use_reentrant=False)
        if self.way == "detach":
            return x + self.inner(x.detach())
        if self.way == "result":
            return x + self.inner(x).detach()
        with torch.no_grad():
            y = self.inner(x)
        return x * torch.sigmoid(y)


@part
def stopped(d: Draw, s: Shape) -> nn.Module:
    return Stopped(
        nn.Linear(s[-1], s[-1]), d.pick(["checkpoint", "checkpoint", "detach", "detach", "no_grad", "result"])
    )


@part
def weight_norm(d: Draw, s: Shape) -> nn.Module:
    need(s[-1] > 1)
    layer = nn.Linear(s[-1], d.pick([2, 3, 8]))
    if d.chance(0.5):
        return nn.utils.parametrizations.weight_norm(layer, dim=d.pick([0, 1]))
    return nn.utils.parametrizations.spectral_norm(layer)


@part
def squeeze_excite(d: Draw, s: Shape) -> nn.Module:
    need(len(s) == 4)
    return Gated(nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(s[1], s[1], 1), nn.Sigmoid()))


class Gated(nn.Module):
    def __init__(self, gate: nn.Module) -> None:
        super().__init__()
        self.gate = gate

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gate(x)


@part
def gated(d: Draw, s: Shape) -> nn.Module:
    return Gated(nn.Sequential(nn.Linear(s[-1], s[-1]), d.pick([nn.Sigmoid, nn.Tanh, nn.SiLU])()))


# --- what a trace may have to refuse


class Doubled(torch.autograd.Function):
    """Its gradient is not that of its formula."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x * 1.0

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None: ...

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return 2 * gradient


class Odd(nn.Module):
    """Python that depends on values, notes of calls, functions outside of torch, rare kinds of tensors."""

    def __init__(self, way: str, width: int) -> None:
        super().__init__()
        self.way, self.calls = way, 0
        self.layer = nn.Linear(width, width)
        self.table = nn.Embedding(
            5, width, max_norm=1.0 if way == "max_norm" else None, sparse=way == "sparse"
        )
        if way == "half":
            self.layer.half()
        if way == "hook":
            self.layer.weight.register_hook(lambda g: 2 * g)
        if way == "module_hook":
            self.layer.register_full_backward_hook(
                lambda m, into, out: (2 * into[0],) if into[0] is not None else None
            )
        if way == "forward_hook":
            self.layer.register_forward_hook(lambda m, given, y: y + 1)
        if way == "pruned":
            prune.l1_unstructured(self.layer, "weight", 0.5)

    def forward(self, x: Tensor) -> Tensor:
        return getattr(self, self.way)(x) + self.table.weight[1] * 0.1

    def function(self, x: Tensor) -> Tensor:
        return Doubled.apply(self.layer(x))

    def count(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.layer(x) / self.calls

    def branch(self, x: Tensor) -> Tensor:
        return self.layer(x) if x.sum() > 0 else self.layer(-x)

    def item(self, x: Tensor) -> Tensor:
        return self.layer(x) * x.mean().item()

    def mask(self, x: Tensor) -> Tensor:
        return self.layer(x) + x[x > 0].sum()

    def nonzero(self, x: Tensor) -> Tensor:
        return self.layer(x) + x.nonzero().shape[0]

    def numpy(self, x: Tensor) -> Tensor:
        return self.layer(x) + torch.from_numpy(np.sin(x.detach().numpy()))

    def written(self, x: Tensor) -> Tensor:
        return self.layer(x.mul_(1.5))

    def max_norm(self, x: Tensor) -> Tensor:
        return self.layer(x) + self.table(torch.tensor([0, 2])).sum(0)

    def sparse(self, x: Tensor) -> Tensor:
        return self.layer(x) + self.table(torch.tensor([0, 2])).sum(0)

    def half(self, x: Tensor) -> Tensor:
        return self.layer(x.half()).to(x.dtype)

    def hook(self, x: Tensor) -> Tensor:
        return self.layer(x)

    module_hook = forward_hook = pruned = hook

    def spectrum(self, x: Tensor) -> Tensor:
        return self.layer(x) + torch.fft.rfft(x, dim=-1).abs().mean(-1, keepdim=True)

    def solved(self, x: Tensor) -> Tensor:
        square = self.layer.weight @ self.layer.weight.T + torch.eye(x.shape[-1], dtype=x.dtype)
        return torch.linalg.solve(square, x.unsqueeze(-1)).squeeze(-1)

    def decomposed(self, x: Tensor) -> Tensor:
        square = self.layer.weight @ self.layer.weight.T + torch.eye(x.shape[-1], dtype=x.dtype)
        return self.layer(x) + torch.linalg.cholesky(square).diagonal().log().sum() + torch.logdet(square)

    def asserted(self, x: Tensor) -> Tensor:
        assert not x.isnan().any()
        return self.layer(x)

    def shown(self, x: Tensor) -> Tensor:
        repr(x)
        return self.layer(x)

    def cond(self, x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: self.layer(x), lambda x: self.layer(-x), (x,))

    def unused(self, x: Tensor) -> Tensor:
        return x

    def kept(self, x: Tensor) -> Tensor:
        self.last = self.layer(x)
        return self.last

    def graded(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        (slope,) = torch.autograd.grad(y.sum(), self.layer.weight, create_graph=True)
        return y + slope.square().sum()

    def unique(self, x: Tensor) -> Tensor:
        return self.layer(x) + torch.unique((x * 4).round().long()).numel()

    def typed(self, x: Tensor) -> Tensor:
        return self.layer(x) + (x * 1j).abs().mean()


WAYS = [
    name
    for name, value in vars(Odd).items()
    if callable(value) and not name.startswith("__") and name != "forward"
]


@part
def odd(d: Draw, s: Shape) -> nn.Module:
    return Odd(d.pick(WAYS), s[-1])


# --- functions

MATHS: dict[str, Callable[[Tensor], Tensor]] = {
    "sqrt": lambda x: torch.sqrt(x * x + 0.1),
    "exp": lambda x: torch.exp(-x.abs()),
    "log1p": lambda x: torch.log1p(x.abs() + 0.01),
    "clamp": lambda x: x.clamp(-0.7, 0.9),
    "clamp_min": lambda x: torch.clamp(x, min=-0.2),
    "maximum": lambda x: torch.maximum(x, 0.3 * x + 0.1),
    "where": lambda x: torch.where(x > 0.05, x, x * x),
    "masked_fill": lambda x: x.masked_fill(x < -0.5, 0.25),
    "rsqrt": lambda x: x * torch.rsqrt(x.square() + 1),
    "sin": lambda x: torch.sin(2 * x) + torch.cos(x),
    "atan2": lambda x: torch.atan2(x, x.square() + 0.5),
    "erf": torch.erf,
    "pow": lambda x: (x.abs() + 0.3) ** 1.7,
    "cube": lambda x: x**3 / (1 + x.abs() ** 3),
    "reciprocal": lambda x: torch.reciprocal(x.square() + 1),
    "expm1": lambda x: torch.expm1(x.clamp(max=1)),
    "logaddexp": lambda x: torch.logaddexp(x, -x),
    "remainder": lambda x: torch.remainder(x, 0.7),
    "round": lambda x: x + (x * 3).round().detach(),
    "hypot": lambda x: torch.hypot(x, x + 1),
    "lerp": lambda x: torch.lerp(x, x * x, 0.3),
    "addcmul": lambda x: torch.addcmul(x, x, torch.sigmoid(x), value=0.5),
    "sinc": lambda x: torch.sinc(x + 0.3),
    "xlogy": lambda x: torch.xlogy(x, x.abs() + 0.5),
}


@part
def maths(d: Draw, s: Shape) -> nn.Module:
    name = d.pick(list(MATHS))
    return Apply(MATHS[name], name)


def shape_functions(d: Draw, s: Shape) -> dict[str, Callable[[Tensor], Tensor]]:
    axis = d.whole(1, len(s) - 1)
    n = s[axis]
    order = torch.from_numpy(d.rng.integers(0, n, d.whole(1, n + 2)))
    begin, stride = d.whole(0, n - 1), d.whole(1, 2)
    perm = [0, *[int(i) + 1 for i in d.rng.permutation(len(s) - 1)]]
    pads = [d.whole(0, 2), d.whole(0, 2)]
    mode = (
        d.pick(["constant", "reflect", "replicate", "circular"]) if len(s) > 2 and s[-1] > 2 else "constant"
    )
    scale = d.pick([2, 3])
    made: dict[str, Callable[[Tensor], Tensor]] = {
        "permute": lambda x: x.permute(perm).contiguous(),
        "permuted": lambda x: x.permute(perm),
        "flip": lambda x: x.flip(axis),
        "roll": lambda x: x.roll(2, axis),
        "slice": lambda x: x.narrow(axis, begin, n - begin)[..., ::stride],
        "pad": lambda x: F.pad(x, pads, mode),
        "crop": lambda x: F.pad(x, [-1, 1]) if s[-1] > 1 else x,
        "index": lambda x: x.index_select(axis, order.to(x.device)),
        "repeat": lambda x: x.repeat_interleave(2, axis),
        "tile": lambda x: torch.cat([x, x.flip(axis)], axis),
        "cumsum": lambda x: x.cumsum(axis) / n,
        "cumprod": lambda x: (1 + 0.1 * x).cumprod(axis),
        "sort": lambda x: x.sort(axis).values,
        "topk": lambda x: x.topk(min(2, n), axis).values,
        "stack": lambda x: torch.stack([x, x * 2], -1).flatten(-2),
        "unflatten": lambda x: x.unflatten(axis, (-1, 2 if n % 2 == 0 else 1)).transpose(-1, -2).reshape(s),
        "diff": lambda x: x.diff(dim=axis) if n > 1 else x,
        "triu": lambda x: x.triu() if x.dim() > 2 else x,
        "outer": lambda x: (x.unsqueeze(-1) * x.unsqueeze(-2)).sum(-1),
        "gram": lambda x: torch.matmul(x, x.transpose(-1, -2)) / s[-1] if x.dim() > 2 else x,
        "normalize": lambda x: F.normalize(x + 0.1, dim=axis),
        "standardize": lambda x: (
            (x - x.mean(axis, True)) / (x.var(axis, keepdim=True, correction=0) + 0.1).sqrt()
        ),
        "logsumexp": lambda x: x - x.logsumexp(axis, True),
        "max": lambda x: x - x.amax(axis, True),
        "max_dim": lambda x: x * 0.5 + x.max(axis, keepdim=True).values,
        "prod": lambda x: x + (1 + 0.05 * x).prod(axis, keepdim=True),
        "norm": lambda x: x / (1 + torch.linalg.vector_norm(x + 0.1, dim=axis, keepdim=True)),
        "scatter": lambda x: torch.zeros_like(x).index_add(axis, torch.arange(n, device=x.device) // 2, x),
        "gather": lambda x: x.gather(axis, x.argsort(axis)),
        "select": lambda x: x.select(axis, begin).unsqueeze(axis),
        "expand": lambda x: x.mean(axis, True).expand(s) + x,
        "einsum": lambda x: torch.einsum("n...i,n...i->n...", x, x + 1).unsqueeze(-1),
        "set": lambda x: set_part(x, axis, begin),
        "view_as": lambda x: x.reshape(s[0], -1).view(s),
        "chunk": lambda x: sum(c.mean(axis, True) for c in x.chunk(2, axis)) + x,
    }
    if len(s) > 2:
        made["upsample"] = lambda x: F.interpolate(x, scale_factor=scale, mode="nearest")
        smooth = "linear" if len(s) == 3 else d.pick(["bilinear", "bicubic"])
        corners = d.chance(0.4)
        sizes = [d.whole(1, 7) for _ in s[2:]]
        made["resize"] = lambda x: F.interpolate(x, size=sizes, mode=smooth, align_corners=corners)
        made["mean"] = lambda x: x.mean(1)
        made["last"] = lambda x: x[:, -1]
        made["flatten"] = lambda x: x.flatten(1)
        made["flatten_some"] = lambda x: x.flatten(-2)
    if len(s) == 4:
        made["rows"] = lambda x: x.flatten(2).transpose(1, 2)
        made["local"] = lambda x: F.local_response_norm(x, 3)
        made["unfold"] = lambda x: F.unfold(x, (2, 2), padding=1)
        if s[1] % 4 == 0:
            made["shuffle"] = lambda x: F.pixel_shuffle(x, 2)
        if s[2] % 2 == 0 and s[3] % 2 == 0:
            made["unshuffle"] = lambda x: F.pixel_unshuffle(x, 2)
    if len(s) == 3:
        made["image"] = lambda x: x.unsqueeze(1)
    if len(s) == 2:
        made["sequence"] = lambda x: x.unsqueeze(d_axis)
        d_axis = d.pick([1, 2])
    return made


def set_part(x: Tensor, axis: int, at: int) -> Tensor:
    """A copy of which one part is written in place."""
    y = x.clone()
    y.select(axis, at).mul_(0.5)
    y[0] = y[0] + 1
    return y


@part
def shaped(d: Draw, s: Shape) -> nn.Module:
    made = shape_functions(d, s)
    name = d.pick(list(made))
    return Apply(made[name], name)


def shape_after(module: nn.Module, s: Shape) -> Shape:
    """Of what it gives; a module that torch does not run is Unfit, and so is one of too many elements."""
    modes = [(m, m.training) for m in module.modules()]
    module.eval()
    try:
        with torch.no_grad():
            y = module(torch.full(s, 0.5))
    except Exception as error:
        raise Unfit from error
    finally:
        for m, mode in modes:
            m.training = mode
    need(isinstance(y, Tensor) and y.dtype == torch.float32 and 2 <= y.dim() <= 4 and y.shape[0] == s[0])
    need(0 < y.numel() <= MOST)
    return tuple(y.shape)


# --- whole nets


@dataclass
class Input:
    """An argument of the model: its name, shape, and how a batch of it is drawn."""

    name: str
    dtype: str  # f32 or i64
    draw: Callable[[], Tensor]


class Net(nn.Module):
    """Inputs are embedded or taken as they are, joined, and passed through the parts to the heads."""

    def __init__(
        self,
        entries: Sequence[nn.Module],
        join: str,
        parts: Sequence[nn.Module],
        heads: Sequence[nn.Module],
        form: str,
    ) -> None:
        super().__init__()
        self.entries, self.join = nn.ModuleList(entries), join
        self.parts, self.heads, self.form = nn.ModuleList(parts), nn.ModuleList(heads), form

    def trunk(self, *inputs: Tensor) -> Tensor:
        values = [entry(x) for entry, x in zip(self.entries, inputs, strict=True)]
        x = values[0]
        for other in values[1:]:
            if self.join == "film":
                x = x * (1 + torch.tanh(other))
            else:
                x = x + other
        for part in self.parts:
            x = part(x)
        return x

    def forward(self, *inputs: Tensor) -> Any:
        x = self.trunk(*inputs)
        results = [head(x) for head in self.heads]
        if self.form == "tuple":
            return tuple(results)
        if self.form == "dict":
            return {f"y{i}": y for i, y in enumerate(results)}
        return results[0]


class WithLoss(nn.Module):
    """A model that gives its loss itself."""

    def __init__(self, net: nn.Module, loss: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.net, self.loss = net, loss

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.loss(self.net(*inputs[:-1]), inputs[-1])


def entry(d: Draw, rank: int, batch: int) -> tuple[nn.Module, Input, Shape]:
    """The first input: tokens that are embedded, or numbers."""
    if rank == 3 and d.chance(0.35):
        length, words, width = d.size(), d.pick([3, 7, 20, 33]), d.pick([1, 3, 8, 12, 16])
        table = nn.Embedding(words, width, padding_idx=d.pick([None, 0, words - 1]))
        draw = lambda: torch.from_numpy(d.rng.integers(0, words, (batch, length)))  # noqa: E731
        return table, Input("x", "i64", draw), (batch, length, width)
    if rank == 2 and d.chance(0.15):
        words, width, length = d.pick([3, 9, 20]), d.size(), d.whole(1, 6)
        bag = nn.EmbeddingBag(words, width, mode=d.pick(["sum", "mean"]))
        draw = lambda: torch.from_numpy(d.rng.integers(0, words, (batch, length)))  # noqa: E731
        return bag, Input("x", "i64", draw), (batch, width)
    small = (1, 2, 3, 4, 5, 7, 8, 9)
    shape = (batch, *((d.size(),) if rank == 2 else [d.pick(small) for _ in range(rank - 1)]))
    return nn.Identity(), Input("x", "f32", lambda: d.normal(*shape)), shape


def other_entry(d: Draw, name: str, batch: int, width: int, rank: int) -> tuple[nn.Module, Input]:
    """A further input, mapped to what adds to the first."""
    ones = (batch,) + (1,) * (rank - 2)
    if d.chance(0.4):
        words = d.pick([2, 5, 11])
        draw = lambda: torch.from_numpy(d.rng.integers(0, words, ones))  # noqa: E731
        return nn.Embedding(words, width), Input(name, "i64", draw)
    size = d.pick([1, 2, 5])
    return nn.Linear(size, width), Input(name, "f32", lambda: d.normal(*ones, size))


@dataclass
class Case:
    """A model with what is trained on: `loss` is None if the model gives it."""

    model: nn.Module
    loss: Callable[[Any, Tensor], Tensor] | None
    inputs: list[Input]
    checked: bool  # whether torch gives the same numbers
    words: list[str] = field(default_factory=list)


# Losses of a prediction: (module or function, how a target of a shape is drawn, its dtype).
Targets = tuple[Callable[[Any, Tensor], Tensor], Callable[[], Tensor], str]


def classes(d: Draw, s: Shape) -> Targets:
    """Cross entropy of logits [N, C, ...]."""
    c = s[1]
    labels = (s[0], *s[2:])
    ignored = d.pick([None, None, 0, -100, c - 1]) if c > 1 and np.prod(labels) > 1 else None
    given: dict[str, Any] = {"reduction": d.pick(["mean", "mean", "sum"])}
    if d.chance(0.3):
        given["label_smoothing"] = d.real(0.05, 0.3)
    if d.chance(0.3):
        given["weight"] = d.normal(c).abs() + 0.2
    if ignored is not None:
        given["ignore_index"] = ignored
    low = -1 if ignored == -100 else 0

    def draw() -> Tensor:
        target = torch.from_numpy(d.rng.integers(low, c, labels)).reshape(labels)
        target[target < 0] = -100
        flat = target.reshape(-1)
        flat[0] = 1 if ignored == 0 else 0  # one counts at least
        return target

    if d.chance(0.2):
        given.pop("ignore_index", None)
        return nn.CrossEntropyLoss(**given), lambda: torch.softmax(d.normal(*s), 1), "f32"
    if d.chance(0.2):
        given.pop("label_smoothing", None)
        return NLL(nn.NLLLoss(**given)), draw, "i64"
    return nn.CrossEntropyLoss(**given), draw, "i64"


class NLL(nn.Module):
    def __init__(self, loss: nn.Module) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, y: Tensor, target: Tensor) -> Tensor:
        return self.loss(F.log_softmax(y, 1), target)


REGRESSIONS: dict[str, Callable[[Draw], Callable[[Tensor, Tensor], Tensor]]] = {
    "mse": lambda d: nn.MSELoss(reduction=d.pick(["mean", "sum"])),
    "l1": lambda d: nn.L1Loss(),
    "smooth_l1": lambda d: nn.SmoothL1Loss(beta=d.real(0.2, 1.5)),
    "huber": lambda d: nn.HuberLoss(delta=d.real(0.2, 1.5)),
    "poisson": lambda d: nn.PoissonNLLLoss(log_input=True, full=False),
    "function": lambda d: F.mse_loss,
    "log_cosh": lambda d: lambda y, t: (torch.logaddexp(y - t, t - y) - 0.6931472).mean(),
    "cosine": lambda d: lambda y, t: 1 - F.cosine_similarity(y.flatten(1), t.flatten(1), dim=1).mean(),
    "relative": lambda d: lambda y, t: ((y - t).square() / (0.1 + t.square())).sum(-1).mean().sqrt(),
    "combination": lambda d: (
        lambda y, t: 0.7 * F.l1_loss(y, t) + 0.3 * (y - t).pow(2).mean() + 1e-3 * y.var()
    ),
    "soft_margin": lambda d: lambda y, t: F.soft_margin_loss(y, torch.where(t > 0, 1.0, -1.0)),
    "hinge": lambda d: lambda y, t: (1 - y * torch.where(t > 0, 1.0, -1.0)).relu().mean(),
    "gaussian": lambda d: lambda y, t: F.gaussian_nll_loss(y, t, y.detach().square() + 0.5),
}
SHARES: dict[str, Callable[[Draw, Shape], Callable[[Tensor, Tensor], Tensor]]] = {
    "bce_with_logits": lambda d, s: nn.BCEWithLogitsLoss(
        pos_weight=d.normal(s[-1]).abs() + 0.3 if d.chance(0.4) else None,
        weight=d.normal(s[-1]).abs() + 0.1 if d.chance(0.3) else None,
        reduction=d.pick(["mean", "sum"]),
    ),
    "bce": lambda d, s: lambda y, t: F.binary_cross_entropy(torch.sigmoid(y), t),
    "kl": lambda d, s: (
        lambda y, t: F.kl_div(F.log_softmax(y, -1), t / t.sum(-1, keepdim=True), reduction="batchmean")
    ),
    "log_kl": lambda d, s: (
        lambda y, t: F.kl_div(F.log_softmax(y, -1), F.log_softmax(t, -1), reduction="sum", log_target=True)
    ),
    "dice": lambda d, s: (
        lambda y, t: 1 - 2 * (torch.sigmoid(y) * t).sum() / (torch.sigmoid(y).sum() + t.sum() + 1)
    ),
    "focal": lambda d, s: (
        lambda y, t: (
            (1 - torch.exp(-F.binary_cross_entropy_with_logits(y, t, reduction="none"))) ** 2
            * F.binary_cross_entropy_with_logits(y, t, reduction="none")
        ).mean()
    ),
}


def loss_of(d: Draw, s: Shape) -> tuple[Targets, str]:
    if s[1] > 1 and d.chance(0.45):
        return classes(d, s), "classes"
    if d.chance(0.35):
        name = d.pick(list(SHARES))
        return (SHARES[name](d, s), lambda: torch.from_numpy(d.rng.random(s).astype("f")), "f32"), name
    name = d.pick(list(REGRESSIONS))
    return (REGRESSIONS[name](d), lambda: d.normal(*s), "f32"), name


class OfResults(nn.Module):
    """A loss of a model with several results: that of the first, and a penalty of the others."""

    def __init__(self, loss: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, results: Any, target: Tensor) -> Tensor:
        first, *rest = results.values() if isinstance(results, dict) else results
        return self.loss(first, target) + sum(0.1 * r.square().mean() for r in rest)


def draw_case(d: Draw) -> Case:
    """Draws until torch can train it."""
    for _ in range(100):
        try:
            return _draw_case(d)
        except Unfit:
            continue
    raise Unfit


def _draw_case(d: Draw) -> Case:
    torch.manual_seed(d.whole(0, 2**31 - 1))
    batch = d.pick([1, 2, 3, 5, 8, 13])
    first, given, s = entry(d, d.pick([2, 2, 3, 3, 3, 4, 4]), batch)
    entries, inputs, words = [first], [given], [type(first).__name__]
    while len(entries) < 3 and d.chance(0.2):
        other, more = other_entry(d, f"x{len(entries)}", batch, s[-1], len(s))
        entries.append(other)
        inputs.append(more)
    parts: list[nn.Module] = []
    wanted = d.whole(1, 6)
    names = list(PARTS)
    weights = np.array(
        [3.0 if n in ("linear", "conv", "shaped", "activation", "maths") else 1.0 for n in names]
    )
    for _ in range(wanted * 8):
        if len(parts) == wanted:
            break
        name = names[int(d.rng.choice(len(names), p=weights / weights.sum()))]
        try:
            module = PARTS[name](d, s)
            s = shape_after(module, s)
        except Unfit:
            continue
        parts.append(module)
        shown = {Apply: "shown", Odd: "way"}.get(type(module))
        words.append(f"{name}:{getattr(module, shown)}" if shown else name)
    count = d.pick([1, 1, 1, 2])
    form = d.pick(["tuple", "dict"]) if count > 1 else "one"
    heads = [head(d, s) for _ in range(count)]
    (loss, draw, dtype), name = loss_of(d, shape_after(heads[0], s))
    words.append(f"loss:{name}")
    model: nn.Module = Net(entries, d.pick(["add", "film"]), parts, heads, form)
    if count > 1:
        loss = OfResults(loss)
    inputs.append(Input("target", dtype, draw))
    freeze(d, model)
    need(any(p.requires_grad for p in model.parameters()))
    checked = not any(isinstance(m, nn.Dropout) and m.p > 0 and m.training for m in model.modules())
    if d.chance(0.15):
        return Case(WithLoss(model, loss), None, inputs, checked, [*words, "own loss"])
    return Case(model, loss, inputs, checked, words)


def head(d: Draw, s: Shape) -> nn.Module:
    return nn.Identity() if d.chance(0.2) else nn.Linear(s[-1], d.size())


def freeze(d: Draw, model: nn.Module) -> None:
    if d.chance(0.2):
        for parameter in model.parameters():
            if d.chance(0.3):
                parameter.requires_grad_(False)
