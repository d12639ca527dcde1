"""Random numbers: Philox keyed by two states of the executable, `rng.seed` and `rng.step`; the step goes on
with
every run. The numbers are not those of torch's generator."""

from __future__ import annotations

import math
from typing import Any

from ... import ops
from ...symtensor import SymTensor
from ..call import Call
from ..types import is_float
from .table import rule

__all__ = ["dropped", "uniform"]


def uniform(c: Call, shape: Any, dtype: str = "f32") -> SymTensor:
    """Evenly from [0, 1): the upper 24 bits of a random word."""
    seed, step = c.lowering.random_state()
    stream = c.lowering.streams
    c.lowering.streams += 1
    bits = ops.random_bits(seed, step, shape=list(shape), stream=stream, dtype="i32")
    positive = ops.bit_and(ops.shift_right(bits, c.number(8, "i32")), c.number(0xFFFFFF, "i32"))
    value = ops.mul(ops.cast(positive, dtype="f32"), c.number(2.0**-24, "f32"))
    return value if dtype == "f32" else ops.cast(value, dtype=dtype)


def _normal(c: Call, shape: Any, dtype: str) -> SymTensor:
    """Box and Muller 1958; 1 - u keeps the logarithm finite."""
    first, second = uniform(c, shape), uniform(c, shape)
    radius = ops.sqrt(ops.mul(ops.log(ops.sub(c.number(1, "f32"), first)), c.number(-2, "f32")))
    value = ops.mul(radius, ops.cos(ops.mul(second, c.number(2 * math.pi, "f32"))))
    return value if dtype == "f32" else ops.cast(value, dtype=dtype)


def dropped(c: Call, x: SymTensor, p: float) -> tuple[SymTensor, SymTensor]:
    """x with elements zeroed with probability p and the others divided by 1 - p; and which stayed."""
    if p >= 1:
        keep = c.full(list(x.shape), 0, "bool")
        return c.full(list(x.shape), 0, x.dtype), keep
    keep = ops.ge(uniform(c, x.shape), c.number(p, "f32"))
    scaled = ops.mul(x, c.number(1 / (1 - p), x.dtype))
    return ops.select(keep, scaled, c.number(0, x.dtype)), keep


@rule("dropout")
def _dropout(c: Call, x: Any, p: float, train: bool) -> SymTensor:
    return dropped(c, x, p)[0] if train and p > 0 else x


@rule("native_dropout")
def _native_dropout(c: Call, x: Any, p: float, train: Any) -> tuple[SymTensor, SymTensor]:
    if train is False or p == 0:
        return x, c.full(list(x.shape), 1, "bool")
    return dropped(c, x, p)


@rule("rand", "rand_like")
def _rand(c: Call, *_: Any, **__: Any) -> SymTensor:
    return uniform(c, c.shape, c.dtype)


@rule("randn", "randn_like", "normal_functional")
def _randn(c: Call, *args: Any, **__: Any) -> SymTensor:
    value = _normal(c, c.shape, c.dtype)
    if c.node.target._opname != "normal_functional":
        return value
    mean, std = (
        (*args[1:], 0.0, 1.0)[:2] if len(args) > 2 else (*args[1:2], 1.0) if len(args) > 1 else (0.0, 1.0)
    )
    return ops.add(ops.mul(value, c.number(std, c.dtype)), c.number(mean, c.dtype))


@rule("randint", "randint.low", "randint_like", "randint_like.low_dtype")
def _randint(c: Call, *args: Any, **__: Any) -> SymTensor:
    name = str(c.node.target)
    bounds = args[1:] if "like" in name else args[:-1]
    low, high = bounds if "low" in name else (0, bounds[0])
    value = ops.floor(ops.mul(uniform(c, c.shape, "f64"), c.number(high - low, "f64")))
    return c.cast(ops.add(value, c.number(low, "f64")))


@rule("bernoulli", "bernoulli.p")
def _bernoulli(c: Call, x: Any, p: Any = None, **_: Any) -> SymTensor:
    limit = ops.cast(x, dtype="f32") if p is None else c.number(p, "f32")
    return c.cast(ops.lt(uniform(c, c.shape), limit))


@rule("uniform")
def _uniform(c: Call, x: Any, low: float = 0.0, high: float = 1.0, **_: Any) -> SymTensor:
    assert is_float(c.dtype)
    return ops.add(
        ops.mul(uniform(c, c.shape, c.dtype), c.number(high - low, c.dtype)), c.number(low, c.dtype)
    )


@rule("exponential")
def _exponential(c: Call, x: Any, rate: float = 1.0, **_: Any) -> SymTensor:
    value = ops.log(ops.sub(c.number(1, c.dtype), uniform(c, c.shape, c.dtype)))
    return ops.mul(value, c.number(-1 / rate, c.dtype))


@rule("normal.float_float", "normal.Tensor_float", "normal.float_Tensor", "normal.Tensor_Tensor")
def _normal_of(c: Call, mean: Any, std: Any = 1.0, *_: Any, **__: Any) -> SymTensor:
    return ops.add(ops.mul(_normal(c, c.shape, c.dtype), c.cast(std)), c.cast(mean))


@rule("prims.normal")
def _prims_normal(c: Call, _shape: Any, *, mean: Any, std: Any, **__: Any) -> SymTensor:
    return ops.add(ops.mul(_normal(c, c.shape, c.dtype), c.cast(std)), c.cast(mean))


@rule("rrelu_with_noise", "rrelu_with_noise_functional")
def _rrelu(
    c: Call, x: Any, _noise: Any, lower: float = 0.125, upper: float = 1 / 3, training: bool = False, *_: Any
) -> Any:
    if training:
        slope = ops.add(
            ops.mul(uniform(c, x.shape, x.dtype), c.number(upper - lower, x.dtype)), c.number(lower, x.dtype)
        )
        noise = ops.select(ops.le(x, c.number(0, x.dtype)), slope, c.number(1, x.dtype))
        result = ops.mul(x, noise)
    else:
        noise = c.full(list(x.shape), 1, x.dtype)
        result = ops.leaky_relu(x, alpha=(lower + upper) / 2)
    return (result, noise) if c.node.target._opname.endswith("functional") else result
