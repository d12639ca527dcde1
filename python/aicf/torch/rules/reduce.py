"""Reductions and running totals."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

from ... import ops
from ...symtensor import SymTensor
from ..call import Call, Decompose
from ..types import is_float
from .shape import axis_of
from .table import rule

__all__ = ["axes_of", "flat_at_zero", "norm", "root"]


def axes_of(x: SymTensor, dim: Any) -> list[int]:
    """torch's `dim`: None or an empty list is every axis."""
    if dim is None or (isinstance(dim, Sequence) and not dim):
        return list(range(x.ndim))
    dims = [dim] if isinstance(dim, int) else dim
    return [axis_of(d, x.ndim) for d in dims] if x.ndim else []


def _reduced(name: str, x: SymTensor, dim: Any, keepdim: bool) -> SymTensor:
    axes = axes_of(x, dim)
    return getattr(ops, name)(x, axes=axes, keepdims=keepdim) if axes else x


@rule("sum", "sum.dim_IntList", "prims.sum")
def _sum(c: Call, x: Any, dim: Any = None, keepdim: bool = False, **_: Any) -> SymTensor:
    return _reduced("reduce_sum", c.cast(x), dim, keepdim)


@rule("mean", "mean.dim")
def _mean(c: Call, x: Any, dim: Any = None, keepdim: bool = False, **_: Any) -> SymTensor:
    return _reduced("reduce_mean", c.cast(x), dim, keepdim)


@rule("prod", "prims.prod")
def _prod(c: Call, x: Any, dim: Any = None, **_: Any) -> SymTensor:
    return _reduced("reduce_prod", c.cast(x), dim, False)


@rule("prod.dim_int")
def _prod_dim(c: Call, x: Any, dim: int, keepdim: bool = False, **_: Any) -> SymTensor:
    return _reduced("reduce_prod", c.cast(x), dim, keepdim)


@rule("amax", "prims.amax")
def _amax(c: Call, x: Any, dim: Any = (), keepdim: bool = False, **_: Any) -> SymTensor:
    return _reduced("reduce_max", x, dim, keepdim)


@rule("amin", "prims.amin")
def _amin(c: Call, x: Any, dim: Any = (), keepdim: bool = False, **_: Any) -> SymTensor:
    return _reduced("reduce_min", x, dim, keepdim)


@rule("max")
def _max(c: Call, x: Any) -> SymTensor:
    return _reduced("reduce_max", x, None, False)


@rule("min")
def _min(c: Call, x: Any) -> SymTensor:
    return _reduced("reduce_min", x, None, False)


@rule("aminmax")
def _aminmax(c: Call, x: Any, *, dim: Any = None, keepdim: bool = False) -> tuple[SymTensor, SymTensor]:
    low, high = (_reduced(f"reduce_{n}", x, dim, keepdim) for n in ("min", "max"))
    if dim is None and keepdim:
        low, high = (ops.reshape(v, shape=c.shape) for v in (low, high))
    return low, high


def _numeric(x: SymTensor) -> SymTensor:
    return ops.cast(x, dtype="u8") if x.dtype == "bool" else x


def _reads_indices(c: Call) -> bool:
    """Whether anything reads a result's second part: then the first is cheaper taken there than reduced."""
    return any(user.target is operator.getitem and user.args[1] == 1 and user.users for user in c.node.users)


def _extreme_at(c: Call, x: Any, dim: int, keepdim: bool, largest: bool) -> tuple[SymTensor, SymTensor]:
    if x.ndim == 0:
        return x, c.number(0, "i64")
    axis = axis_of(dim, x.ndim)
    index = (ops.argmax if largest else ops.argmin)(_numeric(x), axis=axis, keepdims=keepdim)
    if _reads_indices(c) and x.dtype != "bool" and 0 not in index.shape:
        along = index if keepdim else index.expand_dims(axis)
        value = ops.gather_elements(x, along, axis=axis)
        return value if keepdim else value.squeeze(axis), index
    return _reduced("reduce_max" if largest else "reduce_min", x, axis, keepdim), index


