"""torch's dtypes and symbolic sizes as ours."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import torch
from torch.utils._sympy.functions import FloorDiv
from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

from .._aicf import Dim, dim_max, dim_min
from .._dtypes import is_float, is_half, is_int
from ..errors import make_error

__all__ = [
    "DATA_DECIDES",
    "DTYPES",
    "GRADIENTS",
    "TORCH_DTYPES",
    "Symbols",
    "dtype_name",
    "is_float",
    "is_half",
    "is_int",
    "require_dense",
]

# Metadata: there if a program computes gradients, or what gradients are computed from later.
GRADIENTS = "aicf.gradients"

# What to write where the values of a tensor decide on shapes or branches.
DATA_DECIDES = (
    "compute both sides and choose with torch.where, or branch with torch.cond; masks instead of nonzero, "
    "item() and boolean indexing"
    '; or torch.compile(model, backend="aicf"), which runs the line in Python between two compiled graphs'
)

DTYPES: dict[torch.dtype, str] = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.bool: "bool",
}
TORCH_DTYPES = {name: dtype for dtype, name in DTYPES.items()}


def dtype_name(dtype: torch.dtype) -> str:
    if dtype not in DTYPES:
        raise make_error(
            "unsupported_dtype",
            "the model uses a data type that AICF does not have",
            value=str(dtype),
            expected=", ".join(str(known) for known in DTYPES),
            remedy="convert the tensor to one of these types inside the model"
            + ("; write a complex number as its real and imaginary parts" if dtype.is_complex else ""),
        )
    return DTYPES[dtype]


def require_dense(tensor: torch.Tensor, name: str) -> None:
    """Refuses what has no memory of its own, row after row."""
    if tensor.is_nested or tensor.is_quantized:
        raise make_error(
            "unsupported_dtype",
            f"{'nested' if tensor.is_nested else 'quantized'} tensors are not supported",
            value=name,
            remedy="call .to_padded_tensor(0.0) first" if tensor.is_nested else "call .dequantize() first",
        )
    if tensor.layout != torch.strided:
        raise make_error(
            "unsupported_dtype",
            "sparse tensors are not supported",
            value=name,
            actual=str(tensor.layout),
            remedy="call .to_dense() first",
        )
    if tensor.device.type == "meta":
        raise make_error(
            "unsupported_dtype",
            "a tensor of the meta device has no values",
            value=name,
            remedy="load the weights, or call .to_empty(device='cpu') and initialise them",
        )


class Symbols:
    """Names, or values, of torch's size symbols, and ranges of the names. An expression over them becomes a
    number or a `Dim`.
    """

    def __init__(
        self,
        names: Mapping[str, str] | None = None,
        values: Mapping[str, int] | None = None,
        ranges: Mapping[str, tuple[int, int]] | None = None,
    ) -> None:
        self.names = dict(names or {})
        self.values = dict(values or {})
        self.ranges = dict(ranges or {})
        self._known: dict[Any, int | Dim] = {}

    def size(self, value: Any) -> int | Dim:
        if isinstance(value, int):
            return int(value)
        if isinstance(value, torch.SymInt):
            value = value.node.expr
        if value not in self._known:
            self._known[value] = self._convert(value)
        return self._known[value]

    def real(self, value: torch.SymFloat) -> Any:
        """A number if all sizes in it have values, else torch's symbol."""
        expr = value.node.expr
        known = {s: self.values[str(s)] for s in expr.free_symbols if str(s) in self.values}
        return float(expr.subs(known)) if len(known) == len(expr.free_symbols) else value

    def shape(self, sizes: Any) -> list[int | Dim]:
        return [self.size(size) for size in sizes]

    def _convert(self, expr: Any) -> int | Dim:
        if expr.is_Integer:
            return int(expr)
        if expr.is_Symbol:
            return self._symbol(str(expr))
        if type(expr).__name__ in ("TruncToInt", "FloorToInt"):
            expr = _exact_floor(expr)
        function = _FUNCTIONS.get(type(expr).__name__)
        if function is None:
            raise make_error(
                "size_not_static",
                "a size is computed in a way that AICF cannot follow",
                value=str(expr),
                expected="sums, products, // and %, max and min of named sizes",
            )
        arguments = expr.args
        if type(expr).__name__ in ("Max", "Min"):
            arguments = self._deciding(list(arguments), type(expr).__name__ == "Max")
        return function(*(self.size(arg) for arg in arguments))

    def _deciding(self, arguments: list[Any], largest: bool) -> list[Any]:
        """Those of a maximum, or minimum, that no other one beats at every size of the ranges."""
        spans = {}
        for symbol in set().union(*(argument.free_symbols for argument in arguments)):
            span = self.ranges.get(self.names.get(str(symbol), str(symbol)))
            if span is not None:
                spans[symbol] = ValueRanges(*span)
        for argument in list(arguments):
            others = [other for other in arguments if other is not argument]
            gaps = [bound_sympy(other - argument if largest else argument - other, spans) for other in others]
            if any(gap.lower >= 0 for gap in gaps):
                arguments = others
        return arguments

    def _symbol(self, name: str) -> int | Dim:
        if name in self.values:
            return self.values[name]
        if name.startswith(("u", "zuf", "zf")):
            raise make_error(
                "size_not_static",
                "a size depends on the values of a tensor",
                value=name,
                remedy=DATA_DECIDES,
            )
        return Dim(self.names.get(name, name))


def _exact_floor(expr: Any) -> Any:
    """TruncToInt(2.5 * ToFloat(s)) is 5 s // 2, no real number."""
    ratio, rest = Fraction(1), expr.args[0]
    if type(rest).__name__ == "Mul" and len(rest.args) == 2 and rest.args[0].is_Float:
        ratio, rest = Fraction(float(rest.args[0])), rest.args[1]
    if type(rest).__name__ == "IntTrueDiv" and rest.args[1].is_Integer:
        ratio, rest = ratio / int(rest.args[1]), rest.args[0]
    elif type(rest).__name__ == "ToFloat":
        rest = rest.args[0]
    if not rest.is_integer or max(ratio.numerator, ratio.denominator) > 2**20:
        return expr
    return FloorDiv(rest * ratio.numerator, ratio.denominator)


def _power(base: Any, exponent: Any) -> Any:
    if not isinstance(exponent, int) or exponent < 0:
        raise make_error(
            "size_not_static", "a size is a power that is no polynomial", value=f"{base}**{exponent}"
        )
    result: Any = 1
    for _ in range(exponent):
        result = result * base
    return result


def _fold(function: Any) -> Any:
    def apply(first: Any, *rest: Any) -> Any:
        for value in rest:
            first = function(first, value)
        return first

    return apply


_FUNCTIONS: dict[str, Any] = {
    "Add": _fold(lambda a, b: a + b),
    "Mul": _fold(lambda a, b: a * b),
    "Pow": _power,
    "PowByNatural": _power,
    "FloorDiv": lambda a, b: a // b,
    "CleanDiv": lambda a, b: a // b,
    "CeilDiv": lambda a, b: -(-a // b),
    "Mod": lambda a, b: a % b,
    "PythonMod": lambda a, b: a % b,
    "Max": _fold(dim_max),
    "Min": _fold(dim_min),
    "Identity": lambda a: a,
    "ToFloat": lambda a: a,
}
