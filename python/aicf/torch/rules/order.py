"""Sorting, and what follows from it."""

from __future__ import annotations

from typing import Any

from ... import ops
from ...symtensor import SymTensor
from ..call import Call, Decompose
from ..types import is_float
from .shape import axis_of, squeezed, take
from .table import rule

__all__: list[str] = []


def _sorted(c: Call, x: Any, dim: int, descending: bool) -> tuple[SymTensor, SymTensor]:
    if x.ndim == 0:
        return x, c.number(0, "i64")
    axis = axis_of(dim, x.ndim)
    if x.dtype != "bool":
        return ops.sort(x, axis=axis, descending=descending)
    values, index = ops.sort(ops.cast(x, dtype="u8"), axis=axis, descending=descending)
    return ops.cast(values, dtype="bool"), index


@rule("sort")
def _sort(c: Call, x: Any, dim: int = -1, descending: bool = False) -> Any:
    return _sorted(c, x, dim, descending)


@rule("sort.stable")
def _sort_stable(c: Call, x: Any, *, stable: Any = None, dim: int = -1, descending: bool = False) -> Any:
    return _sorted(c, x, dim, descending)


@rule("argsort")
def _argsort(c: Call, x: Any, dim: int = -1, descending: bool = False) -> SymTensor:
    return _sorted(c, x, dim, descending)[1]


@rule("argsort.stable")
def _argsort_stable(c: Call, x: Any, *, stable: bool, dim: int = -1, descending: bool = False) -> SymTensor:
    return _sorted(c, x, dim, descending)[1]


@rule("topk")
def _topk(c: Call, x: Any, k: Any, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    if x.ndim == 0:
        return x, c.number(0, "i64")
    return ops.top_k(x, k=[k], axis=axis_of(dim, x.ndim), largest=largest)


@rule("kthvalue")
def _kthvalue(c: Call, x: Any, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    if x.ndim == 0:
        return x, c.number(0, "i64")
    axis = axis_of(dim, x.ndim)
    pair = [take(v, axis, k - 1, 1) for v in _sorted(c, x, dim, False)]
    return tuple(pair if keepdim else [squeezed(v, axis) for v in pair])


def _median(c: Call, x: SymTensor, axis: int, ignore_nan: bool) -> tuple[SymTensor, SymTensor]:
    """The lower middle of the sorted axis, which is kept; a NaN wins unless it is ignored."""
    values, index = _sorted(c, x, axis, False)
    size = x.shape[axis]
    if not is_float(x.dtype):
        return take(values, axis, (size - 1) // 2, 1), take(index, axis, (size - 1) // 2, 1)
    nans = ops.reduce_sum(ops.cast(ops.is_nan(x), dtype="i64"), axes=[axis], keepdims=True)
    valid = ops.sub(c.number(size, "i64"), nans)
    middle = ops.max(ops.div(ops.sub(valid, c.number(1, "i64")), c.number(2, "i64")), c.number(0, "i64"))
    if not ignore_nan:  # NaNs are sorted last: the first of them
        usual = c.number((size - 1) // 2, "i64")
        has_nan = ops.gt(nans, c.number(0, "i64"))
        middle = ops.select(has_nan, ops.min(valid, c.number(size - 1, "i64")), usual)
    return tuple(ops.gather_elements(v, middle, axis=axis) for v in (values, index))  # type: ignore[return-value]


def _median_all(c: Call, x: Any, ignore_nan: bool) -> SymTensor:
    if x.size == 0:
        raise Decompose("the median of nothing")
    flat = ops.reshape(x, shape=[x.size])
    return ops.reshape(_median(c, flat, 0, ignore_nan)[0], shape=[])


def _median_dim(c: Call, x: Any, dim: int, keepdim: bool, ignore_nan: bool) -> Any:
    if x.ndim == 0:
        return x, c.number(0, "i64")
    axis = axis_of(dim, x.ndim)
    pair = _median(c, x, axis, ignore_nan)
    return pair if keepdim else tuple(squeezed(v, axis) for v in pair)


@rule("median")
def _median_rule(c: Call, x: Any) -> SymTensor:
    return _median_all(c, x, False)


@rule("nanmedian")
def _nanmedian_rule(c: Call, x: Any) -> SymTensor:
    return _median_all(c, x, True)


@rule("median.dim")
def _median_dim_rule(c: Call, x: Any, dim: int, keepdim: bool = False) -> Any:
    return _median_dim(c, x, dim, keepdim, False)


@rule("nanmedian.dim")
def _nanmedian_dim_rule(c: Call, x: Any, dim: int, keepdim: bool = False) -> Any:
    return _median_dim(c, x, dim, keepdim, True)
