"""Tensors from nothing: filled ones, ranges, triangles."""

from __future__ import annotations

from typing import Any

from ... import ops
from ...symtensor import SymTensor
from ..call import Call, Decompose
from ..types import is_float
from .table import rule

__all__ = ["flat_mask"]

_ZEROS = (
    "zeros zeros_like new_zeros empty.memory_format empty_like new_empty empty_strided new_empty_strided "
    "empty_permuted _efficientzerotensor prims.empty_strided prims.empty_permuted zero prims.empty"
).split()


@rule(*_ZEROS)
def _zeros(c: Call, *_: Any, **__: Any) -> SymTensor:
    return c.full(c.shape, 0)


@rule("ones", "ones_like", "new_ones")
def _ones(c: Call, *_: Any, **__: Any) -> SymTensor:
    return c.full(c.shape, 1)


@rule("full", "full_like", "new_full", "prims.full", "prims.full_like")
def _full(c: Call, _size: Any, *args: Any, fill_value: Any = None, **__: Any) -> SymTensor:
    at = 1 if c.node.target._opname == "new_full" else 0
    return c.full(c.shape, args[at] if len(args) > at else fill_value)


@rule("fill.Scalar", "fill.Tensor")
def _fill(c: Call, x: Any, value: Any) -> SymTensor:
    return c.full(c.shape, value)


@rule("scalar_tensor", "prims.scalar_tensor")
def _scalar(c: Call, value: Any, **_: Any) -> SymTensor:
    return c.cast(value)


@rule("sym_size.int", "sym_numel", "sym_stride.int", "sym_storage_offset")
def _size(c: Call, *_: Any) -> Any:
    return c.size(c.out)


def _range(c: Call, start: Any, step: Any) -> SymTensor:
    """start + i step in the wider of i64 and f64, rounded once."""
    whole = all(not isinstance(v, float) for v in (start, step))
    wide = "i64" if whole else "f64"
    values = ops.iota(shape=c.shape, axis=0, dtype=wide)
    if not (isinstance(step, (int, float)) and step == 1):
        values = ops.mul(values, c.number(step, wide))
    if not (isinstance(start, (int, float)) and start == 0):
        values = ops.add(values, c.number(start, wide))
    return c.cast(values)


@rule("arange")
def _arange(c: Call, end: Any, **_: Any) -> SymTensor:
    return _range(c, 0, 1)


@rule("arange.start")
def _arange_start(c: Call, start: Any, end: Any, **_: Any) -> SymTensor:
    return _range(c, start, 1)


@rule("arange.start_step")
def _arange_step(c: Call, start: Any, end: Any, step: Any = 1, **_: Any) -> SymTensor:
    return _range(c, start, step)


@rule("prims.iota")
def _iota(c: Call, length: Any, *, start: Any, step: Any, **_: Any) -> SymTensor:
    return _range(c, start, step)


@rule("linspace")
def _linspace(c: Call, start: Any, end: Any, steps: int, **_: Any) -> SymTensor:
    """torch counts the second half down from the end, so that both ends are exact."""
    return c.cast(_spaced(c, start, end, steps))


def _spaced(c: Call, start: Any, end: Any, steps: int) -> SymTensor:
    if not all(isinstance(v, (int, float)) for v in (start, end)):
        raise Decompose("an end that is no number")
    if not is_float(c.dtype):
        start, end = int(start), int(end)
    index = ops.iota(shape=[steps], axis=0, dtype="f64")
    step = (float(end) - float(start)) / max(steps - 1, 1)
    up = index * step + float(start)
    down = float(end) - (float(steps - 1) - index) * step
    return ops.select(index < float(steps // 2), up, down) if steps > 1 else up


@rule("logspace")
def _logspace(c: Call, start: Any, end: Any, steps: int, base: float = 10.0, **_: Any) -> SymTensor:
    return c.cast(ops.pow(c.number(base, "f64"), _spaced(c, start, end, steps)))


@rule("eye", "eye.m")
def _eye(c: Call, *_: Any, **__: Any) -> SymTensor:
    rows, columns = (ops.iota(shape=c.shape, axis=axis, dtype="i64") for axis in (0, 1))
    return c.cast(ops.eq(rows, columns))


def flat_mask(c: Call, x: SymTensor, diagonal: Any, lower: bool) -> SymTensor:
    """Where column - row is at most (lower) or at least `diagonal`."""
    sizes = list(x.shape)[-2:]
    rows, columns = (ops.iota(shape=sizes, axis=axis, dtype="i64") for axis in (0, 1))
    offset = ops.sub(columns, rows)
    return (ops.le if lower else ops.ge)(offset, c.number(diagonal, "i64"))


@rule("tril")
def _tril(c: Call, x: Any, diagonal: Any = 0) -> SymTensor:
    return ops.select(flat_mask(c, x, diagonal, True), x, c.number(0, x.dtype))


@rule("triu")
def _triu(c: Call, x: Any, diagonal: Any = 0) -> SymTensor:
    return ops.select(flat_mask(c, x, diagonal, False), x, c.number(0, x.dtype))
