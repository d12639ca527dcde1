"""Pools, adaptive ones included."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy

from ... import ops
from ...symtensor import SymTensor
from ..call import Call, Decompose
from ..decompositions.pools import SMALL_PLANE
from .convolutions import per_axis
from .pads import padded
from .shape import squeezed, take
from .table import rule

__all__ = ["gathered_sums", "larger_first", "window_counts", "window_spans"]

_MOST_SLICES = 9  # of one region


def window_counts(rank: int, spans: Sequence[tuple[int, list[tuple[int, int]]]]) -> numpy.ndarray:
    """Positions in each window of some axes, of shape 1 along the other ones."""
    count = numpy.ones([1] * rank, dtype=numpy.float32)
    for axis, windows in spans:
        shape = [1] * rank
        shape[axis] = len(windows)
        count = count * numpy.array([end - start for start, end in windows], numpy.float32).reshape(shape)
    return count


def window_spans(size: int, out: int) -> list[tuple[int, int]]:
    """Begin and end of each of `out` windows of an adaptive pool along one axis."""
    return [(o * size // out, -(-(o + 1) * size // out)) for o in range(out)]


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
    if _asks_for_indices(c) and _are_few_inside(c, x, rank, kernel, stride, padding, dilation):
        return _maxima_of_slices(c, x, rank, kernel, stride, dilation)
    attrs = _pool_attrs(kernel, stride, padding, rank, ceil_mode) | {"dilations": per_axis(dilation, rank)}
    batched = _with_batch(x, rank)
    plane = math.prod(batched.shape[2:])
    index = ops.mod(ops.max_pool_indices(batched, **attrs), c.number(plane, "i64"))
    values = ops.max_pool(batched, **attrs)
    return ops.reshape(values, shape=c.shape), ops.reshape(index, shape=c.shape)


def larger_first(
    best: SymTensor, chosen: SymTensor, value: SymTensor, number: SymTensor
) -> tuple[SymTensor, SymTensor]:
    """The larger of two values with its number: NaN is the largest, of equals the first stays."""
    wins = ops.bit_and(ops.eq(best, best), ops.bit_or(ops.ne(value, value), ops.gt(value, best)))
    return ops.select(wins, value, best), ops.select(wins, number, chosen)


def _asks_for_indices(c: Call) -> bool:
    """Whether something but the pool's gradient reads the indices: that finds maxima again."""
    if c.trains:
        return False
    indices = [u for u in c.node.users if u.target is operator.getitem and u.args[1] == 1]
    return any("max_pool" not in str(reader.target) for u in indices for reader in u.users)


def _per_axis_windows(
    rank: int, kernel: Any, stride: Any, dilation: Any
) -> tuple[list[int], list[int], list[int]]:
    kernel = per_axis(kernel, rank)
    strides = per_axis(stride, rank) if not isinstance(stride, Sequence) or stride else kernel
    return kernel, strides, per_axis(dilation, rank)


def _are_few_inside(
    c: Call, x: SymTensor, rank: int, kernel: Any, stride: Any, padding: Any, dilation: Any
) -> bool:
    """Whether windows are short, and no padding or rest of the input is in one."""
    kernel, strides, dilations = _per_axis_windows(rank, kernel, stride, dilation)
    if math.prod(kernel) > _MOST_SLICES or any(per_axis(padding, rank)):
        return False
    ins, outs = x.shape[x.ndim - rank :], c.shape[x.ndim - rank :]
    return all(isinstance(size, int) for size in (*ins, *outs)) and all(
        (o - 1) * s + d * (k - 1) < n
        for n, o, k, s, d in zip(ins, outs, kernel, strides, dilations, strict=True)
    )


def _maxima_of_slices(
    c: Call, x: SymTensor, rank: int, kernel: Any, stride: Any, dilation: Any
) -> tuple[SymTensor, SymTensor]:
    """One region that reads every window once, a slice for each of its places: a NaN stays, of equals the
    first."""
    kernel, strides, dilations = _per_axis_windows(rank, kernel, stride, dilation)
    first = x.ndim - rank
    ins, outs = list(x.shape)[first:], list(c.shape)[first:]
    steps = [math.prod(ins[a + 1 :]) for a in range(rank)]
    best, chosen = None, c.number(0, "i32")
    for at in itertools.product(*map(range, kernel)):
        value, number = x, 0
        for a in range(rank):
            value = take(value, first + a, at[a] * dilations[a], outs[a], strides[a])
            number += at[a] * dilations[a] * steps[a]
        if best is None:
            best = value
            continue
        best, chosen = larger_first(best, chosen, value, c.number(number, "i32"))
    for a in range(rank):
        shape = [1] * x.ndim
        shape[first + a] = outs[a]
        starts = numpy.arange(outs[a], dtype=numpy.int32) * (strides[a] * steps[a])
        chosen = ops.add(chosen, c.graph.constant(starts.reshape(shape).astype(numpy.int32)))
    index = ops.broadcast_to(c.cast(chosen, "i64"), shape=c.shape)
    return ops.reshape(best, shape=c.shape), index


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
        window = _window_places(window_spans(ins[i], outs[i]))
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


