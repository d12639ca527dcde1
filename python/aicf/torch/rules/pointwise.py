"""Elementwise arithmetic and functions.

Operands are cast to the type in which torch computes, which is that of the result.
"""

from __future__ import annotations

import math
from typing import Any

from ... import ops
from ...symtensor import SymTensor
from ..call import Call
from ..types import is_float, is_int
from .table import rule

__all__: list[str] = []

_FLOAT_UNARY = (
    "exp expm1 log log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf sigmoid"
).split()


def _add_unary(name: str) -> None:
    def unary(c: Call, x: Any) -> SymTensor:
        return getattr(ops, name)(c.cast(x))

    rule(name, f"prims.{name}", f"special_{name}")(unary)


for _name in _FLOAT_UNARY:
    _add_unary(_name)


@rule("neg", "prims.neg")
def _neg(c: Call, x: Any) -> SymTensor:
    return ops.neg(c.cast(x))


@rule("abs", "prims.abs")
def _abs(c: Call, x: Any) -> SymTensor:
    return x if x.dtype in ("u8", "bool") else ops.abs(x)


@rule("sign", "sgn", "prims.sign")
def _sign(c: Call, x: Any) -> SymTensor:
    if x.dtype == "bool":
        return x
    sign = ops.sign(x)
    return ops.select(ops.is_nan(x), c.number(0, x.dtype), sign) if is_float(x.dtype) else sign


@rule("reciprocal", "prims.reciprocal")
def _reciprocal(c: Call, x: Any) -> SymTensor:
    return ops.div(c.number(1, c.dtype), c.cast(x))


def _add_rounding(name: str) -> None:
    def rounding(c: Call, x: Any) -> SymTensor:
        return getattr(ops, name)(x) if is_float(x.dtype) else x

    rule(name, f"prims.{name}")(rounding)


for _name in ("floor", "ceil", "trunc", "round"):
    _add_rounding(_name)


@rule("square")
def _square(c: Call, x: Any) -> SymTensor:
    x = c.cast(x)
    return ops.mul(x, x)


@rule("exp2", "prims.exp2", "special_exp2")
def _exp2(c: Call, x: Any) -> SymTensor:
    return ops.pow(c.number(2, c.dtype), c.cast(x))


@rule("log2", "prims.log2", opmath="whole")
def _log2(c: Call, x: Any) -> SymTensor:
    return ops.div(ops.log(c.cast(x)), c.number(math.log(2), c.dtype))


@rule("log10", "prims.log10", opmath="whole")
def _log10(c: Call, x: Any) -> SymTensor:
    return ops.div(ops.log(c.cast(x)), c.number(math.log(10), c.dtype))


# --- arithmetic


def _scaled(c: Call, y: Any, alpha: Any) -> SymTensor:
    y = c.cast(y)
    if alpha == 1:
        return y
    if c.dtype == "bool":
        return y if alpha else c.number(0, "bool")
    return ops.mul(y, c.number(alpha, c.dtype))


@rule("add.Tensor", "add.Scalar", "prims.add", opmath="numbers")
def _add(c: Call, x: Any, y: Any, alpha: Any = 1, **_: Any) -> SymTensor:
    return (ops.bit_or if c.dtype == "bool" else ops.add)(c.cast(x), _scaled(c, y, alpha))


@rule("sub.Tensor", "sub.Scalar", "prims.sub", opmath="numbers")
def _sub(c: Call, x: Any, y: Any, alpha: Any = 1, **_: Any) -> SymTensor:
    return ops.sub(c.cast(x), _scaled(c, y, alpha))


@rule("rsub.Tensor", "rsub.Scalar", opmath="numbers")
def _rsub(c: Call, x: Any, y: Any, alpha: Any = 1) -> SymTensor:
    return ops.sub(c.cast(y), _scaled(c, x, alpha))


@rule("mul.Tensor", "mul.Scalar", "prims.mul", opmath="numbers")
def _mul(c: Call, x: Any, y: Any) -> SymTensor:
    return (ops.bit_and if c.dtype == "bool" else ops.mul)(c.cast(x), c.cast(y))


@rule("div.Tensor", "div.Scalar", "true_divide.Tensor", "true_divide.Scalar", opmath="numbers")
def _div(c: Call, x: Any, y: Any) -> SymTensor:
    return ops.div(c.cast(x), c.cast(y))


@rule("prims.div", opmath="numbers")
def _prims_div(c: Call, x: Any, y: Any) -> SymTensor:
    return ops.div(c.cast(x), c.cast(y))


@rule("div.Tensor_mode", "div.Scalar_mode", opmath="whole")
def _div_mode(c: Call, x: Any, y: Any, rounding_mode: str | None = None) -> SymTensor:
    x, y = c.cast(x), c.cast(y)
    if rounding_mode is None:
        return ops.div(x, y)
    if rounding_mode == "floor":
        return _floor_divide(x, y)
    return ops.div(x, y) if is_int(c.dtype) else ops.trunc(ops.div(x, y))


