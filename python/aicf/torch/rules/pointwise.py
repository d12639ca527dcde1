"""Elementwise ops. Operands are cast to the type in which torch computes, which is that of the result except
for
comparisons."""

from __future__ import annotations

import math
from typing import Any

from ... import ops
from ...symtensor import SymTensor
from ..call import Call, Decompose
from ..types import is_float, is_int
from .table import rule

__all__ = ["comparison_operands"]

_FLOAT_UNARY = (
    "exp expm1 log log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf sigmoid"
).split()
_COMPARISONS = "eq ne lt le gt ge".split()


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


@rule("log2", "prims.log2")
def _log2(c: Call, x: Any) -> SymTensor:
    return ops.div(ops.log(c.cast(x)), c.number(math.log(2), c.dtype))


@rule("log10", "prims.log10")
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


@rule("add.Tensor", "add.Scalar", "prims.add")
def _add(c: Call, x: Any, y: Any, alpha: Any = 1, **_: Any) -> SymTensor:
    return (ops.bit_or if c.dtype == "bool" else ops.add)(c.cast(x), _scaled(c, y, alpha))


@rule("sub.Tensor", "sub.Scalar", "prims.sub")
def _sub(c: Call, x: Any, y: Any, alpha: Any = 1, **_: Any) -> SymTensor:
    return ops.sub(c.cast(x), _scaled(c, y, alpha))


@rule("rsub.Tensor", "rsub.Scalar")
def _rsub(c: Call, x: Any, y: Any, alpha: Any = 1) -> SymTensor:
    return ops.sub(c.cast(y), _scaled(c, x, alpha))


@rule("mul.Tensor", "mul.Scalar", "prims.mul")
def _mul(c: Call, x: Any, y: Any) -> SymTensor:
    return (ops.bit_and if c.dtype == "bool" else ops.mul)(c.cast(x), c.cast(y))


@rule("div.Tensor", "div.Scalar", "true_divide.Tensor", "true_divide.Scalar")
def _div(c: Call, x: Any, y: Any) -> SymTensor:
    return ops.div(c.cast(x), c.cast(y))


@rule("prims.div")
def _prims_div(c: Call, x: Any, y: Any) -> SymTensor:
    return ops.div(c.cast(x), c.cast(y))


@rule("div.Tensor_mode", "div.Scalar_mode")
def _div_mode(c: Call, x: Any, y: Any, rounding_mode: str | None = None) -> SymTensor:
    x, y = c.cast(x), c.cast(y)
    if rounding_mode is None:
        return ops.div(x, y)
    if rounding_mode == "floor":
        return _floor_divide(x, y)
    return ops.div(x, y) if is_int(c.dtype) else ops.trunc(ops.div(x, y))


@rule("floor_divide", "floor_divide.Scalar")
def _floor_div(c: Call, x: Any, y: Any) -> SymTensor:
    return _floor_divide(c.cast(x), c.cast(y))


def _floor_divide(x: SymTensor, y: SymTensor) -> SymTensor:
    """floor(x / y) without the rounding of the quotient for floats: (x - x mod y) / y is whole; x / 0 is x /
    0.
    """
    rest = ops.mod(x, y)
    if not is_float(x.dtype):
        return ops.div(ops.sub(x, rest), y)
    whole = ops.round(ops.div(ops.sub(x, rest), y))
    quotient = ops.div(x, y)
    return ops.select(ops.is_nan(whole), ops.floor(quotient), whole)


@rule("remainder.Tensor", "remainder.Scalar", "remainder.Scalar_Tensor", "prims.remainder")
def _remainder(c: Call, x: Any, y: Any) -> SymTensor:
    return ops.mod(c.cast(x), c.cast(y))


@rule("fmod.Tensor", "fmod.Scalar", "prims.fmod")
def _fmod(c: Call, x: Any, y: Any) -> SymTensor:
    return ops.rem(c.cast(x), c.cast(y))


@rule("pow.Tensor_Tensor", "pow.Scalar", "prims.pow", "float_power.Tensor_Tensor")
def _pow(c: Call, x: Any, y: Any) -> SymTensor:
    return ops.pow(c.cast(x), c.cast(y))


@rule("pow.Tensor_Scalar")
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


@rule("prims.fma")
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


# --- comparisons and logic


def comparison_operands(c: Call, x: Any, y: Any) -> tuple[SymTensor, SymTensor]:
    dtype = c.common(*c.fakes[:2])
    return c.cast(x, dtype), c.cast(y, dtype)


def _add_comparison(name: str) -> None:
    def compare(c: Call, x: Any, y: Any) -> SymTensor:
        x, y = comparison_operands(c, x, y)
        if x.dtype == "bool" and name not in ("eq", "ne"):
            x, y = ops.cast(x, dtype="u8"), ops.cast(y, dtype="u8")
        return getattr(ops, name)(x, y)

    rule(f"{name}.Tensor", f"{name}.Scalar", f"prims.{name}")(compare)


for _name in _COMPARISONS:
    _add_comparison(_name)


@rule("logical_not")
def _logical_not(c: Call, x: Any) -> SymTensor:
    return ops.logical_not(c.cast(x, "bool"))


def _add_logical(name: str, ours: str) -> None:
    def logical(c: Call, x: Any, y: Any) -> SymTensor:
        return getattr(ops, ours)(c.cast(x, "bool"), c.cast(y, "bool"))

    rule(name)(logical)


def _add_bitwise(name: str, ours: str, *more: str) -> None:
    def bitwise(c: Call, x: Any, y: Any) -> SymTensor:
        return getattr(ops, ours)(c.cast(x), c.cast(y))

    rule(f"{name}.Tensor", f"{name}.Scalar", f"{name}.Scalar_Tensor", f"prims.{name}", *more)(bitwise)


