"""Activations, in the type in which torch computes them."""

from __future__ import annotations

from typing import Any

from ... import ops
from ...symtensor import SymTensor
from ..call import Call, Decompose
from .table import rule

__all__: list[str] = []


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


def _ramp(x: SymTensor) -> SymTensor:
    """x + 3 between 0 and 6."""
    return ops.clamp(x + 3.0, 0.0, 6.0)


@rule("hardsigmoid", opmath="whole")
def _hardsigmoid(c: Call, x: Any) -> SymTensor:
    return _ramp(x) / 6.0


@rule("hardswish", opmath="whole")
def _hardswish(c: Call, x: Any) -> SymTensor:
    return x * _ramp(x) / 6.0


def _mish_terms(x: SymTensor) -> tuple[SymTensor, SymTensor, SymTensor, SymTensor]:
    """Of x up to 20, from where on mish is x: that, its power, n = e^x (e^x + 2) and 1 / (n + 2)."""
    capped = ops.min(x, 20.0)
    power = ops.exp(capped)
    n = power * (power + 2.0)
    return capped, power, n, 1.0 / (n + 2.0)


@rule("mish", opmath="whole")
def _mish(c: Call, x: Any) -> SymTensor:
    """x tanh(log(1 + e^x)) = x n / (n + 2)."""
    _, _, n, inverse = _mish_terms(x)
    return x * (n * inverse)


@rule("mish_backward", opmath="whole")
def _mish_backward(c: Call, grad: Any, x: Any) -> SymTensor:
    """The slope is n / (n + 2) + x 4 e^x (e^x + 1) / (n + 2)^2, of the terms that mish has."""
    capped, power, n, inverse = _mish_terms(x)
    rise = 4.0 * power * (power + 1.0) * inverse
    return grad * ((n + capped * rise) * inverse)