@rule("floor_divide", "floor_divide.Scalar", opmath="whole")
def _floor_div(c: Call, x: Any, y: Any) -> SymTensor:
    return _floor_divide(c.cast(x), c.cast(y))


def _floor_divide(x: SymTensor, y: SymTensor) -> SymTensor:
    """floor(x / y) without the rounding of the quotient for floats: (x - x mod y) / y is whole; x / 0 is x /
    0.

    For integers x - x mod y may be out of range: the truncated quotient, less one where the two rests differ.
    """
    rest = ops.mod(x, y)
    if not is_float(x.dtype):
        return ops.sub(ops.div(x, y), ops.cast(ops.ne(rest, ops.rem(x, y)), dtype=x.dtype))
    whole = ops.round(ops.div(ops.sub(x, rest), y))
    quotient = ops.div(x, y)
    return ops.select(ops.is_nan(whole), ops.floor(quotient), whole)


@rule("remainder.Tensor", "remainder.Scalar", "remainder.Scalar_Tensor", "prims.remainder", opmath="numbers")
def _remainder(c: Call, x: Any, y: Any) -> SymTensor:
    return ops.mod(c.cast(x), c.cast(y))


@rule("fmod.Tensor", "fmod.Scalar", "prims.fmod", opmath="numbers")
def _fmod(c: Call, x: Any, y: Any) -> SymTensor:
    return ops.rem(c.cast(x), c.cast(y))


@rule("pow.Tensor_Tensor", "pow.Scalar", "prims.pow", "float_power.Tensor_Tensor", opmath="numbers")
def _pow(c: Call, x: Any, y: Any) -> SymTensor:
    return ops.pow(c.cast(x), c.cast(y))


@rule("pow.Tensor_Scalar", opmath="numbers")
def _pow_scalar(c: Call, x: Any, y: Any) -> SymTensor:
    x = c.cast(x)
    if y == 2:
        return ops.mul(x, x)
    if y == 3:
        return ops.mul(ops.mul(x, x), x)
    if y == 1:
        return x
    if y == 0.5 and is_float(x.dtype):
        return ops.sqrt(x)
    if y == -0.5 and is_float(x.dtype):
        return ops.rsqrt(x)
    return ops.pow(x, c.number(y, c.dtype))


@rule("atan2", "prims.atan2")
def _atan2(c: Call, y: Any, x: Any) -> SymTensor:
    return ops.atan2(c.cast(y), c.cast(x))


def _extremum(c: Call, x: Any, y: Any, largest: bool) -> SymTensor:
    x, y = c.cast(x), c.cast(y)
    if c.dtype == "bool":
        return (ops.bit_or if largest else ops.bit_and)(x, y)
    return (ops.max if largest else ops.min)(x, y)


@rule("maximum", "prims.maximum")
def _maximum(c: Call, x: Any, y: Any) -> SymTensor:
    return _extremum(c, x, y, True)


@rule("minimum", "prims.minimum")
def _minimum(c: Call, x: Any, y: Any) -> SymTensor:
    return _extremum(c, x, y, False)


def _number_extremum(c: Call, x: Any, y: Any, largest: bool) -> SymTensor:
    """fmax and fmin: of a number and a NaN the number."""
    x, y = c.cast(x), c.cast(y)
    result = _extremum(c, x, y, largest)
    if not is_float(c.dtype):
        return result
    return ops.select(ops.is_nan(x), y, ops.select(ops.is_nan(y), x, result))


@rule("prims.fma", opmath="whole")
def _fma(c: Call, x: Any, y: Any, z: Any) -> SymTensor:
    """x y + z; whether it is rounded once or twice is left open."""
    return ops.add(ops.mul(c.cast(x), c.cast(y)), c.cast(z))


@rule("fmax", "prims.fmax")
def _fmax(c: Call, x: Any, y: Any) -> SymTensor:
    return _number_extremum(c, x, y, True)


@rule("fmin", "prims.fmin")
def _fmin(c: Call, x: Any, y: Any) -> SymTensor:
    return _number_extremum(c, x, y, False)


@rule("clamp", "clamp.Tensor", "hardtanh")
def _clamp(c: Call, x: Any, low: Any = None, high: Any = None) -> SymTensor:
    """NaN bounds give NaN, and the upper bound wins over a larger lower one."""
    if c.node.target._opname == "hardtanh":
        low, high = (-1 if low is None else low), (1 if high is None else high)
    x = c.cast(x)
    if low is not None:
        x = _extremum(c, x, low, True)
    return x if high is None else _extremum(c, x, high, False)


@rule("clamp_min", "clamp_min.Tensor")
def _clamp_min(c: Call, x: Any, low: Any) -> SymTensor:
    return _extremum(c, x, low, True)


@rule("clamp_max", "clamp_max.Tensor")
def _clamp_max(c: Call, x: Any, high: Any) -> SymTensor:
    return _extremum(c, x, high, False)