@rule("max.dim")
def _max_dim(c: Call, x: Any, dim: int, keepdim: bool = False) -> tuple[SymTensor, SymTensor]:
    return _extreme_at(c, x, dim, keepdim, True)


@rule("min.dim")
def _min_dim(c: Call, x: Any, dim: int, keepdim: bool = False) -> tuple[SymTensor, SymTensor]:
    return _extreme_at(c, x, dim, keepdim, False)


def _arg(c: Call, x: Any, dim: Any, keepdim: bool, largest: bool) -> SymTensor:
    if x.ndim == 0:
        return c.number(0, "i64")
    x = _numeric(x)
    function = ops.argmax if largest else ops.argmin
    if dim is None:
        flat = function(ops.reshape(x, shape=[x.size]), axis=0)
        return ops.reshape(flat, shape=c.shape)
    return function(x, axis=axis_of(dim, x.ndim), keepdims=keepdim)


@rule("argmax")
def _argmax(c: Call, x: Any, dim: Any = None, keepdim: bool = False) -> SymTensor:
    return _arg(c, x, dim, keepdim, True)


@rule("argmin")
def _argmin(c: Call, x: Any, dim: Any = None, keepdim: bool = False) -> SymTensor:
    return _arg(c, x, dim, keepdim, False)


def _truth(c: Call, x: Any, dim: Any, keepdim: bool, name: str) -> SymTensor:
    return c.cast(_reduced(name, c.cast(x, "bool"), dim, keepdim))


@rule("any", "any.dim", "any.dims", "_is_any_true")
def _any(c: Call, x: Any, dim: Any = None, keepdim: bool = False) -> SymTensor:
    return _truth(c, x, dim, keepdim, "reduce_max")


@rule("all", "all.dim", "all.dims", "_is_all_true")
def _all(c: Call, x: Any, dim: Any = None, keepdim: bool = False) -> SymTensor:
    return _truth(c, x, dim, keepdim, "reduce_min")


@rule("logsumexp")
def _logsumexp(c: Call, x: Any, dim: Any, keepdim: bool = False) -> SymTensor:
    return _reduced("reduce_logsumexp", c.cast(x), dim, keepdim)


# --- variance: two passes, sum((x - mean)^2) / max(n - correction, 0)


def _variance(c: Call, x: Any, dim: Any, correction: Any, keepdim: bool) -> tuple[SymTensor, SymTensor]:
    axes = axes_of(x, dim)
    mean = ops.reduce_mean(x, axes=axes, keepdims=True) if axes else x
    centred = ops.sub(x, mean)
    total = _reduced("reduce_sum", ops.mul(centred, centred), axes, keepdim) if axes else centred
    correction = 1 if correction is None else correction
    count = math.prod(x.shape[a] for a in axes) if axes else 1
    if isinstance(count, int):
        divisor = c.number(max(count - correction, 0), x.dtype)
    else:
        divisor = ops.max(
            c.cast(ops.sub(c.number(count, x.dtype), c.number(correction, x.dtype))), c.number(0, x.dtype)
        )
    variance = ops.div(total, divisor)
    if axes and not keepdim:
        mean = ops.reshape(mean, shape=list(variance.shape))
    return variance, mean


