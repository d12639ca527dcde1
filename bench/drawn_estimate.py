"""The written estimate of FLOPs, bytes and time by which drawn problems are sized. It sees a model on torch's
meta device: nothing is computed and no memory is taken.

A forward pass runs under a dispatch mode that turns each ATen op into a kernel of one of three kinds:

contraction  a product of matrices, a convolution or an attention: its multiply-adds count twice as FLOPs; its
             bytes are those of all operands and results. Attention counts no scores, and half of the pairs if
             it is causal.
move         what reads and writes memory in an order of its own (norms, softmax, reductions, pools, gathers,
             scatters, concatenations, sorts): operands and results; of a table that indices read, only the
             rows that are read.
pointwise    a run of pointwise ops in a row is one kernel, which a compiler would fuse: it reads and writes
             the largest tensor of the run once, and is free where a move of that size follows.

A layer of a recurrent net is the product with all inputs, then for each step a product and a pointwise
kernel. Views, fills and random numbers are free.

A kernel takes `launch + max(FLOPs / rate, bytes / bandwidth)`. A contraction fills the device as far as its
result has tiles: rate * min(1, 8 tiles / processors) with tiles of 128 by 128, since libraries split the sum
about eight ways. Bytes that fit the cache move at the cache's rate.

A training step takes each contraction three times and each other kernel two and a half times, then reads and
writes weights, gradients and moments once (AdamW 28 bytes a parameter of f32, SGD with momentum 20).

The rates are those of an H100 SXM in shared measurements (bf16 product 680 TF/s, copy 3.0 TB/s, an edge of a
CUDA Graph 0.9 µs and a short kernel's 1–2 µs), discounted by a third for shapes that are not round; on a CPU
those of two cores with AVX-512. A kernel's launch is fitted to nine problems that an H100 ran, among whose
peers a small kernel took 2 to 4 µs. An estimate within a factor of two is enough: classes of time are wider.
Steps whose kernels torch launches one by one take what the host takes, too, which no estimate holds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

__all__ = ["RATES", "Kernel", "Rates", "Total", "kernels_of", "total_of"]


@dataclass(frozen=True)
class Rates:
    flops: dict[str, float]  # by dtype, of contractions
    bandwidth: float
    cache_bytes: float
    cache_bandwidth: float
    launch: float
    processors: int


RATES = {
    "cuda": Rates(
        {"f16": 450e12, "bf16": 450e12, "bf16-mixed": 450e12, "tf32": 250e12, "f32": 40e12},
        2.4e12, 20e6, 5e12, 2.4e-6, 132,
    ),
    "cpu": Rates(
        {"f16": 250e9, "bf16": 250e9, "bf16-mixed": 250e9, "f32": 250e9, "int8": 500e9},
        14e9, 2e6, 60e9, 4e-6, 2,
    ),
}  # fmt: skip
BYTES = {"f16": 2, "bf16": 2, "bf16-mixed": 3, "tf32": 4, "f32": 4, "int8": 2}
OPTIMIZER_BYTES = {"": 0, "adamw": 28, "sgd": 20}
TILE = 128 * 128


@dataclass(frozen=True)
class Kernel:
    """What one kernel does: FLOPs, elements read and written, elements of its result."""

    kind: str
    flops: float
    elements: float
    result: float


@dataclass(frozen=True)
class Total:
    flops: float
    bytes: float
    kernels: int
    seconds: float


_CONTRACTIONS = {"mm", "addmm", "bmm", "baddbmm", "convolution", "_convolution", "addbmm", "mv", "dot"}
_FREE = set(
    "view _unsafe_view t transpose permute expand slice select unsqueeze squeeze split chunk alias detach "
    "as_strided unbind split_with_sizes unfold diagonal empty zeros ones full arange scalar_tensor eye "
    "new_empty new_zeros new_ones new_full zeros_like ones_like full_like empty_like rand randn randint "
    "lift_fresh _reshape_alias view_as_real empty_strided linspace rand_like randn_like fill_ zero_ "
    "_local_scalar_dense native_dropout resolve_conj _assert_async item sym_size".split()
)
_BY_INDEX = {"index", "index_select", "gather", "embedding", "index_add", "scatter_add", "scatter_reduce",
             "scatter", "index_put", "index_add_", "scatter_add_", "scatter_reduce_", "index_put_",
             "scatter_", "_embedding_bag", "index_copy", "index_copy_", "take"}  # fmt: skip
_POINTWISE = {"copy_", "clone", "_to_copy", "where", "dropout", "constant_pad_nd", "lerp"}


def _size(value: Any) -> int:
    return sum(t.numel() for t in tree_leaves(value) if isinstance(t, torch.Tensor))


def _contraction_flops(name: str, args: Sequence[Any], result: torch.Tensor) -> float:
    if name in ("convolution", "_convolution"):
        x, weight, transposed = args[0], args[1], args[6]
        outer = x if transposed else result
        return 2.0 * outer.numel() * math.prod(weight.shape[1:])
    left = args[1] if name in ("addmm", "baddbmm", "addbmm") else args[0]
    return 2.0 * result.numel() * left.shape[-1]


class _Ops(TorchDispatchMode):
    """Kernels of the ops below it, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.kernels: list[Kernel] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name == "_local_scalar_dense":  # a question about numbers, as of a mask: it is answered by one
            return True if args[0].dtype == torch.bool else 1
        result = func(*args, **(kwargs or {}))
        if name in _FREE:
            return result
        pointwise = torch.Tag.pointwise in func.tags or name in _POINTWISE
        written = float(_size(result))
        if name in _CONTRACTIONS:
            flops = _contraction_flops(name, args, result)
            self.kernels.append(Kernel("contraction", flops, _size(args) + written, written))
        elif pointwise:
            self._pointwise(max(written, float(max((_size(a) for a in args), default=0))))
        elif name in _BY_INDEX:
            moved = (
                written if "_" == name[-1] or name.startswith(("index_put", "scatter", "index_add")) else 0.0
            )
            rows = float(max((_size(a) for a in args[1:]), default=0)) if moved else written
            self._move(2 * rows + moved, written)
        else:
            self._move(_size(args) + written, written)
        return result

    def _pointwise(self, elements: float) -> None:
        last = self.kernels[-1] if self.kernels else None
        if last is not None and last.kind == "pointwise":
            elements = max(elements, last.elements / 2)
            self.kernels.pop()
        self.kernels.append(Kernel("pointwise", 0.0, 2 * elements, elements))

    def _move(self, elements: float, written: float) -> None:
        last = self.kernels[-1] if self.kernels else None
        if last is not None and last.kind == "pointwise" and last.elements <= 2 * elements:
            self.kernels.pop()
        self.kernels.append(Kernel("move", 0.0, elements, written))


