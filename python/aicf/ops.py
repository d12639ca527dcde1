"""Every op of the IR as a function on traced values. Made by scripts/generate.py from ops.def.

Operands are traced values, params, real arrays (they become constants) or numbers. Negative axes count
from the end. Errors: bad_operand_count, bad_dtype, bad_attribute, bad_shape. docs/ops.md is the same list as
a table.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from ._aicf import Dim
from ._apply import apply
from .symtensor import SymTensor

__all__ = [
    "abs",
    "acos",
    "acosh",
    "adamw_step",
    "add",
    "argmax",
    "argmin",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "attention",
    "attention_backward",
    "attention_lse",
    "avg_pool",
    "batch_norm",
    "batch_norm_train",
    "bit_and",
    "bit_not",
    "bit_or",
    "bit_xor",
    "broadcast_to",
    "cast",
    "ceil",
    "clamp",
    "concat",
    "conv",
    "conv_transpose",
    "conv_weight_gradient",
    "cos",
    "cosh",
    "cross_entropy",
    "cumprod",
    "cumsum",
    "custom",
    "div",
    "elu",
    "eq",
    "erf",
    "exp",
    "expm1",
    "floor",
    "gather",
    "gather_elements",
    "gather_nd",
    "ge",
    "gelu",
    "group_norm",
    "gt",
    "iota",
    "is_inf",
    "is_nan",
    "layer_norm",
    "le",
    "leaky_relu",
    "linear",
    "linear_cross_entropy",
    "linear_cross_entropy_backward",
    "log",
    "log1p",
    "log_softmax",
    "logical_not",
    "lt",
    "matmul",
    "max",
    "max_pool",
    "max_pool_indices",
    "min",
    "mod",
    "mul",
    "ne",
    "neg",
    "one_hot",
    "pad",
    "pow",
    "random_bits",
    "recurrent",
    "recurrent_backward",
    "reduce_logsumexp",
    "reduce_max",
    "reduce_mean",
    "reduce_min",
    "reduce_prod",
    "reduce_sum",
    "relu",
    "rem",
    "reshape",
    "reverse",
    "rms_norm",
    "rope",
    "rope_append",
    "round",
    "round_tf32",
    "rsqrt",
    "scatter_elements",
    "scatter_nd",
    "select",
    "shift_left",
    "shift_right",
    "sigmoid",
    "sign",
    "silu",
    "sin",
    "sinh",
    "size_of",
    "slice",
    "softmax",
    "softplus",
    "sort",
    "sqrt",
    "stop_gradient",
    "sub",
    "tan",
    "tanh",
    "top_k",
    "transpose",
    "trunc",
]

TensorLike = Any


def neg(x: TensorLike) -> SymTensor:
    """-x.

    Dtypes: x: T → T; T: number.
    Shape: as the operand.
    """
    return apply("neg", [x], {})[0]


def abs(x: TensorLike) -> SymTensor:
    """|x|; the lowest integer stays itself.

    Dtypes: x: T → T; T: number.
    Shape: as the operand.
    """
    return apply("abs", [x], {})[0]


def sign(x: TensorLike) -> SymTensor:
    """-1, 0 or 1; sign(0) = 0, sign(NaN) = NaN.

    Dtypes: x: T → T; T: number.
    Shape: as the operand.
    """
    return apply("sign", [x], {})[0]


def exp(x: TensorLike) -> SymTensor:
    """e^x.

    Dtypes: x: T → T; T: float.
    Shape: as the operand.
    """
    return apply("exp", [x], {})[0]


def expm1(x: TensorLike) -> SymTensor:
    """e^x - 1 without cancellation.

    Dtypes: x: T → T; T: float.
    Shape: as the operand.
    """
    return apply("expm1", [x], {})[0]


def log(x: TensorLike) -> SymTensor:
    """natural logarithm.

    Dtypes: x: T → T; T: float.
    Shape: as the operand.
    """
    return apply("log", [x], {})[0]


def log1p(x: TensorLike) -> SymTensor:
    """log(1 + x) without cancellation.

    Dtypes: x: T → T; T: float.
    Shape: as the operand.
    """
    return apply("log1p", [x], {})[0]


def sqrt(x: TensorLike) -> SymTensor:
    """square root, correctly rounded.

    Dtypes: x: T → T; T: float.
    Shape: as the operand.
    """
    return apply("sqrt", [x], {})[0]


def rsqrt(x: TensorLike) -> SymTensor:
    """1 / sqrt(x).

    Dtypes: x: T → T; T: float.
    Shape: as the operand.
    """
    return apply("rsqrt", [x], {})[0]


def sin(x: TensorLike) -> SymTensor:
    """sine, x in radians.

    Dtypes: x: T → T; T: float.
    Shape: as the operand.
    """
    return apply("sin", [x], {})[0]


def cos(x: TensorLike) -> SymTensor:
    """cosine, x in radians.

    Dtypes: x: T → T; T: float.
    Shape: as the operand.
    """
    return apply("cos", [x], {})[0]


def tan(x: TensorLike) -> SymTensor:
    """tangent, x in radians.

    Dtypes: x: T → T; T: float.
    Shape: as the operand.
    """
    return apply("tan", [x], {})[0]


def asin(x: TensorLike) -> SymTensor:
    """inverse sine.

    Dtypes: x: T → T; T: float.
    Shape: as the operand.
    """
    return apply("asin", [x], {})[0]


def acos(x: TensorLike) -> SymTensor:
    """inverse cosine.

    Dtypes: x: T → T; T: float.
    Shape: as the operand.
    """
    return apply("acos", [x], {})[0]


def atan(x: TensorLike) -> SymTensor:
    """inverse tangent.

    Dtypes: x: T → T; T: float.
    Shape: as the operand.
    """
    return apply("atan", [x], {})[0]


def sinh(x: TensorLike) -> SymTensor:
    """hyperbolic sine.

    Dtypes: x: T → T; T: float.
    Shape: as the operand.
    """
    return apply("sinh", [x], {})[0]


def cosh(x: TensorLike) -> SymTensor:
    """hyperbolic cosine.

    Dtypes: x: T → T; T: float.
    Shape: as the operand.
    """
    return apply("cosh", [x], {})[0]


def tanh(x: TensorLike) -> SymTensor:
    """hyperbolic tangent.

    Dtypes: x: T → T; T: float.
    Shape: as the operand.
    """
    return apply("tanh", [x], {})[0]


def asinh(x: TensorLike) -> SymTensor:
    """inverse hyperbolic sine.

    Dtypes: x: T → T; T: float.
    Shape: as the operand.
    """
    return apply("asinh", [x], {})[0]


def acosh(x: TensorLike) -> SymTensor:
    """inverse hyperbolic cosine.

    Dtypes: x: T → T; T: float.
    Shape: as the operand.
    """
    return apply("acosh", [x], {})[0]


def atanh(x: TensorLike) -> SymTensor:
    """inverse hyperbolic tangent.

    Dtypes: x: T → T; T: float.
    Shape: as the operand.
    """
    return apply("atanh", [x], {})[0]


def erf(x: TensorLike) -> SymTensor:
    """error function.

    Dtypes: x: T → T; T: float.
    Shape: as the operand.
    """
    return apply("erf", [x], {})[0]


def floor(x: TensorLike) -> SymTensor:
    """round to minus infinity.

    Dtypes: x: T → T; T: float.
    Shape: as the operand.
    """
    return apply("floor", [x], {})[0]


def ceil(x: TensorLike) -> SymTensor:
    """round to plus infinity.

    Dtypes: x: T → T; T: float.
    Shape: as the operand.
    """
    return apply("ceil", [x], {})[0]


def trunc(x: TensorLike) -> SymTensor:
    """round toward zero.

    Dtypes: x: T → T; T: float.
    Shape: as the operand.
    """
    return apply("trunc", [x], {})[0]


def round(x: TensorLike) -> SymTensor:
    """round to nearest, ties to even.

    Dtypes: x: T → T; T: float.
    Shape: as the operand.
    """
    return apply("round", [x], {})[0]


def round_tf32(x: TensorLike) -> SymTensor:
    """x with 10 bits after the leading one, ties away from zero: as tensor cores multiply f32 in tf32.

    Dtypes: x: T → T; T: float.
    Shape: as the operand.
    """
    return apply("round_tf32", [x], {})[0]


def is_nan(x: TensorLike) -> SymTensor:
    """x is NaN.

    Dtypes: x: T → bool; T: float.
    Shape: as the operand.
    """
    return apply("is_nan", [x], {})[0]


def is_inf(x: TensorLike, *, positive: bool = True, negative: bool = True) -> SymTensor:
    """x is an infinity of an enabled sign.

    Dtypes: x: T → bool; T: float.
    Shape: as the operand.
    """
    return apply("is_inf", [x], {"positive": positive, "negative": negative})[0]


def logical_not(x: TensorLike) -> SymTensor:
    """not x.

    Dtypes: x: bool → bool.
    Shape: as the operand.
    """
    return apply("logical_not", [x], {})[0]


def bit_not(x: TensorLike) -> SymTensor:
    """~x.

    Dtypes: x: T → T; T: integer.
    Shape: as the operand.
    """
    return apply("bit_not", [x], {})[0]


def cast(x: TensorLike, *, dtype: str) -> SymTensor:
    """convert: float to float rounds to nearest even; float to integer truncates toward zero, out-of-range
    and NaN saturate to the nearest bound and 0; integer to integer wraps; to bool is x != 0.

    Dtypes: x: T → the attribute dtype; T: any.
    Shape: as the operand.
    """
    return apply("cast", [x], {"dtype": dtype})[0]


def add(x: TensorLike, y: TensorLike) -> SymTensor:
    """x + y.

    Dtypes: x: T, y: T → T; T: number.
    Shape: operands broadcast as in numpy.
    """
    return apply("add", [x, y], {})[0]


def sub(x: TensorLike, y: TensorLike) -> SymTensor:
    """x - y.

    Dtypes: x: T, y: T → T; T: number.
    Shape: operands broadcast as in numpy.
    """
    return apply("sub", [x, y], {})[0]


def mul(x: TensorLike, y: TensorLike) -> SymTensor:
    """x * y.

    Dtypes: x: T, y: T → T; T: number.
    Shape: operands broadcast as in numpy.
    """
    return apply("mul", [x, y], {})[0]


def div(x: TensorLike, y: TensorLike) -> SymTensor:
    """x / y; integers truncate toward zero.

    Dtypes: x: T, y: T → T; T: number.
    Shape: operands broadcast as in numpy.
    """
    return apply("div", [x, y], {})[0]


def rem(x: TensorLike, y: TensorLike) -> SymTensor:
    """remainder with the sign of x (C fmod); integer x rem 0 = 0.

    Dtypes: x: T, y: T → T; T: number.
    Shape: operands broadcast as in numpy.
    """
    return apply("rem", [x, y], {})[0]


def mod(x: TensorLike, y: TensorLike) -> SymTensor:
    """remainder with the sign of y (Python %); integer x mod 0 = 0.

    Dtypes: x: T, y: T → T; T: number.
    Shape: operands broadcast as in numpy.
    """
    return apply("mod", [x, y], {})[0]


def pow(x: TensorLike, y: TensorLike) -> SymTensor:
    """x^y; for integers a negative exponent gives 1/x^|y| truncated toward zero (0 unless x is 1 or -1).

    Dtypes: x: T, y: T → T; T: number.
    Shape: operands broadcast as in numpy.
    """
    return apply("pow", [x, y], {})[0]


def atan2(y: TensorLike, x: TensorLike) -> SymTensor:
    """angle of the point (x, y).

    Dtypes: y: T, x: T → T; T: float.
    Shape: operands broadcast as in numpy.
    """
    return apply("atan2", [y, x], {})[0]


def max(x: TensorLike, y: TensorLike) -> SymTensor:
    """larger of x and y; NaN if either is.

    Dtypes: x: T, y: T → T; T: number.
    Shape: operands broadcast as in numpy.
    """
    return apply("max", [x, y], {})[0]


def min(x: TensorLike, y: TensorLike) -> SymTensor:
    """smaller of x and y; NaN if either is.

    Dtypes: x: T, y: T → T; T: number.
    Shape: operands broadcast as in numpy.
    """
    return apply("min", [x, y], {})[0]


def bit_and(x: TensorLike, y: TensorLike) -> SymTensor:
    """x & y.

    Dtypes: x: T, y: T → T; T: integer_or_bool.
    Shape: operands broadcast as in numpy.
    """
    return apply("bit_and", [x, y], {})[0]


def bit_or(x: TensorLike, y: TensorLike) -> SymTensor:
    """x | y.

    Dtypes: x: T, y: T → T; T: integer_or_bool.
    Shape: operands broadcast as in numpy.
    """
    return apply("bit_or", [x, y], {})[0]


def bit_xor(x: TensorLike, y: TensorLike) -> SymTensor:
    """x ^ y.

    Dtypes: x: T, y: T → T; T: integer_or_bool.
    Shape: operands broadcast as in numpy.
    """
    return apply("bit_xor", [x, y], {})[0]


def shift_left(x: TensorLike, y: TensorLike) -> SymTensor:
    """x << y; 0 if y >= bits or y < 0.

    Dtypes: x: T, y: T → T; T: integer.
    Shape: operands broadcast as in numpy.
    """
    return apply("shift_left", [x, y], {})[0]


def shift_right(x: TensorLike, y: TensorLike) -> SymTensor:
    """x >> y, arithmetic for signed types; the sign fill (or 0) if y >= bits or y < 0.

    Dtypes: x: T, y: T → T; T: integer.
    Shape: operands broadcast as in numpy.
    """
    return apply("shift_right", [x, y], {})[0]


def eq(x: TensorLike, y: TensorLike) -> SymTensor:
    """x == y.

    Dtypes: x: T, y: T → bool; T: any.
    Shape: operands broadcast as in numpy.
    """
    return apply("eq", [x, y], {})[0]


def ne(x: TensorLike, y: TensorLike) -> SymTensor:
    """x != y.

    Dtypes: x: T, y: T → bool; T: any.
    Shape: operands broadcast as in numpy.
    """
    return apply("ne", [x, y], {})[0]


def lt(x: TensorLike, y: TensorLike) -> SymTensor:
    """x < y.

    Dtypes: x: T, y: T → bool; T: number.
    Shape: operands broadcast as in numpy.
    """
    return apply("lt", [x, y], {})[0]


def le(x: TensorLike, y: TensorLike) -> SymTensor:
    """x <= y.

    Dtypes: x: T, y: T → bool; T: number.
    Shape: operands broadcast as in numpy.
    """
    return apply("le", [x, y], {})[0]


def gt(x: TensorLike, y: TensorLike) -> SymTensor:
    """x > y.

    Dtypes: x: T, y: T → bool; T: number.
    Shape: operands broadcast as in numpy.
    """
    return apply("gt", [x, y], {})[0]


def ge(x: TensorLike, y: TensorLike) -> SymTensor:
    """x >= y.

    Dtypes: x: T, y: T → bool; T: number.
    Shape: operands broadcast as in numpy.
    """
    return apply("ge", [x, y], {})[0]


def select(condition: TensorLike, x: TensorLike, y: TensorLike) -> SymTensor:
    """x where condition, else y.

    Dtypes: condition: bool, x: T, y: T → T; T: any.
    Shape: operands broadcast as in numpy.
    """
    return apply("select", [condition, x, y], {})[0]


def reshape(x: TensorLike, *, shape: Sequence[int | str | Dim]) -> SymTensor:
    """same elements in row-major order, other sizes.

    Dtypes: x: T → T; T: any.
    Shape: rule reshape.
    """
    return apply("reshape", [x], {"shape": shape})[0]


def transpose(x: TensorLike, *, perm: Sequence[int]) -> SymTensor:
    """result axis i is axis perm[i] of x.

    Dtypes: x: T → T; T: any.
    Shape: rule transpose.
    """
    return apply("transpose", [x], {"perm": perm})[0]


def broadcast_to(x: TensorLike, *, shape: Sequence[int | str | Dim]) -> SymTensor:
    """numpy broadcast_to.

    Dtypes: x: T → T; T: any.
    Shape: rule broadcast_to.
    """
    return apply("broadcast_to", [x], {"shape": shape})[0]


def slice(
    x: TensorLike,
    *,
    starts: Sequence[int | str | Dim],
    limits: Sequence[int | str | Dim],
    steps: Sequence[int],
) -> SymTensor:
    """x[starts:limits:steps], one of each per axis; 0 <= start <= limit <= size, steps > 0.

    Dtypes: x: T → T; T: any.
    Shape: rule slice.
    """
    return apply("slice", [x], {"starts": starts, "limits": limits, "steps": steps})[0]


def reverse(x: TensorLike, *, axes: Sequence[int]) -> SymTensor:
    """flips the given axes.

    Dtypes: x: T → T; T: any.
    Shape: as the operand.
    """
    return apply("reverse", [x], {"axes": axes})[0]


def pad(
    x: TensorLike,
    value: TensorLike | None = None,
    *,
    low: Sequence[int | str | Dim],
    high: Sequence[int | str | Dim],
    mode: str = "constant",
) -> SymTensor:
    """adds low[i] and high[i] elements before and after axis i; mode constant (value, default 0), edge,
    reflect, wrap.

    Dtypes: x: T, value: T (optional) → T; T: any.
    Shape: rule pad.
    """
    return apply("pad", [x, value], {"low": low, "high": high, "mode": mode})[0]


def concat(xs: Sequence[TensorLike], *, axis: int) -> SymTensor:
    """joins along an axis.

    Dtypes: xs: T (one or more) → T; T: any.
    Shape: rule concat.
    """
    return apply("concat", [*xs], {"axis": axis})[0]


def iota(*, shape: Sequence[int | str | Dim], axis: int, dtype: str) -> SymTensor:
    """index along an axis: 0, 1, 2, ….

    Dtypes: no operands → the attribute dtype.
    Shape: the attribute shape.
    """
    return apply("iota", [], {"shape": shape, "axis": axis, "dtype": dtype})[0]


def size_of(*, size: Sequence[int | str | Dim], dtype: str = "i64") -> SymTensor:
    """the value of a symbolic size as a scalar, rounded to dtype; size holds one entry.

    Dtypes: no operands → the attribute dtype.
    Shape: rule size_of.
    """
    return apply("size_of", [], {"size": size, "dtype": dtype})[0]


def gather(x: TensorLike, indices: TensorLike, *, axis: int = 0) -> SymTensor:
    """numpy take: x[..., indices, ...] at axis; -size <= index < size, outside is an error when running.

    Dtypes: x: T, indices: index → T; T: any.
    Shape: rule gather.
    """
    return apply("gather", [x, indices], {"axis": axis})[0]


def gather_elements(x: TensorLike, indices: TensorLike, *, axis: int) -> SymTensor:
    """numpy take_along_axis without broadcasting: the result is shaped as indices, whose sizes off the axis
    are at most x's; negative indices count from the end.

    Dtypes: x: T, indices: index → T; T: any.
    Shape: rule gather_elements.
    """
    return apply("gather_elements", [x, indices], {"axis": axis})[0]


def gather_nd(x: TensorLike, indices: TensorLike, *, batch_dims: int = 0) -> SymTensor:
    """the last axis of indices addresses leading axes of x after batch_dims shared ones (ONNX GatherND).

    Dtypes: x: T, indices: index → T; T: any.
    Shape: rule gather_nd.
    """
    return apply("gather_nd", [x, indices], {"batch_dims": batch_dims})[0]


def scatter_elements(
    x: TensorLike,
    indices: TensorLike,
    updates: TensorLike,
    *,
    axis: int,
    reduction: str = "none",
) -> SymTensor:
    """copy of x with updates put at take_along_axis places in row-major order; reduction none add mul max
    min.

    Dtypes: x: T, indices: index, updates: T → T; T: any.
    Shape: rule scatter_elements.
    """
    return apply("scatter_elements", [x, indices, updates], {"axis": axis, "reduction": reduction})[0]


def scatter_nd(
    x: TensorLike,
    indices: TensorLike,
    updates: TensorLike,
    *,
    reduction: str = "none",
) -> SymTensor:
    """copy of x with slices of updates put where the last axis of indices points, in row-major order.

    Dtypes: x: T, indices: index, updates: T → T; T: any.
    Shape: rule scatter_nd.
    """
    return apply("scatter_nd", [x, indices, updates], {"reduction": reduction})[0]


def reduce_sum(x: TensorLike, *, axes: Sequence[int], keepdims: bool = False) -> SymTensor:
    """sum over axes.

    Dtypes: x: T → T; T: number.
    Shape: without the axes, or 1 there if keepdims.
    """
    return apply("reduce_sum", [x], {"axes": axes, "keepdims": keepdims})[0]


def reduce_prod(x: TensorLike, *, axes: Sequence[int], keepdims: bool = False) -> SymTensor:
    """product over axes.

    Dtypes: x: T → T; T: number.
    Shape: without the axes, or 1 there if keepdims.
    """
    return apply("reduce_prod", [x], {"axes": axes, "keepdims": keepdims})[0]


def reduce_max(x: TensorLike, *, axes: Sequence[int], keepdims: bool = False) -> SymTensor:
    """maximum over axes; bool: or.

    Dtypes: x: T → T; T: any.
    Shape: without the axes, or 1 there if keepdims.
    """
    return apply("reduce_max", [x], {"axes": axes, "keepdims": keepdims})[0]


def reduce_min(x: TensorLike, *, axes: Sequence[int], keepdims: bool = False) -> SymTensor:
    """minimum over axes; bool: and.

    Dtypes: x: T → T; T: any.
    Shape: without the axes, or 1 there if keepdims.
    """
    return apply("reduce_min", [x], {"axes": axes, "keepdims": keepdims})[0]


def argmax(x: TensorLike, *, axis: int, keepdims: bool = False, select_last: bool = False) -> SymTensor:
    """index of the maximum, the first (or last) of equals; a NaN counts as the maximum.

    Dtypes: x: T → i64; T: number.
    Shape: rule arg_reduce.
    """
    return apply("argmax", [x], {"axis": axis, "keepdims": keepdims, "select_last": select_last})[0]


def argmin(x: TensorLike, *, axis: int, keepdims: bool = False, select_last: bool = False) -> SymTensor:
    """index of the minimum, the first (or last) of equals; a NaN counts as the minimum.

    Dtypes: x: T → i64; T: number.
    Shape: rule arg_reduce.
    """
    return apply("argmin", [x], {"axis": axis, "keepdims": keepdims, "select_last": select_last})[0]


def cumsum(x: TensorLike, *, axis: int, exclusive: bool = False, reverse: bool = False) -> SymTensor:
    """running sum.

    Dtypes: x: T → T; T: number.
    Shape: as the operand.
    """
    return apply("cumsum", [x], {"axis": axis, "exclusive": exclusive, "reverse": reverse})[0]


def cumprod(x: TensorLike, *, axis: int, exclusive: bool = False, reverse: bool = False) -> SymTensor:
    """running product.

    Dtypes: x: T → T; T: number.
    Shape: as the operand.
    """
    return apply("cumprod", [x], {"axis": axis, "exclusive": exclusive, "reverse": reverse})[0]


def sort(x: TensorLike, *, axis: int, descending: bool = False) -> tuple[SymTensor, SymTensor]:
    """stable sort and the indices that give it; NaN last ascending, first descending.

    Dtypes: x: T → T, i64; T: number.
    Shape: as the operand.
    """
    return apply("sort", [x], {"axis": axis, "descending": descending})


def top_k(
    x: TensorLike,
    *,
    k: Sequence[int | str | Dim],
    axis: int,
    largest: bool = True,
) -> tuple[SymTensor, SymTensor]:
    """the first k of the stable sort along axis, and their indices; k holds one size.

    Dtypes: x: T → T, i64; T: number.
    Shape: rule top_k.
    """
    return apply("top_k", [x], {"k": k, "axis": axis, "largest": largest})


def matmul(
    x: TensorLike,
    y: TensorLike,
    *,
    transpose_x: bool = False,
    transpose_y: bool = False,
    tf32: bool = False,
) -> SymTensor:
    """x[..., M, K] @ y[..., K, N] with broadcast batch axes, rank >= 2; a transposed operand is stored [...,
    K, M] or [..., N, K]; f16 and bf16 accumulate in f32; tf32, of f32 only: of round_tf32(x) and
    round_tf32(y), accumulated in f32.

    Dtypes: x: T, y: T → T; T: number.
    Shape: rule matmul.
    """
    return apply("matmul", [x, y], {"transpose_x": transpose_x, "transpose_y": transpose_y, "tf32": tf32})[0]


def conv(
    x: TensorLike,
    w: TensorLike,
    bias: TensorLike | None = None,
    *,
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    groups: int = 1,
    tf32: bool = False,
) -> SymTensor:
    """N-d convolution (cross-correlation): x [N, C, spatial...], w [M, C/groups, kernel...], bias [M]; pads
    = lows then highs; tf32: as in matmul, of x and w.

    Dtypes: x: T, w: T, bias: T (optional) → T; T: float.
    Shape: rule conv.
    """
    return apply(
        "conv",
        [x, w, bias],
        {
            "strides": strides,
            "pads": pads,
            "dilations": dilations,
            "groups": groups,
            "tf32": tf32,
        },
    )[0]


def conv_transpose(
    x: TensorLike,
    w: TensorLike,
    bias: TensorLike | None = None,
    *,
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    output_padding: Sequence[int],
    groups: int = 1,
    tf32: bool = False,
) -> SymTensor:
    """adjoint of conv: x [N, C, spatial...], w [C, M/groups, kernel...]; tf32: as in matmul, of x and w.

    Dtypes: x: T, w: T, bias: T (optional) → T; T: float.
    Shape: rule conv_transpose.
    """
    return apply(
        "conv_transpose",
        [x, w, bias],
        {
            "strides": strides,
            "pads": pads,
            "dilations": dilations,
            "output_padding": output_padding,
            "groups": groups,
            "tf32": tf32,
        },
    )[0]


def max_pool(
    x: TensorLike,
    *,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    ceil_mode: bool = False,
) -> SymTensor:
    """maximum over windows of x [N, C, spatial...]; padding never wins.

    Dtypes: x: T → T; T: number.
    Shape: rule pool.
    """
    return apply(
        "max_pool",
        [x],
        {
            "kernel": kernel,
            "strides": strides,
            "pads": pads,
            "dilations": dilations,
            "ceil_mode": ceil_mode,
        },
    )[0]


def max_pool_indices(
    x: TensorLike,
    *,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    ceil_mode: bool = False,
    column_major: bool = False,
) -> SymTensor:
    """flat index into x of each window's first maximum; column_major counts spatial axes first-fastest.

    Dtypes: x: T → i64; T: number.
    Shape: rule pool.
    """
    return apply(
        "max_pool_indices",
        [x],
        {
            "kernel": kernel,
            "strides": strides,
            "pads": pads,
            "dilations": dilations,
            "ceil_mode": ceil_mode,
            "column_major": column_major,
        },
    )[0]


def avg_pool(
    x: TensorLike,
    *,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    ceil_mode: bool = False,
    count_include_pad: bool = False,
) -> SymTensor:
    """mean over windows; padding counts in the divisor only if count_include_pad.

    Dtypes: x: T → T; T: float.
    Shape: rule pool.
    """
    return apply(
        "avg_pool",
        [x],
        {
            "kernel": kernel,
            "strides": strides,
            "pads": pads,
            "dilations": dilations,
            "ceil_mode": ceil_mode,
            "count_include_pad": count_include_pad,
        },
    )[0]


def random_bits(
    seed: TensorLike,
    step: TensorLike,
    *,
    shape: Sequence[int | str | Dim],
    stream: int,
    dtype: str = "i32",
) -> SymTensor:
    """Philox4x32-10 keyed by (seed, stream, step) at the logical element index; dtype i32.

    Dtypes: seed: i64, step: i64 → the attribute dtype.
    Shape: the attribute shape.
    """
    return apply("random_bits", [seed, step], {"shape": shape, "stream": stream, "dtype": dtype})[0]


def custom(
    operands: Sequence[TensorLike],
    *,
    name: str,
    dtypes: str,
    ranks: Sequence[int],
    sizes: Sequence[int | str | Dim],
    params: Sequence[int] = (),
    fparams: Sequence[float] = (),
    cuda: str = "",
    function: str = "",
    grid: Sequence[int | str | Dim] = (),
    block: int = 128,
    shared_bytes: int = 0,
    cuda_params: Sequence[int | str | Dim] = (),
) -> SymTensor:
    """an op of the user's (docs/custom_ops.md): results have the comma-separated dtypes, and sizes cut from
    one list by rank; the CPU runs the function registered under the name with params and fparams, a GPU
    the kernel of the text.

    Dtypes: operands: any (one or more) → *.
    Shape: rule custom.
    """
    return apply(
        "custom",
        [*operands],
        {
            "name": name,
            "dtypes": dtypes,
            "ranks": ranks,
            "sizes": sizes,
            "params": params,
            "fparams": fparams,
            "cuda": cuda,
            "function": function,
            "grid": grid,
            "block": block,
            "shared_bytes": shared_bytes,
            "cuda_params": cuda_params,
        },
    )[0]


def relu(x: TensorLike) -> SymTensor:
    """max(x, 0).

    Dtypes: x: T → T; T: number.
    Shape: as the operand.
    """
    return apply("relu", [x], {})[0]


def leaky_relu(x: TensorLike, *, alpha: float = 0.01) -> SymTensor:
    """x if x >= 0 else alpha x.

    Dtypes: x: T → T; T: float.
    Shape: as the operand.
    """
    return apply("leaky_relu", [x], {"alpha": alpha})[0]


def elu(x: TensorLike, *, alpha: float = 1.0) -> SymTensor:
    """x if x > 0 else alpha (e^x - 1).

    Dtypes: x: T → T; T: float.
    Shape: as the operand.
    """
    return apply("elu", [x], {"alpha": alpha})[0]


def sigmoid(x: TensorLike) -> SymTensor:
    """1 / (1 + e^-x).

    Dtypes: x: T → T; T: float.
    Shape: as the operand.
    """
    return apply("sigmoid", [x], {})[0]


def silu(x: TensorLike) -> SymTensor:
    """x sigmoid(x).

    Dtypes: x: T → T; T: float.
    Shape: as the operand.
    """
    return apply("silu", [x], {})[0]


def gelu(x: TensorLike, *, approximate: str = "none") -> SymTensor:
    """x Phi(x); approximate=tanh: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).

    Dtypes: x: T → T; T: float.
    Shape: as the operand.
    """
    return apply("gelu", [x], {"approximate": approximate})[0]


def softplus(x: TensorLike) -> SymTensor:
    """log(1 + e^x) = max(x, 0) + log1p(e^-|x|).

    Dtypes: x: T → T; T: float.
    Shape: as the operand.
    """
    return apply("softplus", [x], {})[0]


def clamp(x: TensorLike, low: TensorLike, high: TensorLike) -> SymTensor:
    """min(max(x, low), high).

    Dtypes: x: T, low: T, high: T → T; T: number.
    Shape: operands broadcast as in numpy.
    """
    return apply("clamp", [x, low, high], {})[0]


def stop_gradient(x: TensorLike) -> SymTensor:
    """x, which counts as a constant when differentiating.

    Dtypes: x: T → T; T: any.
    Shape: as the operand.
    """
    return apply("stop_gradient", [x], {})[0]


def reduce_mean(x: TensorLike, *, axes: Sequence[int], keepdims: bool = False) -> SymTensor:
    """sum over axes divided by their element count.

    Dtypes: x: T → T; T: number.
    Shape: without the axes, or 1 there if keepdims.
    """
    return apply("reduce_mean", [x], {"axes": axes, "keepdims": keepdims})[0]


def reduce_logsumexp(x: TensorLike, *, axes: Sequence[int], keepdims: bool = False) -> SymTensor:
    """log(sum(e^x)) without overflow.

    Dtypes: x: T → T; T: float.
    Shape: without the axes, or 1 there if keepdims.
    """
    return apply("reduce_logsumexp", [x], {"axes": axes, "keepdims": keepdims})[0]


def softmax(x: TensorLike, *, axis: int = -1) -> SymTensor:
    """e^(x - max) / sum(e^(x - max)) along axis.

    Dtypes: x: T → T; T: float.
    Shape: as the operand.
    """
    return apply("softmax", [x], {"axis": axis})[0]


def log_softmax(x: TensorLike, *, axis: int = -1) -> SymTensor:
    """x - max - log(sum(e^(x - max))) along axis.

    Dtypes: x: T → T; T: float.
    Shape: as the operand.
    """
    return apply("log_softmax", [x], {"axis": axis})[0]


def layer_norm(
    x: TensorLike,
    scale: TensorLike | None = None,
    bias: TensorLike | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-05,
) -> SymTensor:
    """(x - mean) / sqrt(var + epsilon) over axes axis..rank-1, times scale plus bias (shaped as those axes).

    Dtypes: x: T, scale: T (optional), bias: T (optional) → T; T: float.
    Shape: rule norm.
    """
    return apply("layer_norm", [x, scale, bias], {"axis": axis, "epsilon": epsilon})[0]


def rms_norm(
    x: TensorLike,
    scale: TensorLike | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-05,
) -> SymTensor:
    """x / sqrt(mean(x^2) + epsilon) over axes axis..rank-1, times scale.

    Dtypes: x: T, scale: T (optional) → T; T: float.
    Shape: rule norm.
    """
    return apply("rms_norm", [x, scale], {"axis": axis, "epsilon": epsilon})[0]


def batch_norm(
    x: TensorLike,
    scale: TensorLike,
    bias: TensorLike,
    mean: TensorLike,
    var: TensorLike,
    *,
    epsilon: float = 1e-05,
) -> SymTensor:
    """inference: (x - mean) / sqrt(var + epsilon) * scale + bias per channel (axis 1).

    Dtypes: x: T, scale: T, bias: T, mean: T, var: T → T; T: float.
    Shape: rule batch_norm.
    """
    return apply("batch_norm", [x, scale, bias, mean, var], {"epsilon": epsilon})[0]


def batch_norm_train(
    x: TensorLike,
    scale: TensorLike,
    bias: TensorLike,
    *,
    epsilon: float = 1e-05,
) -> tuple[SymTensor, SymTensor, SymTensor]:
    """training: batch_norm by the mean and the variance (divided by the count) of each channel over the
    other axes, and these two [C].

    Dtypes: x: T, scale: T, bias: T → T, T, T; T: float.
    Shape: rule batch_norm.
    """
    return apply("batch_norm_train", [x, scale, bias], {"epsilon": epsilon})


def group_norm(
    x: TensorLike,
    scale: TensorLike | None = None,
    bias: TensorLike | None = None,
    *,
    groups: int,
    epsilon: float = 1e-05,
) -> SymTensor:
    """normalises each of `groups` channel groups of x [N, C, spatial...]; scale and bias [C].

    Dtypes: x: T, scale: T (optional), bias: T (optional) → T; T: float.
    Shape: rule batch_norm.
    """
    return apply("group_norm", [x, scale, bias], {"groups": groups, "epsilon": epsilon})[0]


def linear(
    x: TensorLike,
    w: TensorLike,
    bias: TensorLike | None = None,
    *,
    transpose_w: bool = False,
    tf32: bool = False,
) -> SymTensor:
    """x[..., K] @ w[K, N] + bias[N], a matmul and an add; transpose_w: w is stored [N, K]; tf32: as in
    matmul.

    Dtypes: x: T, w: T, bias: T (optional) → T; T: float.
    Shape: rule linear.
    """
    return apply("linear", [x, w, bias], {"transpose_w": transpose_w, "tf32": tf32})[0]


def attention(
    q: TensorLike,
    k: TensorLike,
    v: TensorLike,
    mask: TensorLike | None = None,
    *,
    scale: float,
    causal: bool = False,
    softcap: float = 0.0,
    window: int = 0,
    tf32: bool = False,
) -> SymTensor:
    """softmax(scale q k^T + mask) v with q [B, Hq, Tq, D], k [B, Hk, Tk, D], v [B, Hk, Tk, Dv], Hq a
    multiple of Hk; mask broadcasts to [B, Hq, Tq, Tk]: added if T, or f32 where T is a half, kept where
    true if bool; causal keeps key j <= query i + Tk - Tq; window w > 0 keeps key j only if |i + Tk - Tq -
    j| < w: with causal the last w keys up to the query's own; softcap c > 0 turns a score s into c tanh(s
    / c) before the mask; a fully masked row gives 0; tf32, of f32 only: of round_tf32 of q, k, v and of
    e^score, which is divided by its sum thereafter.

    Dtypes: q: T, k: T, v: T, mask: any (optional) → T; T: float.
    Shape: rule attention.
    """
    return apply(
        "attention",
        [q, k, v, mask],
        {
            "scale": scale,
            "causal": causal,
            "softcap": softcap,
            "window": window,
            "tf32": tf32,
        },
    )[0]


def attention_lse(
    q: TensorLike,
    k: TensorLike,
    v: TensorLike,
    mask: TensorLike | None = None,
    *,
    scale: float,
    causal: bool = False,
    softcap: float = 0.0,
    window: int = 0,
    tf32: bool = False,
) -> tuple[SymTensor, SymTensor]:
    """attention over the same operands and attributes, and of each row the logarithm of its sum of e^score
    [B, Hq, Tq], the scores being those that its softmax takes; -inf for a fully masked row.

    Dtypes: q: T, k: T, v: T, mask: any (optional) → T, f32; T: float.
    Shape: rule attention_lse.
    """
    return apply(
        "attention_lse",
        [q, k, v, mask],
        {
            "scale": scale,
            "causal": causal,
            "softcap": softcap,
            "window": window,
            "tf32": tf32,
        },
    )


def attention_backward(
    q: TensorLike,
    k: TensorLike,
    v: TensorLike,
    out: TensorLike,
    dout: TensorLike,
    mask: TensorLike | None = None,
    *,
    scale: float,
    causal: bool = False,
    softcap: float = 0.0,
    window: int = 0,
    tf32: bool = False,
) -> tuple[SymTensor, SymTensor, SymTensor]:
    """the gradients of q, k and v from dout, that of the result out of attention over the same operands and
    attributes; tf32: its five products take round_tf32 of their operands.

    Dtypes: q: T, k: T, v: T, out: T, dout: T, mask: any (optional) → T, T, T; T: float.
    Shape: rule attention_backward.
    """
    return apply(
        "attention_backward",
        [q, k, v, out, dout, mask],
        {
            "scale": scale,
            "causal": causal,
            "softcap": softcap,
            "window": window,
            "tf32": tf32,
        },
    )


def conv_weight_gradient(
    x: TensorLike,
    dy: TensorLike,
    *,
    kernel: Sequence[int | str | Dim],
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    groups: int = 1,
    tf32: bool = False,
) -> SymTensor:
    """the gradient of conv's w [M, C/groups, kernel...] from its x [N, C, spatial...] and the gradient dy
    [N, M, positions...] of its result over the same attributes; positions that dy lacks at the end of an
    axis count as 0; tf32: as in matmul, of x and dy.

    Dtypes: x: T, dy: T → T; T: float.
    Shape: rule conv_weight_gradient.
    """
    return apply(
        "conv_weight_gradient",
        [x, dy],
        {
            "kernel": kernel,
            "strides": strides,
            "pads": pads,
            "dilations": dilations,
            "groups": groups,
            "tf32": tf32,
        },
    )[0]


def recurrent(
    x: TensorLike,
    h: TensorLike,
    w: TensorLike,
    bias: TensorLike | None = None,
    c: TensorLike | None = None,
    *,
    cell: str,
    direction: str = "forward",
    keep: bool = False,
) -> tuple[SymTensor, SymTensor, SymTensor]:
    """a recurrent layer over its inputs' part of the gates x [T, B, D G H]; D 1, or 2 if direction (forward,
    reverse) is bidirectional; w [D, G H, H], bias [D, G H] and the state h, c [D, B, H] before the first
    step; gates of cell lstm: i, f, g, o, with c; gru: r, z, n, n = tanh(x + r (w h + bias)); rnn_tanh,
    rnn_relu: one. Gives h of all steps [T, B, D H], c of lstm's, and with keep what recurrent_backward
    reads again: lstm i, f, g, o, gru r, z, n, w h + bias of n [T, B, D 4 H]; else [T, B, 0].

    Dtypes: x: T, h: T, w: T, bias: T (optional), c: T (optional) → T, T, T; T: float.
    Shape: rule recurrent.
    """
    return apply("recurrent", [x, h, w, bias, c], {"cell": cell, "direction": direction, "keep": keep})


def recurrent_backward(
    w: TensorLike,
    h: TensorLike,
    y: TensorLike,
    cells: TensorLike,
    gates: TensorLike,
    dy: TensorLike,
    c: TensorLike | None = None,
    dcells: TensorLike | None = None,
    *,
    cell: str,
    direction: str = "forward",
) -> tuple[SymTensor, SymTensor, SymTensor]:
    """the gradients of x, h and c ([D, B, 0] without) of recurrent with keep, over its w, h and c, its
    results y, cells and gates, and the gradients of y and cells.

    Dtypes: w: T, h: T, y: T, cells: T, gates: T, dy: T, c: T (optional), dcells: T (optional) → T, T, T;
    T: float.
    Shape: rule recurrent_backward.
    """
    return apply(
        "recurrent_backward",
        [w, h, y, cells, gates, dy, c, dcells],
        {
            "cell": cell,
            "direction": direction,
        },
    )


def rope(x: TensorLike, cos: TensorLike, sin: TensorLike, *, interleaved: bool = False) -> SymTensor:
    """rotary embedding of x [..., T, D] with cos, sin broadcastable to [..., T, R/2], R <= D; pairs are (i,
    i + R/2), or (2i, 2i+1) if interleaved; elements from R on pass unchanged.

    Dtypes: x: T, cos: T, sin: T → T; T: float.
    Shape: rule rope.
    """
    return apply("rope", [x, cos, sin], {"interleaved": interleaved})[0]


def rope_append(
    q: TensorLike,
    k: TensorLike,
    v: TensorLike,
    cos: TensorLike,
    sin: TensorLike,
    k_cache: TensorLike,
    v_cache: TensorLike,
    position: TensorLike,
    *,
    interleaved: bool = False,
) -> tuple[SymTensor, SymTensor, SymTensor]:
    """a step of cached attention: q [B, Hq, T, D] and k [B, Hk, T, D] rotated as by rope, cos and sin
    broadcastable to both; gives q and the caches [B, Hk, L, D] and [B, Hk, L, Dv] with k and v [B, Hk, T,
    Dv] put at rows position + 0 .. T-1; position [B] or [1]; rows are indices as of scatter_elements.

    Dtypes: q: T, k: T, v: T, cos: T, sin: T, k_cache: T, v_cache: T, position: i64 → T, T, T; T: float.
    Shape: rule rope_append.
    """
    return apply("rope_append", [q, k, v, cos, sin, k_cache, v_cache, position], {"interleaved": interleaved})


def one_hot(
    indices: TensorLike,
    on: TensorLike,
    off: TensorLike,
    *,
    depth: Sequence[int | str | Dim],
    axis: int = -1,
) -> SymTensor:
    """`on` where the new axis' index equals the index (negative ones count from the end), else `off`.

    Dtypes: indices: index, on: T, off: T → T; T: any.
    Shape: rule one_hot.
    """
    return apply("one_hot", [indices, on, off], {"depth": depth, "axis": axis})[0]


def cross_entropy(logits: TensorLike, labels: TensorLike, *, ignore_index: int = -100) -> SymTensor:
    """mean over kept rows of -log_softmax(logits [N, C])[label]; a scalar; 0 if no row is kept.

    Dtypes: logits: T, labels: index → T; T: float.
    Shape: rule cross_entropy.
    """
    return apply("cross_entropy", [logits, labels], {"ignore_index": ignore_index})[0]


def linear_cross_entropy(
    x: TensorLike,
    w: TensorLike,
    labels: TensorLike,
    *,
    dtype: str,
    transpose_w: bool = False,
    ignore_index: int = -100,
    chunk: int = 0,
) -> SymTensor:
    """cross_entropy(logits, labels) in a float dtype, logits = x [N, K] @ w [K, C] of type T; transpose_w: w
    is stored [C, K]; `chunk` rows of logits are stored at a time, 0: as many as are cheap.

    Dtypes: x: T, w: T, labels: index → the attribute dtype; T: float.
    Shape: rule linear_cross_entropy.
    """
    return apply(
        "linear_cross_entropy",
        [x, w, labels],
        {
            "dtype": dtype,
            "transpose_w": transpose_w,
            "ignore_index": ignore_index,
            "chunk": chunk,
        },
    )[0]


def linear_cross_entropy_backward(
    x: TensorLike,
    w: TensorLike,
    labels: TensorLike,
    dloss: TensorLike,
    *,
    dtype: str,
    transpose_w: bool = False,
    ignore_index: int = -100,
    chunk: int = 0,
) -> tuple[SymTensor, SymTensor, SymTensor]:
    """linear_cross_entropy over the same operands and attributes, and the gradients of x and w from dloss, a
    scalar of its dtype; the gradient of the logits is of type T.

    Dtypes: x: T, w: T, labels: index, dloss: any → the attribute dtype, T, T; T: float.
    Shape: rule linear_cross_entropy_backward.
    """
    return apply(
        "linear_cross_entropy_backward",
        [x, w, labels, dloss],
        {
            "dtype": dtype,
            "transpose_w": transpose_w,
            "ignore_index": ignore_index,
            "chunk": chunk,
        },
    )


def adamw_step(
    param: TensorLike,
    grad: TensorLike,
    m: TensorLike,
    v: TensorLike,
    step: TensorLike,
    lr: TensorLike,
    *,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-08,
    weight_decay: float = 0.01,
) -> tuple[SymTensor, SymTensor, SymTensor]:
    """decoupled weight decay Adam (Loshchilov & Hutter 2019): next param, m, v; step counts from 1.

    Dtypes: param: T, grad: T, m: T, v: T, step: i64, lr: T → T, T, T; T: float.
    Shape: rule adamw_step.
    """
    return apply(
        "adamw_step",
        [param, grad, m, v, step, lr],
        {
            "beta1": beta1,
            "beta2": beta2,
            "epsilon": epsilon,
            "weight_decay": weight_decay,
        },
    )


# What other libraries call an op.
_ELSEWHERE = {
    "cat": "concat",
    "clip": "clamp",
    "expand": "broadcast_to",
    "flip": "reverse",
    "logsumexp": "reduce_logsumexp",
    "maximum": "max",
    "mean": "reduce_mean",
    "minimum": "min",
    "multiply": "mul",
    "permute": "transpose",
    "prod": "reduce_prod",
    "scaled_dot_product_attention": "attention",
    "split": "slice",
    "sum": "reduce_sum",
    "swish": "silu",
    "take": "gather",
    "topk": "top_k",
    "where": "select",
}


def __getattr__(name: str) -> Any:
    known = _ELSEWHERE.get(name) or next(iter(get_close_matches(name, __all__, 1)), None)
    hint = f"; did you mean {known!r}?" if known else ""
    raise AttributeError(f"aicf.ops has no op {name!r}{hint}", name=name)
