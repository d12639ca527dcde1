"""Convolutions, forward and transposed."""

from __future__ import annotations

from typing import Any

from ... import ops
from ...symtensor import SymTensor
from ..call import Call
from .table import rule

__all__: list[str] = []


def per_axis(value: Any, rank: int) -> list[int]:
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
    strides, dilations = per_axis(stride, rank), per_axis(dilation, rank)
    if isinstance(padding, str):
        lows, highs = _named_padding(padding, w, dilations, rank)
    else:
        lows = highs = per_axis(padding, rank)
    attrs: dict[str, Any] = {
        "strides": strides, "pads": [*lows, *highs], "dilations": dilations, "groups": groups
    }  # fmt: skip
    if transposed:
        attrs["output_padding"] = per_axis(output_padding, rank)
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
