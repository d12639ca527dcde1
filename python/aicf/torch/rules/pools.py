"""Pools, adaptive ones included."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy

from ... import ops
from ...symtensor import SymTensor
from ..call import Call, Decompose
from ..decompositions.pools import SMALL_PLANE
from .convolutions import per_axis
from .pads import padded
from .table import rule

__all__: list[str] = []


def _with_batch(x: SymTensor, rank: int) -> SymTensor:
    return x.expand_dims(0) if x.ndim == rank + 1 else x


def _pool_attrs(kernel: Any, stride: Any, padding: Any, rank: int, ceil_mode: bool) -> dict[str, Any]:
    kernel = per_axis(kernel, rank)
    stride = per_axis(stride, rank) if not isinstance(stride, Sequence) or stride else kernel
    padding = per_axis(padding, rank)
    return {"kernel": kernel, "strides": stride, "pads": [*padding, *padding], "ceil_mode": ceil_mode}


def _rank_in_name(c: Call) -> int:
    name = c.node.target._opname
    return int(name[name.index("pool") + 4])


@rule("max_pool1d", "max_pool2d", "max_pool3d")
def _max_pool(
    c: Call,
    x: Any,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> SymTensor:
    rank = _rank_in_name(c)
    attrs = _pool_attrs(kernel, stride, padding, rank, ceil_mode) | {"dilations": per_axis(dilation, rank)}
    return ops.reshape(ops.max_pool(_with_batch(x, rank), **attrs), shape=c.shape)


@rule("max_pool2d_with_indices", "max_pool3d_with_indices", "max_pool1d_with_indices")
def _max_pool_indices(
    c: Call,
    x: Any,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> tuple[SymTensor, SymTensor]:
    """torch counts within one channel, we within the whole tensor."""
    rank = _rank_in_name(c)
    attrs = _pool_attrs(kernel, stride, padding, rank, ceil_mode) | {"dilations": per_axis(dilation, rank)}
    batched = _with_batch(x, rank)
    plane = math.prod(batched.shape[2:])
    index = ops.mod(ops.max_pool_indices(batched, **attrs), c.number(plane, "i64"))
    values = ops.max_pool(batched, **attrs)
    return ops.reshape(values, shape=c.shape), ops.reshape(index, shape=c.shape)


@rule("avg_pool1d", "avg_pool2d", "avg_pool3d")
def _avg_pool(
    c: Call,
    x: Any,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: Any = None,
) -> SymTensor:
    rank = _rank_in_name(c)
    attrs = _pool_attrs(kernel, stride, padding, rank, ceil_mode)
    attrs |= {"dilations": [1] * rank, "count_include_pad": count_include_pad or divisor_override is not None}
    batched = _with_batch(x, rank)
    if divisor_override is not None:
        scale = math.prod(attrs["kernel"]) / divisor_override
        mean = ops.avg_pool(
            _padded_to_windows(c, batched, attrs), **attrs | {"pads": [0] * (2 * rank), "ceil_mode": False}
        )
        return ops.reshape(ops.mul(mean, c.number(scale, x.dtype)), shape=c.shape)
    return ops.reshape(ops.avg_pool(batched, **attrs), shape=c.shape)


def _padded_to_windows(c: Call, x: SymTensor, attrs: dict[str, Any]) -> SymTensor:
    """With the zeros that the windows of the result cover, and without elements that none does."""
    rank = len(attrs["kernel"])
    pads: list[Any] = []
    for i in reversed(range(rank)):
        size, out = x.shape[2 + i], c.shape[len(c.shape) - rank + i]
        covered = (out - 1) * attrs["strides"][i] + attrs["kernel"][i]
        low = attrs["pads"][i]
        pads += [low, covered - size - low]
    return padded(c, x, pads, "constant")


@rule(*(f"adaptive_max_pool{n}d" for n in (1, 2, 3)))
def _adaptive_max(c: Call, x: Any, size: Any) -> tuple[SymTensor, SymTensor]:
    """Values and, within a channel, flat places. Each window is gathered at a common length, its last element
    repeated."""
    rank = _rank_in_name(c)
    first = x.ndim - rank
    ins, outs = list(x.shape)[first:], c.shape[first:]
    if not all(isinstance(s, int) for s in (*ins, *outs)):
        raise Decompose("adaptive pooling between symbolic sizes")
    places = c.number(0, "i64")
    for i in range(rank):
        window = [_window_places(n, o) for n, o in zip(ins, outs, strict=True)][i]
        shape = [1] * (2 * rank)
        shape[i], shape[rank + i] = len(window), len(window[0])
        axis = c.graph.constant(numpy.array(window, dtype="int64").reshape(shape))
        places = places * ins[i] + axis
    windows = math.prod(places.shape[rank:])
    places = ops.reshape(places, shape=[*outs, windows])
    flat = ops.reshape(x, shape=[*list(x.shape)[:first], math.prod(ins)])
    seen = ops.gather(flat, places, axis=first)
    best = ops.argmax(seen, axis=seen.ndim - 1, keepdims=True)
    spread = ops.broadcast_to(places, shape=list(seen.shape))
    values, index = (ops.gather_elements(v, best, axis=seen.ndim - 1) for v in (seen, spread))
    return ops.reshape(values, shape=c.shape), ops.reshape(index, shape=c.shape)


def _window_places(size: int, out: int) -> list[list[int]]:
    spans = [(o * size // out, -(-(o + 1) * size // out)) for o in range(out)]
    longest = max(end - start for start, end in spans)
    return [[min(start + k, end - 1) for k in range(longest)] for start, end in spans]


@rule(*(f"adaptive_avg_pool{n}d" for n in (1, 2, 3)), "_adaptive_avg_pool2d", "_adaptive_avg_pool3d")
def _adaptive(c: Call, x: Any, size: Any) -> SymTensor:
    """Equal windows where the sizes divide; otherwise a product with the matrix of window means: of the whole
    plane, or where that is large per axis."""
    rank = _rank_in_name(c)
    first = x.ndim - rank
    ins, outs = list(x.shape)[first:], list(c.shape)[first:]
    fixed = all(isinstance(size, int) and size for size in (*ins, *outs))
    if fixed and any(n % o for n, o in zip(ins, outs, strict=True)) and math.prod(ins + outs) <= SMALL_PLANE:
        plane = functools.reduce(numpy.kron, map(_window_weights, ins, outs))
        flat = ops.reshape(x, shape=[*list(x.shape)[:first], math.prod(ins)])
        means = ops.matmul(flat, c.cast(c.graph.constant(plane), x.dtype))
        return ops.reshape(means, shape=c.shape)
    for axis in range(first, x.ndim):
        out, in_size = c.shape[axis], x.shape[axis]
        if out == in_size:
            continue
        if out == 1:
            x = ops.reduce_mean(x, axes=[axis], keepdims=True)
        else:
            x = _window_means(c, x, axis, in_size, out)
    return x


def _window_means(c: Call, x: SymTensor, axis: int, in_size: Any, out: Any) -> SymTensor:
    fixed = isinstance(out, int) and isinstance(in_size, int)
    if fixed and out and in_size % out == 0:
        shape = list(x.shape)
        apart = ops.reshape(x, shape=[*shape[:axis], out, in_size // out, *shape[axis + 1 :]])
        return ops.reduce_mean(apart, axes=[axis + 1])
    matrix = _fixed_windows(c, x.dtype, in_size, out) if fixed else _windows(c, x.dtype, in_size, out)
    last = x.swapaxes(axis, x.ndim - 1) if axis != x.ndim - 1 else x
    product = ops.matmul(last, matrix)
    return product.swapaxes(axis, x.ndim - 1) if axis != x.ndim - 1 else product


def _fixed_windows(c: Call, dtype: str, in_size: int, out: int) -> SymTensor:
    return c.cast(c.graph.constant(_window_weights(in_size, out)), dtype)


def _window_weights(in_size: int, out: int) -> numpy.ndarray:
    weights = numpy.zeros((in_size, out))
    for o in range(out):
        start, end = o * in_size // out, -(-(o + 1) * in_size // out)
        weights[start:end, o] = 1 / (end - start)
    return weights


def _windows(c: Call, dtype: str, in_size: Any, out: Any) -> SymTensor:
    """The same matrix for sizes known at the call: window o covers i0 <= i < i1 and weighs 1 / (i1 - i0)."""
    size, count = c.number(in_size, "i64"), c.number(out, "i64")
    o = ops.iota(shape=[1, out], axis=1, dtype="i64")
    i = ops.iota(shape=[in_size, 1], axis=0, dtype="i64")
    one = c.number(1, "i64")
    start = ops.div(ops.mul(o, size), count)
    end = ops.div(ops.sub(ops.add(ops.mul(ops.add(o, one), size), count), one), count)
    inside = ops.bit_and(ops.ge(i, start), ops.lt(i, end))
    width = ops.cast(ops.sub(end, start), dtype="f32")
    weights = ops.select(inside, ops.div(c.number(1.0, "f32"), width), c.number(0.0, "f32"))
    return c.cast(weights, dtype)
