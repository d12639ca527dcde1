"""Ops that only occur in backward graphs and that torch does not decompose."""

from __future__ import annotations

import math
import operator
from typing import Any

from ... import ops
from ...symtensor import SymTensor
from ..call import Call, Decompose
from .attention import attention_weights, per_query_head, scores
from .convolutions import per_axis
from .table import rule

__all__: list[str] = []


@rule("_scaled_dot_product_flash_attention_for_cpu")
def _flash(
    c: Call,
    q: Any,
    k: Any,
    v: Any,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Any = None,
    scale: Any = None,
) -> tuple[SymTensor, SymTensor | None]:
    """The result and log(sum(e^score)) per query."""
    scale = _scale(q, scale)
    if not dropout_p and _is_whole(q, k, is_causal):
        if not any(user.target is operator.getitem and user.args[1] == 1 for user in c.node.users):
            return ops.attention(q, k, v, _mask(c, attn_mask, q), scale=scale, causal=is_causal), None
        return ops.attention_lse(q, k, v, _mask(c, attn_mask, q), scale=scale, causal=is_causal)
    s = scores(c, q, per_query_head(k, q), attn_mask, is_causal, scale)
    total = ops.reduce_logsumexp(s, axes=[3])
    return ops.matmul(attention_weights(c, s), per_query_head(v, q)), total


def _is_whole(q: SymTensor, k: SymTensor, is_causal: bool) -> bool:
    """Whether our op means the same: its causal mask ends at the last key, where torch's begins at the first;
    its sums are f32, where torch's of f64 are f64."""
    return q.dtype != "f64" and (not is_causal or q.shape[-2] == k.shape[-2])


def _mask(c: Call, mask: Any, q: SymTensor) -> Any:
    return mask if mask is None or mask.dtype == "bool" else c.cast(mask, q.dtype)


def _scale(q: SymTensor, scale: Any) -> float:
    if scale is not None:
        return float(scale)
    if not isinstance(q.shape[-1], int):
        raise Decompose("a symbolic head size")
    return 1 / math.sqrt(q.shape[-1])


@rule("_scaled_dot_product_flash_attention_for_cpu_backward")
def _flash_backward(
    c: Call,
    grad: Any,
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    logsumexp: Any,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Any = None,
    scale: Any = None,
) -> tuple[SymTensor, SymTensor, SymTensor]:
    """dV = P^T dO, dS = P (dO V^T - sum(dO O)), dQ = scale dS K, dK = scale dS^T Q (Dao et al. 2022)."""
    scale = _scale(q, scale)
    if not dropout_p and _is_whole(q, k, is_causal):
        mask = _mask(c, attn_mask, q)
        return ops.attention_backward(q, k, v, out, grad, mask, scale=scale, causal=is_causal)
    heads = k.shape[1]
    k, v = per_query_head(k, q), per_query_head(v, q)
    p = attention_weights(c, scores(c, q, k, attn_mask, is_causal, scale))
    dv = ops.matmul(p, grad, transpose_x=True)
    dot = ops.reduce_sum(ops.mul(grad, out), axes=[3], keepdims=True)
    ds = ops.mul(ops.mul(p, ops.sub(ops.matmul(grad, v, transpose_y=True), dot)), c.number(scale, q.dtype))
    dk = ops.matmul(ds, q, transpose_x=True)
    return ops.matmul(ds, k), _summed_over_group(dk, heads), _summed_over_group(dv, heads)


def _summed_over_group(x: SymTensor, heads: Any) -> SymTensor:
    """From gradients for each head of queries to those of the heads of keys that they share."""
    batch, given, length, width = x.shape
    if given == heads:
        return x
    return ops.reduce_sum(ops.reshape(x, shape=[batch, heads, given // heads, length, width]), axes=[2])


@rule("convolution_backward")
def _convolution_backward(
    c: Call,
    grad: Any,
    x: Any,
    w: Any,
    bias_sizes: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    mask: Any,
) -> tuple[Any, Any, Any]:
    """With respect to input, weight and bias."""
    rank = w.ndim - 2
    stride, padding = per_axis(stride, rank), per_axis(padding, rank)
    dilation = per_axis(dilation, rank)
    if (
        transposed
    ):  # x and grad change places: y = conv_transpose(x, w) is the input gradient of a convolution
        plain = {"strides": stride, "pads": [*padding, *padding], "dilations": dilation, "groups": groups}
        dx = _read_positions(c, ops.conv(grad, w, **plain)) if mask[0] else None
        dw = _weight_gradient(x, grad, w, stride, padding, dilation, groups) if mask[1] else None
        db = ops.reduce_sum(grad, axes=[a for a in range(grad.ndim) if a != 1]) if mask[2] else None
        return dx, dw, db
    sizes = [*x.shape[2:], *w.shape[2:], *grad.shape[2:]]
    if not all(isinstance(s, int) for s in (*sizes, *list(x.shape)[:2])):
        raise Decompose("the gradient of a convolution with symbolic sizes")
    dx = _input_gradient(grad, x, w, stride, padding, dilation, groups) if mask[0] else None
    dw = _weight_gradient(grad, x, w, stride, padding, dilation, groups) if mask[1] else None
    db = ops.reduce_sum(grad, axes=[a for a in range(grad.ndim) if a != 1]) if mask[2] else None
    return dx, dw, db


def _read_positions(c: Call, dx: SymTensor) -> SymTensor:
    """Without the windows that only begin in the output's padding."""
    shape = c.shape_of(0)
    if dx.shape == tuple(shape):
        return dx
    return ops.slice(dx, starts=[0] * dx.ndim, limits=shape, steps=[1] * dx.ndim)


def _input_gradient(
    grad: Any, x: Any, w: Any, stride: Any, padding: Any, dilation: Any, groups: int
) -> SymTensor:
    extra = [
        int(x.shape[2 + i])
        - (
            (int(grad.shape[2 + i]) - 1) * stride[i]
            - 2 * padding[i]
            + dilation[i] * (int(w.shape[2 + i]) - 1)
            + 1
        )
        for i in range(w.ndim - 2)
    ]
    return ops.conv_transpose(
        grad,
        w,
        strides=stride,
        pads=[*padding, *padding],
        dilations=dilation,
        output_padding=extra,
        groups=groups,
    )


def _weight_gradient(
    grad: Any, x: Any, w: Any, stride: Any, padding: Any, dilation: Any, groups: int
) -> SymTensor:
    return ops.conv_weight_gradient(
        x,
        grad,
        kernel=list(w.shape[2:]),
        strides=stride,
        pads=[*padding, *padding],
        dilations=dilation,
        groups=groups,
    )


@rule("embedding_dense_backward")
def _embedding_backward(
    c: Call, grad: Any, indices: Any, num_weights: Any, padding_idx: int, scale_grad_by_freq: bool
) -> SymTensor:
    if scale_grad_by_freq:
        raise Decompose
    rows = ops.reshape(indices, shape=[indices.size, 1])
    grad = ops.reshape(grad, shape=[indices.size, grad.shape[-1]])
    if padding_idx >= 0:
        keep = ops.ne(rows, c.number(padding_idx, rows.dtype))
        grad = ops.select(keep, grad, c.number(0, grad.dtype))
    return ops.scatter_nd(c.full(c.shape, 0), c.cast(rows, "i64"), grad, reduction="add")