for _name in ("and", "or", "xor"):
    _add_logical(f"logical_{_name}", f"bit_{_name}")
    _add_bitwise(f"bitwise_{_name}", f"bit_{_name}", f"__{_name}__.Tensor", f"__{_name}__.Scalar")


@rule("bitwise_not", "prims.bitwise_not")
def _bitwise_not(c: Call, x: Any) -> SymTensor:
    return ops.logical_not(x) if x.dtype == "bool" else ops.bit_not(x)


_SHIFTS = ("{0}.Tensor", "{0}.Tensor_Scalar", "{0}.Scalar_Tensor")


@rule(
    *(s.format("bitwise_left_shift") for s in _SHIFTS),
    "__lshift__.Tensor",
    "__lshift__.Scalar",
    "prims.shift_left",
)
def _shift_left(c: Call, x: Any, y: Any) -> SymTensor:
    return ops.shift_left(c.cast(x), c.cast(y))


@rule(
    *(s.format("bitwise_right_shift") for s in _SHIFTS),
    "__rshift__.Tensor",
    "__rshift__.Scalar",
    "prims.shift_right_arithmetic",
)
def _shift_right(c: Call, x: Any, y: Any) -> SymTensor:
    return ops.shift_right(c.cast(x), c.cast(y))


@rule("isnan")
def _isnan(c: Call, x: Any) -> SymTensor:
    return ops.is_nan(x) if is_float(x.dtype) else c.full(c.shape, 0, "bool")


@rule("isinf")
def _isinf(c: Call, x: Any) -> SymTensor:
    return ops.is_inf(x) if is_float(x.dtype) else c.full(c.shape, 0, "bool")


@rule("isfinite", "prims.isfinite")
def _isfinite(c: Call, x: Any) -> SymTensor:
    if not is_float(x.dtype):
        return c.full(c.shape, 1, "bool")
    return ops.lt(ops.abs(x), c.number(math.inf, x.dtype))


@rule("signbit", "prims.signbit")
def _signbit(c: Call, x: Any) -> SymTensor:
    """The sign of zero shows in 1 / x; that of a NaN is not looked at."""
    if x.dtype in ("u8", "bool"):
        return c.full(c.shape, 0, "bool")
    if not is_float(x.dtype):
        return ops.lt(x, c.number(0, x.dtype))
    return ops.lt(_signed_unit(c, x), c.number(0, x.dtype))


def _signed_unit(c: Call, x: SymTensor) -> SymTensor:
    zero = c.number(0, x.dtype)
    return ops.select(ops.eq(x, zero), ops.div(c.number(1, x.dtype), x), x)


@rule("copysign.Tensor", "copysign.Scalar", "prims.copysign")
def _copysign(c: Call, x: Any, y: Any) -> SymTensor:
    x, y = ops.abs(c.cast(x)), c.cast(y)
    return ops.select(ops.lt(_signed_unit(c, y), c.number(0, c.dtype)), ops.neg(x), x)


@rule("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar", "prims.where")
def _where(c: Call, condition: Any, x: Any, y: Any) -> SymTensor:
    return ops.select(c.cast(condition, "bool"), c.cast(x), c.cast(y))


@rule("masked_fill.Scalar", "masked_fill.Tensor")
def _masked_fill(c: Call, x: Any, mask: Any, value: Any) -> SymTensor:
    return ops.select(c.cast(mask, "bool"), c.cast(value), x)


# --- conversions and copies


@rule(
    "to.dtype",
    "to.dtype_layout",
    "to.device",
    "to.other",
    "_to_copy",
    "type_as",
    "prims.convert_element_type",
    "prims.device_put",
    "_to_cpu",
)
def _to(c: Call, x: Any, *_: Any, **__: Any) -> SymTensor:
    return c.cast(x)


@rule(
    "clone",
    "detach",
    "alias",
    "contiguous",
    "lift_fresh",
    "lift_fresh_copy",
    "lift",
    "positive",
    "resolve_conj",
    "resolve_neg",
    "detach_copy",
    "alias_copy",
    "prims.clone",
    "prims.view_of",
    "prims.copy_strided",
    "real",
    "conj",
    "_conj",
    "_conj_physical",
    "conj_physical",
)
def _same(c: Call, x: Any, *_: Any, **__: Any) -> SymTensor:
    return x


@rule("copy")
def _copy(c: Call, x: Any, source: Any, non_blocking: bool = False) -> SymTensor:
    return ops.broadcast_to(c.cast(source), shape=c.shape)


# --- activations


def _add_activation(name: str, ours: str) -> None:
    def activation(c: Call, x: Any) -> SymTensor:
        return getattr(ops, ours)(c.cast(x))

    rule(name)(activation)


for _name in ("relu", "silu"):
    _add_activation(_name, _name)


@rule("gelu")
def _gelu(c: Call, x: Any, approximate: str = "none") -> SymTensor:
    return ops.gelu(x, approximate=approximate)


@rule("leaky_relu")
def _leaky_relu(c: Call, x: Any, negative_slope: float = 0.01) -> SymTensor:
    return ops.leaky_relu(x, alpha=float(negative_slope))


@rule("elu")
def _elu(c: Call, x: Any, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> SymTensor:
    if scale != 1 or input_scale != 1:
        raise Decompose("elu with a scale")
    return ops.elu(x, alpha=float(alpha))


@rule("softplus")
def _softplus(c: Call, x: Any, beta: float = 1.0, threshold: float = 20.0) -> SymTensor:
    if beta != 1 or threshold < 17:  # from 17 on log1p(e^-x) is below half an ulp of x
        raise Decompose("softplus with beta or a low threshold")
    return ops.softplus(x)
