"""Ops that compare all pairs along an axis: quadratic in its size, and exact."""

from __future__ import annotations

import math
from typing import Any

from ... import ops
from ...symtensor import SymTensor
from ..call import Call, Decompose
from ..types import is_float
from .create import flat_mask
from .reduce import norm
from .shape import axis_of, moved, squeezed
from .table import rule

__all__: list[str] = []

_LONGEST = 4096


def _pairs(c: Call, x: SymTensor, axis: int) -> SymTensor:
    """x[..., i, j] = x[..., j] with the axis last; for running results."""
    size = x.shape[axis]
    if not isinstance(size, int) or size > _LONGEST:
        raise Decompose(f"an axis longer than {_LONGEST}")
    last = moved(x, axis, x.ndim - 1)
    return ops.broadcast_to(last.expand_dims(last.ndim - 1), shape=[*last.shape[:-1], size, size])


def _running(c: Call, x: Any, dim: int, largest: bool) -> tuple[SymTensor, SymTensor]:
    """Extreme so far and where it is, the latest of equals."""
    if x.ndim == 0:
        return x, c.number(0, "i64")
    axis = axis_of(dim, x.ndim)
    numbers = ops.cast(x, dtype="u8") if x.dtype == "bool" else x
    pairs = _pairs(c, numbers, axis)
    if 0 in x.shape:
        return x, c.full(list(x.shape), 0, "i64")
    first = ops.broadcast_to(
        ops.slice(pairs, starts=[0] * pairs.ndim, limits=[*pairs.shape[:-1], 1], steps=[1] * pairs.ndim),
        shape=list(pairs.shape),
    )
    seen = ops.select(flat_mask(c, pairs, 0, True), pairs, first)
    index = (ops.argmax if largest else ops.argmin)(seen, axis=seen.ndim - 1, select_last=True)
    # Beyond the present element the first one stands in; if it wins there, the latest true place of its value
    # counts.
    rows = ops.iota(shape=[1] * (index.ndim - 1) + [index.shape[-1]], axis=index.ndim - 1, dtype="i64")
    value = ops.gather_elements(seen, index.expand_dims(index.ndim), axis=seen.ndim - 1)
    same = ops.eq(seen, value)
    if is_float(x.dtype):
        same = ops.bit_or(same, ops.bit_and(ops.is_nan(seen), ops.is_nan(value)))
    valid = ops.bit_and(same, flat_mask(c, seen, 0, True))
    latest = ops.argmax(ops.cast(valid, dtype="u8"), axis=seen.ndim - 1, select_last=True)
    index = ops.min(latest, ops.broadcast_to(rows, shape=list(latest.shape)))
    values = moved(squeezed(value, value.ndim - 1), x.ndim - 1, axis)
    return c.cast(values, x.dtype), moved(index, x.ndim - 1, axis)


@rule("cummax")
def _cummax(c: Call, x: Any, dim: int) -> Any:
    return _running(c, x, dim, True)


@rule("cummin")
def _cummin(c: Call, x: Any, dim: int) -> Any:
    return _running(c, x, dim, False)


@rule("logcumsumexp")
def _logcumsumexp(c: Call, x: Any, dim: int) -> SymTensor:
    if x.ndim == 0 or 0 in x.shape:
        return x
    axis = axis_of(dim, x.ndim)
    pairs = _pairs(c, x, axis)
    seen = ops.select(flat_mask(c, pairs, 0, True), pairs, c.number(-math.inf, x.dtype))
    return moved(ops.reduce_logsumexp(seen, axes=[seen.ndim - 1]), x.ndim - 1, axis)


@rule("mode")
def _mode(c: Call, x: Any, dim: int = -1, keepdim: bool = False) -> tuple[SymTensor, SymTensor]:
    """The most frequent value, the smallest of equals, and its last place."""
    if x.ndim == 0:
        return x, c.number(0, "i64")
    if x.dtype == "bool":
        raise Decompose("the mode of bools")
    axis = axis_of(dim, x.ndim)
    ordered = moved(ops.sort(x, axis=axis)[0], axis, x.ndim - 1)
    pairs = _pairs(c, ordered, x.ndim - 1)
    counts = ops.reduce_sum(ops.cast(ops.eq(pairs, ordered.expand_dims(x.ndim)), dtype="i64"), axes=[x.ndim])
    best = ops.argmax(counts, axis=x.ndim - 1, keepdims=True)
    value = moved(ops.gather_elements(ordered, best, axis=x.ndim - 1), x.ndim - 1, axis)
    index = ops.argmax(ops.cast(ops.eq(x, value), dtype="u8"), axis=axis, keepdims=True, select_last=True)
    return (value, index) if keepdim else (squeezed(value, axis), squeezed(index, axis))


