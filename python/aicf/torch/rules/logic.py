"""Comparisons, logic, bits, and what is chosen by them."""

from __future__ import annotations

import math
from typing import Any

from ... import ops
from ...symtensor import SymTensor
from ..call import Call
from ..types import is_float
from .table import rule

__all__: list[str] = []

_COMPARISONS = "eq ne lt le gt ge".split()


def _comparison_operands(c: Call, x: Any, y: Any) -> tuple[SymTensor, SymTensor]:
    dtype = c.common(*c.fakes[:2])
    return c.cast(x, dtype), c.cast(y, dtype)


def _add_comparison(name: str) -> None:
    def compare(c: Call, x: Any, y: Any) -> SymTensor:
        x, y = _comparison_operands(c, x, y)
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