class _Attention(TorchFunctionMode):
    """Attention as one kernel, and none of what torch's meta device would make of it."""

    def __init__(self, ops: _Ops) -> None:
        super().__init__()
        self.ops = ops

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is not torch.nn.functional.scaled_dot_product_attention:
            return func(*args, **kwargs)
        query, key, value = (
            args[i] if len(args) > i else kwargs[n] for i, n in enumerate(("query", "key", "value"))
        )
        causal = kwargs.get("is_causal", len(args) > 5 and args[5])
        result = query.new_empty(*query.shape[:-1], value.shape[-1])
        pairs = query.numel() / query.shape[-1] * key.shape[-2] / (2 if causal else 1)
        flops = 2 * pairs * (query.shape[-1] + value.shape[-1])
        elements = sum(t.numel() for t in (query, key, value, result))
        self.ops.kernels.append(Kernel("contraction", flops, elements, 4.0 * TILE * query.shape[0]))
        return result


@contextmanager
def _recurrent_layers(ops: _Ops) -> Iterator[None]:
    """Layers of LSTM and GRU by the rule above: step by step they are thousands of ops."""

    def forward(self: Any, x: torch.Tensor, _: Any = None) -> tuple[torch.Tensor, None]:
        rows, steps = x.shape[0], x.shape[1]
        gates = self.hidden_size * {"LSTM": 4, "GRU": 3}[self.mode]
        both = 2 if self.bidirectional else 1
        for layer in range(self.num_layers):
            wide = x.shape[2] if layer == 0 else both * self.hidden_size
            for _ in range(both):
                ops.kernels.append(_product(rows * steps, gates, wide))
                for _ in range(steps):
                    ops.kernels.append(_product(rows, gates, self.hidden_size))
                    ops.kernels.append(Kernel("pointwise", 0.0, 2.0 * rows * gates, rows * gates))
        return x.new_empty(rows, steps, both * self.hidden_size), None

    kept = torch.nn.LSTM.forward, torch.nn.GRU.forward
    torch.nn.LSTM.forward = torch.nn.GRU.forward = forward  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.nn.LSTM.forward, torch.nn.GRU.forward = kept  # type: ignore[method-assign]


def _product(rows: int, columns: int, depth: int) -> Kernel:
    elements = rows * depth + depth * columns + rows * columns
    return Kernel("contraction", 2.0 * rows * columns * depth, elements, float(rows * columns))


def kernels_of(model: torch.nn.Module, inputs: Iterable[torch.Tensor]) -> list[Kernel]:
    """Of one forward pass; `model` and `inputs` are on the meta device."""
    ops = _Ops()
    with torch.no_grad(), _recurrent_layers(ops), ops, _Attention(ops):
        model(*inputs)
    return ops.kernels


def total_of(
    kernels: Iterable[Kernel], device: str, dtype: str, optimizer: str = "", parameters: int = 0
) -> Total:
    """`optimizer`: "adamw" or "sgd" of a training step, "" of inference."""
    rates, width = RATES[device], BYTES[dtype]
    flops = moved = seconds = 0.0
    launches = 0.0
    for kernel in kernels:
        times = 1.0 if not optimizer else 3.0 if kernel.kind == "contraction" else 2.5
        full = min(1.0, 8 * max(1.0, kernel.result / TILE) / rates.processors)
        size = kernel.elements * width
        speed = rates.bandwidth if size > rates.cache_bytes else rates.cache_bandwidth
        busy = max(kernel.flops / (rates.flops[dtype] * full), size / speed)
        flops, moved, launches = flops + times * kernel.flops, moved + times * size, launches + times
        seconds += times * (rates.launch + busy)
    if optimizer:
        size = float(OPTIMIZER_BYTES[optimizer] * parameters)
        moved, seconds, launches = moved + size, seconds + rates.launch + size / rates.bandwidth, launches + 1
    return Total(flops, moved, round(launches), seconds)
