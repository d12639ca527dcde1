"""Every op of the IR as a function on traced values. Made by scripts/generate.py from ops.def.

Operands are traced values, params, real arrays (they become constants) or numbers. Negative axes count
from the end. Errors: bad_operand_count, bad_dtype, bad_attribute, bad_shape. docs/ops.md is the same list as
a table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ._aicf import Dim
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
    "avg_pool",
    "batch_norm",
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
    "cos",
    "cosh",
    "cross_entropy",
    "cumprod",
    "cumsum",
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
    "round",
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
    "sub",
    "tan",
    "tanh",
    "top_k",
    "transpose",
    "trunc",
]

TensorLike = Any

def neg(x: TensorLike) -> SymTensor: ...
def abs(x: TensorLike) -> SymTensor: ...
def sign(x: TensorLike) -> SymTensor: ...
def exp(x: TensorLike) -> SymTensor: ...
def expm1(x: TensorLike) -> SymTensor: ...
def log(x: TensorLike) -> SymTensor: ...
def log1p(x: TensorLike) -> SymTensor: ...
def sqrt(x: TensorLike) -> SymTensor: ...
def rsqrt(x: TensorLike) -> SymTensor: ...
def sin(x: TensorLike) -> SymTensor: ...
def cos(x: TensorLike) -> SymTensor: ...
def tan(x: TensorLike) -> SymTensor: ...
def asin(x: TensorLike) -> SymTensor: ...
def acos(x: TensorLike) -> SymTensor: ...
def atan(x: TensorLike) -> SymTensor: ...
def sinh(x: TensorLike) -> SymTensor: ...
def cosh(x: TensorLike) -> SymTensor: ...
def tanh(x: TensorLike) -> SymTensor: ...
def asinh(x: TensorLike) -> SymTensor: ...
def acosh(x: TensorLike) -> SymTensor: ...
def atanh(x: TensorLike) -> SymTensor: ...
def erf(x: TensorLike) -> SymTensor: ...
def floor(x: TensorLike) -> SymTensor: ...
def ceil(x: TensorLike) -> SymTensor: ...
def trunc(x: TensorLike) -> SymTensor: ...
def round(x: TensorLike) -> SymTensor: ...
def is_nan(x: TensorLike) -> SymTensor: ...
def is_inf(x: TensorLike, *, positive: bool = True, negative: bool = True) -> SymTensor: ...
def logical_not(x: TensorLike) -> SymTensor: ...
def bit_not(x: TensorLike) -> SymTensor: ...
def cast(x: TensorLike, *, dtype: str) -> SymTensor: ...
def add(x: TensorLike, y: TensorLike) -> SymTensor: ...
def sub(x: TensorLike, y: TensorLike) -> SymTensor: ...
def mul(x: TensorLike, y: TensorLike) -> SymTensor: ...
def div(x: TensorLike, y: TensorLike) -> SymTensor: ...
def rem(x: TensorLike, y: TensorLike) -> SymTensor: ...
def mod(x: TensorLike, y: TensorLike) -> SymTensor: ...
def pow(x: TensorLike, y: TensorLike) -> SymTensor: ...
def atan2(y: TensorLike, x: TensorLike) -> SymTensor: ...
def max(x: TensorLike, y: TensorLike) -> SymTensor: ...
def min(x: TensorLike, y: TensorLike) -> SymTensor: ...
def bit_and(x: TensorLike, y: TensorLike) -> SymTensor: ...
def bit_or(x: TensorLike, y: TensorLike) -> SymTensor: ...
def bit_xor(x: TensorLike, y: TensorLike) -> SymTensor: ...
def shift_left(x: TensorLike, y: TensorLike) -> SymTensor: ...
def shift_right(x: TensorLike, y: TensorLike) -> SymTensor: ...
def eq(x: TensorLike, y: TensorLike) -> SymTensor: ...
def ne(x: TensorLike, y: TensorLike) -> SymTensor: ...
def lt(x: TensorLike, y: TensorLike) -> SymTensor: ...
def le(x: TensorLike, y: TensorLike) -> SymTensor: ...
def gt(x: TensorLike, y: TensorLike) -> SymTensor: ...
def ge(x: TensorLike, y: TensorLike) -> SymTensor: ...
def select(condition: TensorLike, x: TensorLike, y: TensorLike) -> SymTensor: ...
def reshape(x: TensorLike, *, shape: Sequence[int | str | Dim]) -> SymTensor: ...
def transpose(x: TensorLike, *, perm: Sequence[int]) -> SymTensor: ...
def broadcast_to(x: TensorLike, *, shape: Sequence[int | str | Dim]) -> SymTensor: ...
def slice(
    x: TensorLike,
    *,
    starts: Sequence[int | str | Dim],
    limits: Sequence[int | str | Dim],
    steps: Sequence[int],
) -> SymTensor: ...
def reverse(x: TensorLike, *, axes: Sequence[int]) -> SymTensor: ...
def pad(
    x: TensorLike,
    value: TensorLike | None = None,
    *,
    low: Sequence[int | str | Dim],
    high: Sequence[int | str | Dim],
    mode: str = "constant",
) -> SymTensor: ...
def concat(xs: Sequence[TensorLike], *, axis: int) -> SymTensor: ...
def iota(*, shape: Sequence[int | str | Dim], axis: int, dtype: str) -> SymTensor: ...
def size_of(*, size: Sequence[int | str | Dim], dtype: str = "i64") -> SymTensor: ...
def gather(x: TensorLike, indices: TensorLike, *, axis: int = 0) -> SymTensor: ...
def gather_elements(x: TensorLike, indices: TensorLike, *, axis: int) -> SymTensor: ...
def gather_nd(x: TensorLike, indices: TensorLike, *, batch_dims: int = 0) -> SymTensor: ...
def scatter_elements(
    x: TensorLike,
    indices: TensorLike,
    updates: TensorLike,
    *,
    axis: int,
    reduction: str = "none",
) -> SymTensor: ...
def scatter_nd(
    x: TensorLike,
    indices: TensorLike,
    updates: TensorLike,
    *,
    reduction: str = "none",
) -> SymTensor: ...
def reduce_sum(x: TensorLike, *, axes: Sequence[int], keepdims: bool = False) -> SymTensor: ...
def reduce_prod(x: TensorLike, *, axes: Sequence[int], keepdims: bool = False) -> SymTensor: ...
def reduce_max(x: TensorLike, *, axes: Sequence[int], keepdims: bool = False) -> SymTensor: ...
def reduce_min(x: TensorLike, *, axes: Sequence[int], keepdims: bool = False) -> SymTensor: ...
def argmax(x: TensorLike, *, axis: int, keepdims: bool = False, select_last: bool = False) -> SymTensor: ...
def argmin(x: TensorLike, *, axis: int, keepdims: bool = False, select_last: bool = False) -> SymTensor: ...
def cumsum(x: TensorLike, *, axis: int, exclusive: bool = False, reverse: bool = False) -> SymTensor: ...
def cumprod(x: TensorLike, *, axis: int, exclusive: bool = False, reverse: bool = False) -> SymTensor: ...
def sort(x: TensorLike, *, axis: int, descending: bool = False) -> tuple[SymTensor, SymTensor]: ...
def top_k(
    x: TensorLike,
    *,
    k: Sequence[int | str | Dim],
    axis: int,
    largest: bool = True,
) -> tuple[SymTensor, SymTensor]: ...
def matmul(
    x: TensorLike,
    y: TensorLike,
    *,
    transpose_x: bool = False,
    transpose_y: bool = False,
) -> SymTensor: ...
def conv(
    x: TensorLike,
    w: TensorLike,
    bias: TensorLike | None = None,
    *,
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    groups: int = 1,
) -> SymTensor: ...
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
) -> SymTensor: ...
def max_pool(
    x: TensorLike,
    *,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    ceil_mode: bool = False,
) -> SymTensor: ...
def max_pool_indices(
    x: TensorLike,
    *,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    ceil_mode: bool = False,
    column_major: bool = False,
) -> SymTensor: ...
def avg_pool(
    x: TensorLike,
    *,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    ceil_mode: bool = False,
    count_include_pad: bool = False,
) -> SymTensor: ...
def random_bits(
    seed: TensorLike,
    step: TensorLike,
    *,
    shape: Sequence[int | str | Dim],
    stream: int,
    dtype: str = "i32",
) -> SymTensor: ...
def relu(x: TensorLike) -> SymTensor: ...
def leaky_relu(x: TensorLike, *, alpha: float = 0.01) -> SymTensor: ...
def elu(x: TensorLike, *, alpha: float = 1.0) -> SymTensor: ...
def sigmoid(x: TensorLike) -> SymTensor: ...
def silu(x: TensorLike) -> SymTensor: ...
def gelu(x: TensorLike, *, approximate: str = "none") -> SymTensor: ...
def softplus(x: TensorLike) -> SymTensor: ...
def clamp(x: TensorLike, low: TensorLike, high: TensorLike) -> SymTensor: ...
def reduce_mean(x: TensorLike, *, axes: Sequence[int], keepdims: bool = False) -> SymTensor: ...
def reduce_logsumexp(x: TensorLike, *, axes: Sequence[int], keepdims: bool = False) -> SymTensor: ...
def softmax(x: TensorLike, *, axis: int = -1) -> SymTensor: ...
def log_softmax(x: TensorLike, *, axis: int = -1) -> SymTensor: ...
def layer_norm(
    x: TensorLike,
    scale: TensorLike | None = None,
    bias: TensorLike | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-05,
) -> SymTensor: ...
def rms_norm(
    x: TensorLike,
    scale: TensorLike | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-05,
) -> SymTensor: ...
def batch_norm(
    x: TensorLike,
    scale: TensorLike,
    bias: TensorLike,
    mean: TensorLike,
    var: TensorLike,
    *,
    epsilon: float = 1e-05,
) -> SymTensor: ...
def group_norm(
    x: TensorLike,
    scale: TensorLike | None = None,
    bias: TensorLike | None = None,
    *,
    groups: int,
    epsilon: float = 1e-05,
) -> SymTensor: ...
def linear(
    x: TensorLike,
    w: TensorLike,
    bias: TensorLike | None = None,
    *,
    transpose_w: bool = False,
) -> SymTensor: ...
def attention(
    q: TensorLike,
    k: TensorLike,
    v: TensorLike,
    mask: TensorLike | None = None,
    *,
    scale: float,
    causal: bool = False,
    softcap: float = 0.0,
) -> SymTensor: ...
def rope(x: TensorLike, cos: TensorLike, sin: TensorLike, *, interleaved: bool = False) -> SymTensor: ...
def one_hot(
    indices: TensorLike,
    on: TensorLike,
    off: TensorLike,
    *,
    depth: Sequence[int | str | Dim],
    axis: int = -1,
) -> SymTensor: ...
def cross_entropy(logits: TensorLike, labels: TensorLike, *, ignore_index: int = -100) -> SymTensor: ...
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
) -> tuple[SymTensor, SymTensor, SymTensor]: ...
