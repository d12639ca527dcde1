"""Layers that stay whole: norms, convolutions, pools."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy

from ... import ops
from ...symtensor import SymTensor
from ..call import Call, Decompose
from .shape import padded
from .table import rule

__all__: list[str] = []


# --- norms


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
    axes = list(range(x.ndim - len(shape), x.ndim))
    mean = ops.reduce_mean(ops.mul(x, x), axes=axes, keepdims=True)
    inverse = ops.rsqrt(ops.add(mean, c.number(_rms_epsilon(x, eps), x.dtype)))
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
    axes = [a for a in range(x.ndim) if a != 1]
    mean = ops.reduce_mean(x, axes=axes)
    centred = ops.sub(x, _channels(x, mean))
    variance = ops.reduce_mean(ops.mul(centred, centred), axes=axes)
    inverse = ops.rsqrt(ops.add(variance, c.number(eps, x.dtype)))
    result = ops.mul(centred, _channels(x, inverse))
    if weight is not None:
        result = ops.mul(result, _channels(x, weight))
    if bias is not None:
        result = ops.add(result, _channels(x, bias))
    return result, mean, variance, inverse


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
    empty = c.full([0], 0, x.dtype)
    return _inference_norm(c, x, w, b, mean, var, eps), empty, empty


@rule("_native_batch_norm_legit_functional")
def _legit_functional(
    c: Call, x: Any, w: Any, b: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float
) -> tuple[SymTensor, ...]:
    """(result, mean, 1 / std, next running mean, next running variance)."""
    if not training:
        empty = c.full([0], 0, x.dtype)
        return _inference_norm(c, x, w, b, mean, var, eps), empty, empty, mean, var
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


# --- convolutions


def _per_axis(value: Any, rank: int) -> list[int]:
    values = [value] if isinstance(value, int) else list(value)
    return values * rank if len(values) == 1 else values


def _convolve(
    c: Call,
    x: SymTensor,
    w: SymTensor,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    transposed: bool = False,
    output_padding: Any = 0,
) -> SymTensor:
    rank = w.ndim - 2
    single = x.ndim == rank + 1
    if single:
        x = x.expand_dims(0)
    strides, dilations = _per_axis(stride, rank), _per_axis(dilation, rank)
    if isinstance(padding, str):
        lows, highs = _named_padding(padding, w, dilations, rank)
    else:
        lows = highs = _per_axis(padding, rank)
    attrs: dict[str, Any] = {
        "strides": strides, "pads": [*lows, *highs], "dilations": dilations, "groups": groups
    }  # fmt: skip
    if transposed:
        attrs["output_padding"] = _per_axis(output_padding, rank)
        y = ops.conv_transpose(x, w, bias, **attrs)
    else:
        y = ops.conv(x, w, bias, **attrs)
    return ops.reshape(y, shape=list(y.shape)[1:]) if single else y


def _named_padding(name: str, w: SymTensor, dilations: list[int], rank: int) -> tuple[list[int], list[int]]:
    if name == "valid":
        return [0] * rank, [0] * rank
    total = [d * (int(k) - 1) for d, k in zip(dilations, w.shape[2:], strict=True)]  # type: ignore[call-overload]
    return [t // 2 for t in total], [t - t // 2 for t in total]


@rule("convolution", "_convolution", "convolution_overrideable")
def _convolution(
    c: Call,
    x: Any,
    w: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    *_: Any,
) -> SymTensor:
    return _convolve(c, x, w, bias, stride, padding, dilation, groups, transposed, output_padding)


@rule(*(f"conv{n}d{o}" for n in (1, 2, 3) for o in (".default", ".padding")))
def _conv(
    c: Call,
    x: Any,
    w: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> SymTensor:
    return _convolve(c, x, w, bias, stride, padding, dilation, groups)


@rule("conv_transpose1d", "conv_transpose2d.input", "conv_transpose3d.input")
def _conv_transpose(
    c: Call,
    x: Any,
    w: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> SymTensor:
    return _convolve(c, x, w, bias, stride, padding, dilation, groups, True, output_padding)


# --- pools


def _with_batch(x: SymTensor, rank: int) -> SymTensor:
    return x.expand_dims(0) if x.ndim == rank + 1 else x


def _pool_attrs(kernel: Any, stride: Any, padding: Any, rank: int, ceil_mode: bool) -> dict[str, Any]:
    kernel = _per_axis(kernel, rank)
    stride = _per_axis(stride, rank) if not isinstance(stride, Sequence) or stride else kernel
    padding = _per_axis(padding, rank)
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
    attrs = _pool_attrs(kernel, stride, padding, rank, ceil_mode) | {"dilations": _per_axis(dilation, rank)}
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
    attrs = _pool_attrs(kernel, stride, padding, rank, ceil_mode) | {"dilations": _per_axis(dilation, rank)}
    batched = _with_batch(x, rank)
    plane = math.prod(batched.shape[2:])
    index = ops.mod(ops.max_pool_indices(batched, **attrs), c.number(plane, "i64"))
    values = ops.max_pool(batched, **attrs)
    return ops.reshape(values, shape=c.shape), ops.reshape(index, shape=c.shape)


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
        window = [_window_places(n, o) for n, o in zip(ins, outs, strict=True)][i]
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


def _window_places(size: int, out: int) -> list[list[int]]:
    spans = [(o * size // out, -(-(o + 1) * size // out)) for o in range(out)]
    longest = max(end - start for start, end in spans)
    return [[min(start + k, end - 1) for k in range(longest)] for start, end in spans]


@rule(*(f"adaptive_avg_pool{n}d" for n in (1, 2, 3)), "_adaptive_avg_pool2d", "_adaptive_avg_pool3d")
def _adaptive(c: Call, x: Any, size: Any) -> SymTensor:
    """Equal windows where the sizes divide; otherwise a product with the matrix of window means per axis."""
    rank = _rank_in_name(c)
    first = x.ndim - rank
    for axis in range(first, x.ndim):
        out, in_size = c.shape[axis], x.shape[axis]
        if out == in_size:
            continue
        if out == 1:
            x = ops.reduce_mean(x, axes=[axis], keepdims=True)
        else:
            x = _window_means(c, x, axis, in_size, out)
    return x


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


def _fixed_windows(c: Call, dtype: str, in_size: int, out: int) -> SymTensor:
    weights = numpy.zeros((in_size, out))
    for o in range(out):
        start, end = o * in_size // out, -(-(o + 1) * in_size // out)
        weights[start:end, o] = 1 / (end - start)
    return c.cast(c.graph.constant(weights), dtype)


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
