"""scaled_dot_product_attention, kept whole."""

from __future__ import annotations

import math
from typing import Any

from ... import ops
from ...symtensor import SymTensor
from ..call import Call, Decompose
from .create import flat_mask
from .random import dropped
from .table import rule

__all__ = ["attention_weights", "per_query_head", "scores"]


def _is_causal_square(q: SymTensor, k: SymTensor) -> bool:
    return q.shape[-2] == k.shape[-2]


def scores(c: Call, q: SymTensor, k: SymTensor, mask: Any, causal: bool, scale: float) -> SymTensor:
    """scale q k^T plus the masks; torch's causal mask keeps key j <= query i, whatever the lengths."""
    s = ops.mul(ops.matmul(q, k, transpose_y=True), c.number(scale, q.dtype))
    low = c.number(-math.inf, q.dtype)
    if causal:
        s = ops.select(flat_mask(c, s, 0, True), s, low)
    if mask is not None:
        s = ops.select(mask, s, low) if mask.dtype == "bool" else ops.add(s, c.cast(mask, q.dtype))
    return s


def per_query_head(x: SymTensor, q: SymTensor) -> SymTensor:
    """Keys or values [B, H, T, D], each head of them repeated for the heads of queries that share it."""
    if x.ndim < 3 or x.shape[-3] == q.shape[-3]:
        return x
    *batch, heads, length, width = x.shape
    shape = [*batch, heads, q.shape[-3] // heads, length, width]
    repeated = ops.broadcast_to(x.expand_dims(-3), shape=shape)
    return ops.reshape(repeated, shape=[*batch, q.shape[-3], length, width])


def attention_weights(c: Call, s: SymTensor) -> SymTensor:
    """softmax whose fully masked rows are 0."""
    low = c.number(-math.inf, s.dtype)
    top = ops.reduce_max(s, axes=[s.ndim - 1], keepdims=True)
    return ops.select(ops.eq(top, low), c.number(0, s.dtype), ops.softmax(s, axis=-1))


@rule("scaled_dot_product_attention")
def _attention(
    c: Call,
    q: Any,
    k: Any,
    v: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: Any = None,
    enable_gqa: bool = False,
) -> SymTensor:
    if scale is None:
        if not isinstance(q.shape[-1], int):
            raise Decompose("a symbolic head size")
        scale = 1 / math.sqrt(q.shape[-1]) if q.shape[-1] else 1.0
    if not isinstance(scale, (int, float)):
        raise Decompose("a symbolic scale")
    if dropout_p > 0:
        if enable_gqa:
            k, v = per_query_head(k, q), per_query_head(v, q)
        weights = attention_weights(c, scores(c, q, k, attn_mask, is_causal, scale))
        return ops.matmul(dropped(c, weights, dropout_p)[0], v)
    batch = c.shape[:-2]
    if len(batch) > 2:
        raise Decompose("more than two batch axes")
    if not enable_gqa:
        k, v, q = (_spread(x, batch) for x in (k, v, q))
    four = [ops.reshape(x, shape=[1] * (4 - x.ndim) + list(x.shape)) if x.ndim < 4 else x for x in (q, k, v)]
    square = _is_causal_square(q, k)
    mask = attn_mask
    if is_causal and not square:
        mask = _causal_mask(c, q, k, mask)
    if mask is not None and mask.dtype not in ("bool", q.dtype):
        mask = c.cast(mask, q.dtype)
    y = ops.attention(*four, mask, scale=float(scale), causal=is_causal and square)
    return ops.reshape(y, shape=c.shape) if len(c.shape) != 4 else y


def _spread(x: SymTensor, batch: list[Any]) -> SymTensor:
    shape = [*batch, *x.shape[-2:]]
    return x if list(x.shape) == shape else ops.broadcast_to(x, shape=shape)


def _causal_mask(c: Call, q: SymTensor, k: SymTensor, mask: Any) -> SymTensor:
    keep = c.full([q.shape[-2], k.shape[-2]], 1, "bool")
    keep = ops.bit_and(keep, flat_mask(c, keep, 0, True))
    if mask is None:
        return keep
    if mask.dtype == "bool":
        return ops.bit_and(mask, keep)
    return ops.select(keep, mask, c.number(-math.inf, mask.dtype))
