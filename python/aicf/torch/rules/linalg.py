"""Products of matrices."""

from __future__ import annotations

import math
from typing import Any

from ... import ops
from ...symtensor import SymTensor
from ..call import Call, Decompose
from ..types import is_float
from .table import rule

__all__: list[str] = []


@rule("mm", "bmm")
def _mm(c: Call, x: Any, y: Any, *_: Any) -> SymTensor:
    return ops.matmul(x, y)


@rule("matmul", "linalg_matmul")
def _matmul(c: Call, x: Any, y: Any) -> SymTensor:
    return x @ y


@rule("mv", "dot", "vdot", "inner")
def _mv(c: Call, x: Any, y: Any) -> SymTensor:
    if x.ndim == 0 or y.ndim == 0:
        return ops.mul(x, y)
    if c.node.target._opname == "inner" and y.ndim > 1:
        y = y.swapaxes(-1, -2)
        if x.ndim > 2 or y.ndim > 2:
            raise Decompose("inner of many axes")
    return x @ y


def _plus(c: Call, product: SymTensor, bias: Any, beta: Any, alpha: Any) -> SymTensor:
    """beta bias + alpha product; a beta of 0 ignores the bias, NaNs too."""
    if alpha != 1:
        product = ops.mul(product, c.number(alpha, product.dtype))
    if beta == 0:
        return ops.broadcast_to(product, shape=c.shape)
    if beta != 1:
        bias = ops.mul(bias, c.number(beta, bias.dtype))
    return ops.add(bias, product)


@rule("addmm", "baddbmm")
def _addmm(c: Call, bias: Any, x: Any, y: Any, *, beta: Any = 1, alpha: Any = 1) -> SymTensor:
    if beta == 1 and alpha == 1 and is_float(x.dtype) and x.ndim == 2 and bias.shape == y.shape[1:]:
        return ops.linear(x, y, bias)
    return _plus(c, ops.matmul(x, y), bias, beta, alpha)


@rule("addmv")
def _addmv(c: Call, bias: Any, x: Any, y: Any, *, beta: Any = 1, alpha: Any = 1) -> SymTensor:
    return _plus(c, x @ y, bias, beta, alpha)


@rule("addbmm")
def _addbmm(c: Call, bias: Any, x: Any, y: Any, *, beta: Any = 1, alpha: Any = 1) -> SymTensor:
    return _plus(c, ops.reduce_sum(ops.matmul(x, y), axes=[0]), bias, beta, alpha)


@rule("addr")
def _addr(c: Call, bias: Any, x: Any, y: Any, *, beta: Any = 1, alpha: Any = 1) -> SymTensor:
    if c.dtype == "bool":
        raise Decompose("addr of bools")
    product = ops.mul(c.cast(x).expand_dims(1), c.cast(y).expand_dims(0))
    return _plus(c, product, c.cast(bias), beta, alpha)


@rule("outer", "ger")
def _outer(c: Call, x: Any, y: Any) -> SymTensor:
    return ops.mul(c.cast(x).expand_dims(1), c.cast(y).expand_dims(0))


@rule("linear")
def _linear(c: Call, x: Any, w: Any, bias: Any = None) -> SymTensor:
    if w.ndim == 1:
        product = ops.reshape(x @ w, shape=c.shape)
        return product if bias is None else ops.add(product, bias)
    if x.ndim >= 2 and (bias is None or bias.ndim == 1) and is_float(x.dtype):
        return ops.linear(x, w, bias, transpose_w=True)
    row = ops.reshape(x, shape=[1, *x.shape]) if x.ndim == 1 else x
    result = ops.reshape(ops.matmul(row, w, transpose_y=True), shape=c.shape)
    return result if bias is None else ops.add(result, bias)


@rule("bilinear")
def _bilinear(c: Call, x: Any, y: Any, w: Any, bias: Any = None) -> SymTensor:
    """y[..., o] = x[..., i] w[o, i, j] y[..., j] + bias[o]: two products, the first for all pairs (o, j)."""
    outs, ins, js = w.shape
    wide = ops.reshape(ops.transpose(w, perm=[1, 0, 2]), shape=[ins, outs * js])
    flat = ops.reshape(x, shape=[math.prod(x.shape[:-1]), ins])
    first = ops.reshape(ops.matmul(flat, wide), shape=[flat.shape[0], outs, js])
    column = ops.reshape(y, shape=[flat.shape[0], js, 1])
    result = ops.reshape(ops.matmul(first, column), shape=c.shape)
    return result if bias is None else ops.add(result, bias)


# --- mixtures of experts


@rule("transformers.grouped_mm_fallback.default", "_grouped_mm")
def _grouped(c: Call, x: Any, w: Any, offs: Any = None, bias: Any = None, out_dtype: Any = None) -> SymTensor:
    """Rows of x [S, K], sorted by expert, times their experts' w [E, K, N]; offs [E] holds where each ends.

    How many rows an expert has depends on data: each of a few rows gathers its matrix; of many rows all are
    multiplied with every matrix, and each keeps its own product.
    """
    if x.ndim != 2 or w.ndim != 3 or offs is None or bias is not None or not isinstance(w.shape[0], int):
        raise Decompose("grouped products other than of rows and one matrix for each expert")
    rows, experts = x.shape[0], w.shape[0]
    row = ops.iota(shape=[rows, 1], axis=0, dtype=offs.dtype)
    ended = ops.cast(ops.le(ops.reshape(offs, shape=[1, experts]), row), dtype="i64")
    expert = ops.min(ops.reduce_sum(ended, axes=[1]), c.number(experts - 1, "i64"))
    if isinstance(rows, int) and 3 * rows <= experts:
        return ops.reshape(ops.matmul(x.expand_dims(1), ops.gather(w, expert, axis=0)), shape=c.shape)
    result = c.full(c.shape, 0, x.dtype)
    mine = ops.reshape(expert, shape=[rows, 1])
    for e in range(experts):
        sizes = list(w.shape)
        matrix = ops.slice(w, starts=[e, 0, 0], limits=[e + 1, *sizes[1:]], steps=[1, 1, 1])
        product = ops.matmul(x, ops.reshape(matrix, shape=sizes[1:]))
        result = ops.select(ops.eq(mine, c.number(e, "i64")), product, result)
    return result
