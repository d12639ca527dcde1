"""Padding that a value or the tensor itself fills, and its gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ... import ops
from ...symtensor import SymTensor
from ..call import Call, Decompose
from .shape import joined, take, with_zeros
from .table import rule

__all__ = ["padded"]

# torch's name of a mode and ours.
_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def padded(c: Call, x: SymTensor, pads: Sequence[Any], mode: str, value: Any = 0) -> SymTensor:
    """torch's pads: pairs from the last axis backwards; negative ones crop. Borders of "reflect" and "edge"
    may repeat what is cropped, those of "wrap" may not."""
    low: list[Any] = [0] * x.ndim
    high: list[Any] = [0] * x.ndim
    for i in range(len(pads) // 2):
        low[x.ndim - 1 - i], high[x.ndim - 1 - i] = pads[2 * i], pads[2 * i + 1]
    crops_first = mode not in ("reflect", "edge")
    if crops_first:
        x = _cropped(x, low, high)
    wide = [[p if not isinstance(p, int) or p > 0 else 0 for p in side] for side in (low, high)]
    if any(not isinstance(p, int) or p for side in wide for p in side):
        fill = [c.number(value, x.dtype)] if mode == "constant" else []
        x = ops.pad(x, *fill, low=wide[0], high=wide[1], mode=mode)
    return x if crops_first else _cropped(x, low, high)


def _cropped(x: SymTensor, low: Sequence[Any], high: Sequence[Any]) -> SymTensor:
    """Without what negative pads name."""
    starts, ends = ([-p if isinstance(p, int) and p < 0 else 0 for p in side] for side in (low, high))
    if not any(starts) and not any(ends):
        return x
    limits = [size - end for size, end in zip(x.shape, ends, strict=True)]
    return ops.slice(x, starts=starts, limits=limits, steps=[1] * x.ndim)


@rule("constant_pad_nd")
def _constant_pad(c: Call, x: Any, pad: Sequence[Any], value: Any = 0) -> SymTensor:
    return padded(c, x, pad, "constant", value)


@rule("pad")
def _pad(c: Call, x: Any, pad: Sequence[Any], mode: str = "constant", value: Any = None) -> SymTensor:
    return padded(c, x, pad, _MODES[mode], 0 if value is None else value)


@rule("_pad_circular", "aicf.circular_pad")
def _circular(c: Call, x: Any, pad: Sequence[Any]) -> SymTensor:
    return padded(c, x, pad, "wrap")


def _of_all_ranks(name: str) -> list[str]:
    return [name.format(rank) for rank in (1, 2, 3)]


@rule(*_of_all_ranks("reflection_pad{}d"))
def _reflect(c: Call, x: Any, pad: Sequence[Any]) -> SymTensor:
    return padded(c, x, pad, "reflect")


@rule(*_of_all_ranks("replication_pad{}d"))
def _replicate(c: Call, x: Any, pad: Sequence[Any]) -> SymTensor:
    return padded(c, x, pad, "edge")


@rule(*_of_all_ranks("reflection_pad{}d_backward"))
def _reflect_backward(c: Call, grad: Any, x: Any, pad: Sequence[Any]) -> SymTensor:
    return _unpadded(c, grad, pad, _unreflected)


@rule(*_of_all_ranks("replication_pad{}d_backward"))
def _replicate_backward(c: Call, grad: Any, x: Any, pad: Sequence[Any]) -> SymTensor:
    return _unpadded(c, grad, pad, _unreplicated)


@rule("aicf.circular_pad_backward")
def _circular_backward(c: Call, grad: Any, pad: Sequence[Any]) -> SymTensor:
    return _unpadded(c, grad, pad, _unwrapped)


def _unpadded(
    c: Call, grad: SymTensor, pads: Sequence[Any], back: Callable[[SymTensor, int, int, int], SymTensor]
) -> SymTensor:
    """The gradient with its borders added back, axis by axis; what was cropped has got none."""
    grad = c.summed(grad)
    for i in range(len(pads) // 2):
        axis, (low, high) = grad.ndim - 1 - i, pads[2 * i : 2 * i + 2]
        if not isinstance(low, int) or not isinstance(high, int):
            raise Decompose("padding of a symbolic size")
        wide = max(low, 0), max(high, 0)
        grad = with_zeros(grad, axis, max(-low, 0), c.shape[axis] + sum(wide))
        if any(wide):
            grad = back(grad, axis, *wide)
    return c.cast(grad)


def _unreflected(grad: SymTensor, axis: int, low: int, high: int) -> SymTensor:
    """A border comes back in reverse beside the edge element, which it left out."""
    size = grad.shape[axis] - low - high
    start = ops.reverse(take(grad, axis, 0, low), axes=[axis]) if low else None
    end = ops.reverse(take(grad, axis, low + size, high), axes=[axis]) if high else None
    middle = size - 2 - low - high
    if isinstance(middle, int) and middle >= 0:
        near, far = take(grad, axis, low + 1, low), take(grad, axis, low + size - 1 - high, high)
        parts = [
            take(grad, axis, low, 1),
            near if start is None else near + start,
            take(grad, axis, 2 * low + 1, middle),
            far if end is None else far + end,
            take(grad, axis, low + size - 1, 1),
        ]
        return joined(parts, axis)
    total = take(grad, axis, low, size)
    if start is not None:
        total = total + with_zeros(start, axis, 1, size)
    return total if end is None else total + with_zeros(end, axis, size - 1 - high, size)


def _unwrapped(grad: SymTensor, axis: int, low: int, high: int) -> SymTensor:
    """A border goes to the elements at the other end."""
    size = grad.shape[axis] - low - high
    start, end = take(grad, axis, 0, low), take(grad, axis, low + size, high)
    middle = size - low - high
    if isinstance(middle, int) and middle >= 0:
        first, last = take(grad, axis, low, high), take(grad, axis, size, low)
        parts = [first + end, take(grad, axis, low + high, middle), last + start]
        return joined(parts, axis)
    total = take(grad, axis, low, size)
    if low:
        total = total + with_zeros(start, axis, size - low, size)
    return total + with_zeros(end, axis, 0, size) if high else total


def _unreplicated(grad: SymTensor, axis: int, low: int, high: int) -> SymTensor:
    """The sum of a border goes to the edge element."""
    size = grad.shape[axis] - low - high
    if isinstance(size, int) and size == 1:
        return ops.reduce_sum(grad, axes=[axis], keepdims=True)

    def summed(start: Any, count: int) -> SymTensor:
        part = take(grad, axis, start, count)
        return part if count == 1 else ops.reduce_sum(part, axes=[axis], keepdims=True)

    if isinstance(size, int):
        middle = take(grad, axis, low + 1, size - 2)
        return joined([summed(0, low + 1), middle, summed(low + size - 1, high + 1)], axis)
    total = take(grad, axis, low, size)
    if low:
        total = total + with_zeros(summed(0, low), axis, 0, size)
    return total + with_zeros(summed(low + size, high), axis, size - 1, size) if high else total