def _window_places(spans: list[tuple[int, int]]) -> list[list[int]]:
    """The positions in each window, the last one repeated up to the longest one's length."""
    longest = max(end - start for start, end in spans)
    return [[min(start + k, end - 1) for k in range(longest)] for start, end in spans]


def _padded_places(spans: list[tuple[int, int]]) -> numpy.ndarray:
    """The positions in each window, -1 behind those of shorter ones."""
    longest = max(end - start for start, end in spans)
    return numpy.array(
        [[start + k if start + k < end else -1 for k in range(longest)] for start, end in spans]
    )


@rule(*(f"adaptive_avg_pool{n}d" for n in (1, 2, 3)), "_adaptive_avg_pool2d", "_adaptive_avg_pool3d")
def _adaptive(c: Call, x: Any, size: Any) -> SymTensor:
    """Equal windows where the sizes divide. Others are a product with the matrix of window means of a small
    plane; of a large one they are gathered, axis by axis, or if the graph trains a product for each axis."""
    rank = _rank_in_name(c)
    first = x.ndim - rank
    ins, outs = list(x.shape)[first:], list(c.shape)[first:]
    fixed = all(isinstance(size, int) and size for size in (*ins, *outs))
    if fixed and any(n % o for n, o in zip(ins, outs, strict=True)) and math.prod(ins + outs) <= SMALL_PLANE:
        plane = functools.reduce(numpy.kron, map(_window_weights, ins, outs))
        flat = ops.reshape(x, shape=[*list(x.shape)[:first], math.prod(ins)])
        means = ops.matmul(flat, c.cast(c.graph.constant(plane), x.dtype))
        return ops.reshape(means, shape=c.shape)
    gathers = fixed and not c.trains  # the gradient of a gather is a scatter
    uneven = [
        axis
        for axis in range(first, x.ndim)
        if gathers and c.shape[axis] != 1 and x.shape[axis] % c.shape[axis]
    ]
    spans = [(axis, window_spans(x.shape[axis], c.shape[axis])) for axis in uneven]
    for axis in range(first, x.ndim):
        out, in_size = c.shape[axis], x.shape[axis]
        if axis in uneven or out == in_size:
            continue
        x = c.summed(x) if uneven else x
        if out == 1:
            x = ops.reduce_mean(x, axes=[axis], keepdims=True)
        else:
            x = _window_means(c, x, axis, in_size, out)
    for axis, windows in spans:
        x = gathered_sums(c, x, axis, _padded_places(windows))
    if spans:
        x = ops.div(x, c.cast(c.graph.constant(window_counts(x.ndim, spans)), x.dtype))
    return c.cast(x)


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


def gathered_sums(c: Call, x: SymTensor, axis: int, places: numpy.ndarray) -> SymTensor:
    """Of the positions [sums, most] along one axis, behind the last of which stand -1, in f32 at least. A few
    are slices of one region; they lie one behind the other."""
    seen = ops.gather(x, c.graph.constant(numpy.maximum(places.T, 0)), axis=axis)
    shape = [1] * x.ndim
    shape[axis] = len(places)

    def term(k: int) -> SymTensor:
        part = c.summed(squeezed(take(seen, axis, k, 1), axis))
        inside = places[:, k] >= 0
        if inside.all():
            return part
        return ops.select(c.graph.constant(inside.reshape(shape)), part, c.number(0, part.dtype))

    if places.shape[1] <= _MOST_SLICES:
        return functools.reduce(ops.add, map(term, range(places.shape[1])))
    seen = c.summed(seen)
    shape.insert(axis, places.shape[1])
    inside = c.graph.constant((places.T >= 0).reshape(shape))
    return ops.reduce_sum(ops.select(inside, seen, c.number(0, seen.dtype)), axes=[axis])


def _fixed_windows(c: Call, dtype: str, in_size: int, out: int) -> SymTensor:
    return c.cast(c.graph.constant(_window_weights(in_size, out)), dtype)


def _window_weights(in_size: int, out: int) -> numpy.ndarray:
    weights = numpy.zeros((in_size, out))
    for o, (start, end) in enumerate(window_spans(in_size, out)):
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
