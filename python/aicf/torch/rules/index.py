"""Reading and writing at places that tensors hold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ... import ops
from ...symtensor import SymTensor
from ..call import Call, Decompose
from ..types import is_float
from .shape import axis_of, moved
from .table import rule

__all__: list[str] = []


@rule("embedding")
def _embedding(c: Call, weight: Any, indices: Any, *_: Any, **__: Any) -> SymTensor:
    return ops.gather(weight, indices, axis=0)


@rule("index_select")
def _index_select(c: Call, x: Any, dim: int, index: Any) -> SymTensor:
    if x.ndim == 0:
        return x
    return ops.gather(x, ops.reshape(index, shape=[index.size]), axis=axis_of(dim, x.ndim))


@rule("take")
def _take(c: Call, x: Any, index: Any) -> SymTensor:
    return ops.gather(ops.reshape(x, shape=[x.size]), index, axis=0)


@rule("gather")
def _gather(c: Call, x: Any, dim: int, index: Any, sparse_grad: bool = False) -> SymTensor:
    index = _whole_number(index)
    if 0 in index.shape:
        return c.full(c.shape, 0)
    if x.ndim == 0 or index.ndim == 0:
        flat = ops.gather(ops.reshape(x, shape=[x.size]), ops.reshape(index, shape=[index.size]), axis=0)
        return ops.reshape(flat, shape=c.shape)
    return ops.gather_elements(x, index, axis=axis_of(dim, x.ndim))


@rule("take_along_dim")
def _take_along(c: Call, x: Any, index: Any, dim: Any = None) -> SymTensor:
    if dim is None:
        return ops.gather(ops.reshape(x, shape=[x.size]), ops.reshape(index, shape=[index.size]), axis=0)
    axis = axis_of(dim, x.ndim)
    shape = list(c.shape)
    shape[axis] = x.shape[axis]
    return ops.gather_elements(
        ops.broadcast_to(x, shape=shape), ops.broadcast_to(index, shape=c.shape), axis=axis
    )


def _whole_number(index: SymTensor) -> SymTensor:
    """torch takes places of any integer type."""
    return index if index.dtype in ("i64", "i32") else ops.cast(index, dtype="i64")


# --- scatter


def _row(x: SymTensor) -> SymTensor:
    return x if x.ndim else ops.reshape(x, shape=[1])


def _cropped(source: SymTensor, index: SymTensor) -> SymTensor:
    """The part of `source` that `index` covers; torch lets it be larger."""
    if source.shape == index.shape:
        return source
    return ops.slice(source, starts=[0] * source.ndim, limits=list(index.shape), steps=[1] * source.ndim)


def _scattered(c: Call, x: Any, dim: int, index: Any, source: Any, reduction: str) -> SymTensor:
    if 0 in index.shape:
        return x
    x, index = _row(x), _row(_whole_number(index))
    source = c.cast(source, x.dtype)
    if source.ndim == 0:
        source = ops.broadcast_to(source, shape=list(index.shape))
    source = _cropped(source, index)
    if x.dtype == "bool" and reduction == "add":
        reduction = "max"
    result = ops.scatter_elements(x, index, source, axis=axis_of(dim, x.ndim), reduction=reduction)
    return ops.reshape(result, shape=c.shape) if result.ndim != len(c.shape) else result


@rule("scatter.src", "scatter.value")
def _scatter(c: Call, x: Any, dim: int, index: Any, src: Any = None, value: Any = None) -> SymTensor:
    return _scattered(c, x, dim, index, value if src is None else src, "none")


@rule("scatter.reduce", "scatter.value_reduce")
def _scatter_mode(
    c: Call, x: Any, dim: int, index: Any, src: Any = None, value: Any = None, *, reduce: str
) -> SymTensor:
    mode = {"add": "add", "multiply": "mul"}[reduce]
    return _scattered(c, x, dim, index, value if src is None else src, mode)


@rule("scatter_add")
def _scatter_add(c: Call, x: Any, dim: int, index: Any, src: Any) -> SymTensor:
    return _scattered(c, x, dim, index, src, "add")


_REDUCTIONS = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min"}
_NEUTRAL = {"sum": 0, "mean": 0, "prod": 1, "amax": -math.inf, "amin": math.inf}


@rule("scatter_reduce.two")
def _scatter_reduce(
    c: Call, x: Any, dim: int, index: Any, src: Any, reduce: str, include_self: bool = True
) -> SymTensor:
    return _reduced(c, x, dim, index, src, reduce, include_self)


@rule("index_reduce")
def _index_reduce(
    c: Call, x: Any, dim: int, index: Any, source: Any, reduce: str, *, include_self: bool = True
) -> SymTensor:
    if x.ndim == 0:
        one = [ops.reshape(v, shape=[1]) for v in (x, source)]
        index = ops.reshape(index, shape=[1])
        return ops.reshape(_reduced(c, one[0], 0, index, one[1], reduce, include_self), shape=[])
    axis = axis_of(dim, x.ndim)
    return _reduced(c, x, dim, _spread(index, source, axis), source, reduce, include_self)


def _spread(index: SymTensor, source: SymTensor, axis: int) -> SymTensor:
    """A list of places along an axis, for every element of `source`."""
    sizes: list[Any] = [1] * source.ndim
    sizes[axis] = index.size
    return ops.broadcast_to(ops.reshape(index, shape=sizes), shape=list(source.shape))


def _reduced(c: Call, x: Any, dim: int, index: Any, src: Any, reduce: str, include_self: bool) -> SymTensor:
    start = x
    if not include_self:
        neutral = c.full(list(x.shape), _lowest(c, x.dtype, _NEUTRAL[reduce]), x.dtype)
        touched = _scattered(
            c, c.full(list(x.shape), 0, "bool"), dim, index, c.full(list(index.shape), 1, "bool"), "none"
        )
        start = ops.select(touched, neutral, x)
    mode = _REDUCTIONS.get(reduce, "add")
    total = _scattered(c, start, dim, index, src, mode)
    if reduce != "mean":
        return total
    ones = c.full(list(index.shape), 1, x.dtype)
    base = c.full(list(x.shape), 1 if include_self else 0, x.dtype)
    count = ops.max(_scattered(c, base, dim, index, ones, "add"), c.number(1, x.dtype))
    return ops.div(total, count)


def _lowest(c: Call, dtype: str, value: float) -> Any:
    if is_float(dtype) or math.isfinite(value):
        return value
    bits = {"i64": 63, "i32": 31, "i16": 15, "i8": 7}.get(dtype)
    if bits is None:
        return 0 if value < 0 else (255 if dtype == "u8" else 1)
    return -(2**bits) if value < 0 else 2**bits - 1


@rule("index_add")
def _index_add(c: Call, x: Any, dim: int, index: Any, source: Any, *, alpha: Any = 1) -> SymTensor:
    if alpha != 1:
        source = ops.mul(source, c.number(alpha, source.dtype))
    if x.ndim == 0:
        return ops.add(x, ops.reshape(source, shape=[]))
    return _scattered(c, x, dim, _spread(index, source, axis_of(dim, x.ndim)), source, "add")


@rule("index_copy")
def _index_copy(c: Call, x: Any, dim: int, index: Any, source: Any) -> SymTensor:
    if x.ndim == 0:
        return ops.reshape(source, shape=[])
    return _scattered(c, x, dim, _spread(index, source, axis_of(dim, x.ndim)), source, "none")


@rule("index_fill.int_Scalar", "index_fill.int_Tensor")
def _index_fill(c: Call, x: Any, dim: int, index: Any, value: Any) -> SymTensor:
    if x.ndim == 0:
        return c.cast(value)
    axis = axis_of(dim, x.ndim)
    shape = list(x.shape)
    shape[axis] = index.size
    return _scattered(c, x, dim, _spread(index, c.full(shape, 0), axis), c.full(shape, value), "none")


# --- advanced indexing


def _prepared(c: Call, x: SymTensor, indices: Sequence[Any]) -> tuple[list[int], list[SymTensor]]:
    """Indexed axes and their index tensors, broadcast together. A mask has no static result."""
    if any(i is not None and i.dtype in ("bool", "u8") for i in indices):
        raise Decompose("a mask as an index gives a shape that depends on data; use torch.where")
    axes = [axis for axis, index in enumerate(indices) if index is not None]
    tensors = [c.cast(index, "i64") for index in indices if index is not None]
    return axes, tensors


def _common_shape(c: Call, indices: Sequence[Any]) -> list[Any]:
    import torch

    fakes = [f for f in c.fakes[1] if f is not None]
    return c.lowering.symbols.shape(torch.broadcast_shapes(*(f.shape for f in fakes)))


@rule("index.Tensor", "_unsafe_index.Tensor")
def _index(c: Call, x: Any, indices: Sequence[Any]) -> SymTensor:
    axes, tensors = _prepared(c, x, indices)
    if len(axes) == 1:
        return ops.gather(x, tensors[0], axis=axes[0])
    shape = _common_shape(c, indices)
    places = ops.concat(
        [ops.broadcast_to(t, shape=shape).expand_dims(len(shape)) for t in tensors], axis=len(shape)
    )
    rest = [a for a in range(x.ndim) if a not in axes]
    first = ops.transpose(x, perm=axes + rest) if axes + rest != list(range(x.ndim)) else x
    taken = ops.gather_nd(first, places)
    together = axes == list(range(axes[0], axes[0] + len(axes)))
    before = axes[0] if together else 0
    for i in range(before):  # the axes before the indexed ones come first
        taken = moved(taken, len(shape) + i, i)
    return taken


@rule("index_put", "_unsafe_index_put", "_index_put_impl")
def _index_put(
    c: Call, x: Any, indices: Sequence[Any], values: Any, accumulate: bool = False, *_: Any
) -> SymTensor:
    if len(indices) >= 1 and all(i is None or i.dtype == "bool" for i in indices):
        return _masked_put(c, x, indices, values, accumulate)
    axes, tensors = _prepared(c, x, indices)
    shape = _common_shape(c, indices)
    places = ops.concat(
        [ops.broadcast_to(t, shape=shape).expand_dims(len(shape)) for t in tensors], axis=len(shape)
    )
    rest = [a for a in range(x.ndim) if a not in axes]
    perm = axes + rest
    together = axes == list(range(axes[0], axes[0] + len(axes)))
    before = axes[0] if together else 0
    kept = [x.shape[a] for a in rest]
    values = c.cast(values, x.dtype)
    full = [*kept[:before], *shape, *kept[before:]]
    values = ops.broadcast_to(values, shape=full)
    for _ in range(before):
        values = moved(values, 0, len(shape) + before - 1)
    plain = perm == list(range(x.ndim))
    target = x if plain else ops.transpose(x, perm=perm)
    mode = ("max" if x.dtype == "bool" else "add") if accumulate else "none"
    result = ops.scatter_nd(target, places, values, reduction=mode)
    return result if plain else ops.transpose(result, perm=[perm.index(a) for a in range(x.ndim)])


def _masked_put(c: Call, x: Any, indices: Sequence[Any], values: Any, accumulate: bool) -> SymTensor:
    """x[mask] = value: a choice, as long as every chosen place gets the same value or the same row."""
    masks = [(axis, m) for axis, m in enumerate(indices) if m is not None]
    values = c.cast(values, x.dtype)
    if len(masks) != 1:
        raise Decompose("assigning a tensor through several masks; use torch.where")
    axis, mask = masks[0]
    rest = x.ndim - axis - mask.ndim  # axes behind those of the mask
    leading = list(values.shape[: max(values.ndim - rest, 0)])
    if any(size != 1 for size in leading):
        raise Decompose("assigning a tensor through a mask has a shape that depends on data; use torch.where")
    value = ops.reshape(values, shape=list(values.shape[len(leading) :]))
    mask = ops.reshape(mask, shape=[1] * axis + list(mask.shape) + [1] * rest)
    return ops.select(mask, ops.add(x, value) if accumulate else ops.broadcast_to(value, shape=x.shape), x)


@rule("put")
def _put(c: Call, x: Any, index: Any, source: Any, accumulate: bool = False) -> SymTensor:
    flat = ops.reshape(x, shape=[x.size])
    index, source = (ops.reshape(v, shape=[v.size]) for v in (index, source))
    mode = "add" if accumulate else "none"
    return ops.reshape(ops.scatter_elements(flat, index, source, axis=0, reduction=mode), shape=c.shape)


@rule("masked_scatter")
def _masked_scatter(c: Call, x: Any, mask: Any, source: Any) -> SymTensor:
    """The n-th true place takes the n-th element of the source."""
    mask, x = ops.broadcast_to(mask, shape=c.shape), ops.broadcast_to(x, shape=c.shape)
    if 0 in source.shape:
        return x
    taken = ops.gather(ops.reshape(source, shape=[source.size]), _order(c, mask, source.size), axis=0)
    return ops.select(mask, ops.reshape(taken, shape=c.shape), x)


@rule("masked_scatter_backward")
def _masked_scatter_backward(c: Call, grad: Any, mask: Any, sizes: Sequence[Any]) -> SymTensor:
    """With respect to the source: its n-th element gets the gradient of the n-th true place."""
    count = math.prod(c.shape)
    if isinstance(count, int) and count == 0:
        return c.full(c.shape, 0)
    mask = ops.broadcast_to(mask, shape=list(grad.shape))
    given = ops.select(mask, grad, c.number(0, grad.dtype))
    start, given = c.full([count], 0), ops.reshape(given, shape=[grad.size])
    total = ops.scatter_elements(start, _order(c, mask, count), given, axis=0, reduction="add")
    return ops.reshape(total, shape=c.shape)


def _order(c: Call, mask: SymTensor, count: Any) -> SymTensor:
    """How many true places come before each, at most those of a source of `count`."""
    flat = ops.cast(ops.reshape(mask, shape=[mask.size]), dtype="i64")
    return ops.min(ops.cumsum(flat, axis=0, exclusive=True), c.number(count - 1, "i64"))


@rule("one_hot")
def _one_hot(c: Call, x: Any, num_classes: int = -1) -> SymTensor:
    classes = c.shape[-1]
    return ops.one_hot(x, c.number(1, "i64"), c.number(0, "i64"), depth=[classes])