def _count_below(c: Call, sequence: SymTensor, values: SymTensor, right: bool) -> SymTensor:
    """How many elements of the last axis of the sequence stand before each value."""
    row = sequence.expand_dims(sequence.ndim - 1) if sequence.ndim > 1 else sequence
    column = values.expand_dims(values.ndim)
    before = (ops.le if right else ops.lt)(row, column)
    if right is False and is_float(sequence.dtype):
        before = ops.bit_or(before, ops.bit_and(ops.is_nan(column), ops.logical_not(ops.is_nan(row))))
    elif is_float(sequence.dtype):
        before = ops.bit_or(before, ops.is_nan(column))
    return c.cast(ops.reduce_sum(ops.cast(before, dtype="i64"), axes=[before.ndim - 1]))


@rule("searchsorted.Tensor", "searchsorted.Scalar")
def _searchsorted(
    c: Call, sequence: Any, values: Any, *, out_int32: bool = False, right: bool = False, side: Any = None,
    sorter: Any = None,
) -> SymTensor:  # fmt: skip
    if sorter is not None:
        sequence = ops.gather_elements(sequence, sorter, axis=sequence.ndim - 1)
    dtype = c.common(*c.fakes[:2])
    values = ops.broadcast_to(c.cast(values, dtype), shape=c.shape)
    return _count_below(c, c.cast(sequence, dtype), values, right or side == "right")


@rule("bucketize.Tensor", "bucketize.Scalar")
def _bucketize(
    c: Call, values: Any, boundaries: Any, *, out_int32: bool = False, right: bool = False
) -> SymTensor:
    dtype = c.common(*c.fakes[:2])
    return _count_below(c, c.cast(boundaries, dtype), c.cast(values, dtype), right)


@rule("_cdist_forward")
def _cdist(c: Call, x: Any, y: Any, p: float, _mode: Any) -> SymTensor:
    difference = ops.sub(x.expand_dims(x.ndim - 1), y.expand_dims(y.ndim - 2))
    return _norm(c, ops.abs(difference), p)


def _norm(c: Call, x: SymTensor, p: float) -> SymTensor:
    """Of the last axis."""
    axes = [x.ndim - 1]
    if x.shape[-1] == 0:
        return c.full(c.shape, 0)
    if p == math.inf:
        return ops.reduce_max(x, axes=axes)
    if p == 0:
        return ops.reduce_sum(c.cast(ops.ne(x, c.number(0, x.dtype))), axes=axes)
    if p == 1:
        return ops.reduce_sum(x, axes=axes)
    return norm(c, x, p, lambda terms: ops.reduce_sum(terms, axes=axes))


@rule("_pdist_forward")
def _pdist(c: Call, x: Any, p: float = 2.0) -> SymTensor:
    import numpy

    count = x.shape[0]
    if not isinstance(count, int):
        raise Decompose("the pairs of a symbolic number of rows")
    rows, columns = numpy.triu_indices(count, 1)
    first, second = (ops.gather(x, c.graph.constant(i.astype("int64")), axis=0) for i in (rows, columns))
    return _norm(c, ops.abs(ops.sub(first, second)), p)


@rule("histc")
def _histc(c: Call, x: Any, bins: int = 100, min: Any = 0, max: Any = 0) -> SymTensor:
    """Elements outside [min, max] count nowhere; equal bounds mean those of the data."""
    if 0 in x.shape:
        return c.full(c.shape, 0)
    flat = ops.reshape(x, shape=[x.size])
    if min == max:
        low, high = ops.reduce_min(flat, axes=[0]), ops.reduce_max(flat, axes=[0])
        flatness = ops.eq(low, high)
        one = c.number(1, x.dtype)
        low, high = ops.select(flatness, low - one, low), ops.select(flatness, high + one, high)
    else:
        low, high = c.number(min, x.dtype), c.number(max, x.dtype)
    inside = ops.bit_and(ops.ge(flat, low), ops.le(flat, high))
    if is_float(x.dtype):
        place = ops.cast(ops.floor((flat - low) / (high - low) * float(bins)), dtype="i64")
    else:  # on a GPU torch counts integers too
        flat, low, high = (c.cast(value, "i64") for value in (flat, low, high))
        place = (flat - low) * bins // (high - low)
    place = ops.clamp(place, c.number(0, "i64"), c.number(bins - 1, "i64"))
    ones = ops.cast(inside, dtype=c.dtype)
    return ops.scatter_elements(c.full([bins], 0), place, ones, axis=0, reduction="add")