@rule("var.correction", opmath="whole")
def _var(c: Call, x: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> SymTensor:
    return _variance(c, x, dim, correction, keepdim)[0]


@rule("prims.var", opmath="whole")
def _prims_var(c: Call, x: Any, dim: Any = None, correction: Any = None, **_: Any) -> SymTensor:
    return _variance(c, x, dim, correction, False)[0]


@rule("var.dim", opmath="whole")
def _var_dim(c: Call, x: Any, dim: Any, unbiased: bool = True, keepdim: bool = False) -> SymTensor:
    return _variance(c, x, dim, 1 if unbiased else 0, keepdim)[0]


@rule("std.correction", opmath="whole")
def _std(c: Call, x: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> SymTensor:
    return root(c, _variance(c, x, dim, correction, keepdim)[0])


@rule("var_mean.correction", opmath="whole")
def _var_mean(c: Call, x: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    return _variance(c, x, dim, correction, keepdim)


@rule("std_mean.correction", opmath="whole")
def _std_mean(c: Call, x: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    variance, mean = _variance(c, x, dim, correction, keepdim)
    return root(c, variance), mean


def flat_at_zero(c: Call, x: SymTensor, function: Callable[[SymTensor], SymTensor]) -> SymTensor:
    """A function with f(0) = 0; torch's derivative there is 0, that of the formula infinite."""
    if not c.trains:
        return function(x)
    zero = ops.eq(x, c.number(0, x.dtype))
    return ops.select(zero, c.number(0, x.dtype), function(ops.select(zero, c.number(1, x.dtype), x)))


def root(c: Call, x: SymTensor) -> SymTensor:
    return flat_at_zero(c, x, ops.sqrt)


def norm(c: Call, x: SymTensor, p: float, total: Callable[[SymTensor], SymTensor]) -> SymTensor:
    """total(x^p)^(1/p) of magnitudes."""
    if p == 2:
        return root(c, total(ops.mul(x, x)))
    if p < 0:
        return ops.pow(total(ops.pow(x, c.number(p, x.dtype))), c.number(1 / p, x.dtype))
    powers = flat_at_zero(c, x, lambda x: ops.pow(x, c.number(p, x.dtype)))
    return flat_at_zero(c, total(powers), lambda x: ops.pow(x, c.number(1 / p, x.dtype)))


@rule("linalg_vector_norm", opmath="whole")
def _vector_norm(
    c: Call, x: Any, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> SymTensor:
    x = ops.abs(c.cast(x))
    whole = dim is None and keepdim
    if ord == math.inf:
        result = _reduced("reduce_max", x, dim, keepdim)
    elif ord == -math.inf:
        result = _reduced("reduce_min", x, dim, keepdim)
    elif ord == 0:
        nonzero = c.cast(ops.ne(x, c.number(0, x.dtype)))
        result = _reduced("reduce_sum", nonzero, dim, keepdim)
    elif ord == 1:
        result = _reduced("reduce_sum", x, dim, keepdim)
    else:
        result = norm(c, x, ord, lambda terms: _reduced("reduce_sum", terms, dim, keepdim))
    return ops.reshape(result, shape=c.shape) if whole else result


# --- running totals


@rule("cumsum")
def _cumsum(c: Call, x: Any, dim: int, **_: Any) -> SymTensor:
    x = c.cast(x)
    return ops.cumsum(x, axis=axis_of(dim, x.ndim)) if x.ndim else x


@rule("cumprod")
def _cumprod(c: Call, x: Any, dim: int, **_: Any) -> SymTensor:
    x = c.cast(x)
    return ops.cumprod(x, axis=axis_of(dim, x.ndim)) if x.ndim else x


@rule("softmax.int", "_softmax", "special_softmax")
def _softmax(c: Call, x: Any, dim: int, *_: Any, **__: Any) -> SymTensor:
    return _along(c, "softmax", x, dim)


@rule("log_softmax.int", "_log_softmax", "special_log_softmax")
def _log_softmax(c: Call, x: Any, dim: int, *_: Any, **__: Any) -> SymTensor:
    return _along(c, "log_softmax", x, dim)


@rule("_safe_softmax")
def _safe_softmax(c: Call, x: Any, dim: int, *_: Any, **__: Any) -> SymTensor:
    """softmax whose rows of only -inf give 0."""
    x = c.cast(x)
    axis = axis_of(dim, x.ndim)
    empty = ops.eq(ops.reduce_max(x, axes=[axis], keepdims=True), c.number(-math.inf, x.dtype))
    return ops.select(empty, c.number(0, x.dtype), _along(c, "softmax", x, dim))


def _along(c: Call, name: str, x: Any, dim: int) -> SymTensor:
    x = c.cast(x)
    if x.ndim == 0:
        return c.number(1.0 if name == "softmax" else 0.0, x.dtype)
    if not is_float(x.dtype):
        raise Decompose("softmax of integers")
    return getattr(ops, name)(x, axis=axis_of(dim, x.ndim))
