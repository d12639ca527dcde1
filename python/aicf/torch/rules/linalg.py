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
