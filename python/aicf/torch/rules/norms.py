"""Norms over the last axes, groups of channels, or the batch."""

from __future__ import annotations

from typing import Any

from ... import ops
from ...symtensor import SymTensor
from ..call import Call, Decompose
from ..types import is_half
from .table import rule

__all__: list[str] = []


def _mixed(x: SymTensor, *weights: Any) -> bool:
    """Whether weights are wider than what they scale, as under autocast; torch then computes in f32."""
    return any(weight is not None and weight.dtype != x.dtype for weight in weights)


def _wide(c: Call, *values: Any) -> list[Any]:
    return [None if value is None else c.cast(value, "f32") for value in values]


@rule("layer_norm")
def _layer_norm(
    c: Call, x: Any, shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any
) -> SymTensor:
    if eps < 0:
        raise Decompose("a negative epsilon")
    if _mixed(x, weight, bias):
        x, weight, bias = _wide(c, x, weight, bias)
        return c.cast(_layer_norm(c, x, shape, weight, bias, eps))
    if weight is None and bias is not None:
        return ops.add(ops.layer_norm(x, axis=x.ndim - len(shape), epsilon=eps), bias)
    return ops.layer_norm(x, weight, bias, axis=x.ndim - len(shape), epsilon=eps)


@rule("native_layer_norm")
def _native_layer_norm(c: Call, x: Any, shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    """Also mean and 1 / standard deviation, which the backward pass reads."""
    x = c.cast(x, c.dtype_of(1))
    axes = list(range(x.ndim - len(shape), x.ndim))
    mean = ops.reduce_mean(x, axes=axes, keepdims=True)
    centred = ops.sub(x, mean)
    variance = ops.reduce_mean(ops.mul(centred, centred), axes=axes, keepdims=True)
    inverse = ops.rsqrt(ops.add(variance, c.number(eps, x.dtype)))
    return c.cast(_layer_norm(c, x, shape, weight, bias, eps)), mean, inverse


def _rms_epsilon(x: SymTensor, eps: Any) -> float:
    if eps is not None:
        return float(eps)
    return {"f64": 2.0**-52, "f32": 2.0**-23, "f16": 2.0**-10, "bf16": 2.0**-7}[x.dtype]


@rule("rms_norm")
def _rms_norm(c: Call, x: Any, shape: Any, weight: Any = None, eps: Any = None) -> SymTensor:
    if weight is not None and weight.dtype != x.dtype:
        raise Decompose("a weight of another dtype")
    if _rms_epsilon(x, eps) < 0:
        raise Decompose("a negative epsilon")
    return ops.rms_norm(x, weight, axis=x.ndim - len(shape), epsilon=_rms_epsilon(x, eps))


@rule("_fused_rms_norm")
def _fused_rms_norm(c: Call, x: Any, shape: Any, weight: Any, eps: Any) -> Any:
    """Also 1 / root mean square, in the dtype in which torch keeps it: on a GPU f32 of halves."""
    axes = list(range(x.ndim - len(shape), x.ndim))
    wide, epsilon = c.cast(x, c.dtype_of(1)), _rms_epsilon(x, eps)
    mean = ops.reduce_mean(ops.mul(wide, wide), axes=axes, keepdims=True)
    inverse = ops.rsqrt(ops.add(mean, c.number(epsilon, wide.dtype)))
    return _rms_norm(c, x, shape, weight, eps), inverse


@rule("group_norm")
def _group_norm(
    c: Call, x: Any, groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any
) -> SymTensor:
    if eps < 0:
        raise Decompose("a negative epsilon")
    if _mixed(x, weight, bias):
        x, weight, bias = _wide(c, x, weight, bias)
        return c.cast(_group_norm(c, x, groups, weight, bias, eps))
    if weight is None and bias is not None:
        weight = c.full(list(bias.shape), 1, x.dtype)
    return ops.group_norm(x, weight, bias, groups=groups, epsilon=eps)


def _channels(x: SymTensor, v: SymTensor) -> SymTensor:
    return ops.reshape(v, shape=[1, x.shape[1], *([1] * (x.ndim - 2))])


def _inference_norm(c: Call, x: Any, weight: Any, bias: Any, mean: Any, var: Any, eps: float) -> SymTensor:
    if _mixed(x, weight, bias, mean, var):
        return c.cast(_inference_norm(c, *_wide(c, x, weight, bias, mean, var), eps))
    if x.ndim < 2:
        raise Decompose("batch_norm without an axis of channels")
    channels = [x.shape[1]]
    weight = c.full(channels, 1, x.dtype) if weight is None else c.cast(weight, x.dtype)
    bias = c.full(channels, 0, x.dtype) if bias is None else c.cast(bias, x.dtype)
    return ops.batch_norm(x, weight, bias, c.cast(mean, x.dtype), c.cast(var, x.dtype), epsilon=eps)


def _training_norm(c: Call, x: Any, weight: Any, bias: Any, eps: float) -> tuple[SymTensor, ...]:
    """(result, mean, biased variance) with the statistics of the batch."""
    if x.ndim < 2:
        raise Decompose("batch_norm without an axis of channels")
    channels = [x.shape[1]]
    weight = c.full(channels, 1, x.dtype) if weight is None else weight
    bias = c.full(channels, 0, x.dtype) if bias is None else bias
    result, mean, variance = ops.batch_norm_train(x, weight, bias, epsilon=eps)
    return result, mean, variance, ops.rsqrt(ops.add(variance, c.number(eps, x.dtype)))


@rule("batch_norm")
def _batch_norm(
    c: Call,
    x: Any,
    w: Any,
    b: Any,
    mean: Any,
    var: Any,
    training: bool,
    _momentum: float,
    eps: float,
    *_: Any,
) -> SymTensor:
    if training or mean is None:
        if mean is not None:
            raise Decompose("running statistics change")
        if _mixed(x, w, b):
            x, w, b = _wide(c, x, w, b)
        return c.cast(_training_norm(c, x, w, b, eps)[0])
    return _inference_norm(c, x, w, b, mean, var, eps)


@rule("instance_norm")
def _instance_norm(
    c: Call,
    x: Any,
    w: Any,
    b: Any,
    mean: Any,
    var: Any,
    from_input: bool,
    _momentum: float,
    eps: float,
    *_: Any,
) -> SymTensor:
    if not from_input:
        return _inference_norm(c, x, w, b, mean, var, eps)
    if mean is not None or not isinstance(x.shape[1], int):
        raise Decompose("running statistics change")
    return ops.group_norm(x, w, b, groups=x.shape[1], epsilon=eps)


@rule("_native_batch_norm_legit_no_training")
def _no_training(
    c: Call, x: Any, w: Any, b: Any, mean: Any, var: Any, _momentum: float, eps: float
) -> tuple[SymTensor, SymTensor, SymTensor]:
    return _inference_norm(c, x, w, b, mean, var, eps), *_kept_statistics(c, mean, var, eps)


def _kept_statistics(c: Call, mean: Any, var: Any, eps: float) -> tuple[SymTensor, SymTensor]:
    """What torch keeps for the gradient: nothing on a CPU, mean and 1 / std on a GPU."""
    if c.shape_of(1) == [0]:
        return c.full([0], 0, c.dtype_of(1)), c.full([0], 0, c.dtype_of(2))
    inverse = ops.rsqrt(ops.add(var, c.number(eps, var.dtype)))
    return c.cast(mean, c.dtype_of(1)), c.cast(inverse, c.dtype_of(2))


@rule("_native_batch_norm_legit_functional")
def _legit_functional(
    c: Call, x: Any, w: Any, b: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float
) -> tuple[SymTensor, ...]:
    """(result, mean, 1 / std, next running mean, next running variance)."""
    if not training:
        return _inference_norm(c, x, w, b, mean, var, eps), *_kept_statistics(c, mean, var, eps), mean, var
    if _mixed(x, w, b, mean, var):
        x, w, b, mean, var = _wide(c, x, w, b, mean, var)
    result, batch_mean, variance, inverse = _training_norm(c, x, w, b, eps)
    count = c.count(s for a, s in enumerate(x.shape) if a != 1)
    if isinstance(count, float):
        unbiased = ops.mul(variance, c.number(count / max(count - 1, 1e-30), x.dtype))
    else:
        unbiased = ops.mul(variance, ops.div(count, ops.sub(count, c.number(1, x.dtype))))
    made = (
        result,
        batch_mean,
        inverse,
        _moved_average(c, mean, batch_mean, momentum),
        _moved_average(c, var, unbiased, momentum),
    )
    return tuple(c.cast(value, c.dtype_of(i)) for i, value in enumerate(made))


def _moved_average(c: Call, old: Any, new: Any, momentum: float) -> SymTensor:
    keep, take = c.number(1 - momentum, old.dtype), c.number(momentum, old.dtype)
    return ops.add(ops.mul(old, keep), ops.mul(c.cast(new, old.dtype), take))


@rule("native_batch_norm_backward")
def _batch_norm_backward(
    c: Call,
    dy: Any,
    x: Any,
    w: Any,
    _running_mean: Any,
    _running_var: Any,
    mean: Any,
    inverse: Any,
    training: bool,
    _eps: float,
    mask: Any,
) -> tuple[Any, Any, Any]:
    """r w (dy - mean(dy) - z mean(dy z)), z = (x - mean) r; sum(dy z); sum(dy)."""
    if not training:
        raise Decompose("statistics that are given")
    dtype = _wide_type(x)
    dy, x = c.cast(dy, dtype), c.cast(x, dtype)
    mean, r = (c.cast(_channels(x, v), dtype) for v in (mean, inverse))
    axes = [a for a in range(x.ndim) if a != 1]
    z = ops.mul(ops.sub(x, mean), r)
    total = ops.reduce_sum(dy, axes=axes, keepdims=True)
    along = ops.reduce_sum(ops.mul(dy, z), axes=axes, keepdims=True)
    dx = None
    if mask[0]:
        count = c.count(s for a, s in enumerate(x.shape) if a != 1)
        count = c.number(count, dtype) if isinstance(count, float) else c.cast(count, dtype)
        factor = r if w is None else ops.mul(r, c.cast(_channels(x, w), dtype))
        g = ops.sub(ops.sub(dy, ops.div(total, count)), ops.mul(z, ops.div(along, count)))
        dx = c.cast(ops.mul(g, factor), c.dtype_of(0))
    parts = (
        c.cast(ops.reshape(v, shape=[x.shape[1]]), c.dtype_of(i)) if mask[i] else None
        for i, v in ((1, along), (2, total))
    )
    return dx, *parts


@rule("native_group_norm_backward")
def _group_norm_backward(
    c: Call,
    dy: Any,
    x: Any,
    mean: Any,
    inverse: Any,
    w: Any,
    n: Any,
    channels: Any,
    _space: Any,
    groups: int,
    mask: Any,
) -> tuple[Any, Any, Any]:
    """Sums of dy and dy (x - mean) over the space of each channel serve all three gradients; that of x is
    dy a + (x - mean) b + d, whose numbers belong to a channel."""
    n, channels = c.size(n), c.size(channels)
    dtype = _wide_type(x)
    dy, x = c.cast(dy, dtype), c.cast(x, dtype)
    grouped = [n, groups, channels // groups]
    one = ops.broadcast_to(c.number(1, dtype), shape=grouped)
    mean, r = (c.cast(ops.reshape(v, shape=[n, groups, 1]), dtype) for v in (mean, inverse))
    scale = one if w is None else c.cast(ops.reshape(w, shape=[1, *grouped[1:]]), dtype)

    def in_space(v: SymTensor) -> SymTensor:
        return ops.reshape(v, shape=[n, channels, *([1] * (x.ndim - 2))])

    centred = ops.sub(x, in_space(ops.mul(mean, one)))
    space = list(range(2, x.ndim))
    total = ops.reshape(ops.reduce_sum(dy, axes=space), shape=grouped)
    along = ops.mul(ops.reshape(ops.reduce_sum(ops.mul(dy, centred), axes=space), shape=grouped), r)
    dx = None
    if mask[0]:
        count = c.count([grouped[2], *(x.shape[a] for a in space)])
        count = c.number(count, dtype) if isinstance(count, float) else c.cast(count, dtype)
        over = [
            ops.div(ops.reduce_sum(ops.mul(v, scale), axes=[2], keepdims=True), count) for v in (total, along)
        ]
        b = ops.mul(ops.neg(ops.mul(ops.mul(r, r), over[1])), one)
        d = ops.mul(ops.neg(ops.mul(r, over[0])), one)
        dx = ops.add(
            ops.mul(dy, in_space(ops.mul(r, scale))), ops.add(ops.mul(centred, in_space(b)), in_space(d))
        )
        dx = c.cast(dx, c.dtype_of(0))
    parts = (
        c.cast(ops.reshape(ops.reduce_sum(v, axes=[0]), shape=[channels]), c.dtype_of(i)) if mask[i] else None
        for i, v in ((1, along), (2, total))
    )
    return dx, *parts


def _wide_type(x: SymTensor) -> str:
    return "f32" if is_half(x.dtype) else x.dtype
