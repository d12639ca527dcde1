"""Gradients of pools as gathers: every position sums what the windows over it give, in their order."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy

from ... import ops
from ...symtensor import SymTensor
from ..call import Call, Decompose
from ..decompositions.pools import SMALL_PLANE
from .convolutions import per_axis
from .pools import gathered_sums, larger_first, window_counts, window_spans
from .table import rule

__all__: list[str] = []

_MOST_WINDOWS = 9  # of a position; more are left to a scatter or a product


@dataclass(frozen=True)
class _Covering:
    """Positions of one axis are stride * q + r: the windows that may hold one are q + first to q + last."""

    stride: int
    padding: int
    reach: int
    size: Any

    @property
    def shifts(self) -> range:
        return range(
            -((self.reach - self.padding) // self.stride), (self.stride - 1 + self.padding) // self.stride + 1
        )

    @property
    def groups(self) -> Any:
        return -(-self.size // self.stride)

    def holds(self, shift: int) -> Any:
        """Whether a window at this shift reaches over each r."""
        tap = numpy.arange(self.stride) + self.padding - shift * self.stride
        return (tap >= 0) & (tap <= self.reach)


def _coverings(x: SymTensor, kernel: Any, stride: Any, padding: Any, dilation: Any = 1) -> list[_Covering]:
    rank = len(kernel)
    strides = per_axis(stride, rank) if not isinstance(stride, Sequence) or stride else list(kernel)
    lists = zip(
        kernel, strides, per_axis(padding, rank), per_axis(dilation, rank), x.shape[-rank:], strict=True
    )
    return [_Covering(s, p, d * (k - 1), size) for k, s, p, d, size in lists]


def _are_few(axes: Sequence[_Covering]) -> bool:
    """And of sizes that are numbers."""
    return (
        all(isinstance(axis.size, int) for axis in axes)
        and math.prod(len(axis.shifts) for axis in axes) <= _MOST_WINDOWS
    )


def _padded(c: Call, v: SymTensor, axes: Sequence[_Covering], none: Any) -> SymTensor:
    """Windows [..., windows] with `none` where a shift finds no window."""
    lead = [0] * (v.ndim - len(axes))
    low = [max(0, -axis.shifts[0]) for axis in axes]
    ends = [axis.groups + axis.shifts[-1] for axis in axes]
    high = [max(0, end - size) for end, size in zip(ends, v.shape[-len(axes) :], strict=True)]
    if not any(low) and not any(high):
        return v
    return ops.pad(v, c.number(none, v.dtype), low=[*lead, *low], high=[*lead, *high])


def _shifted(v: SymTensor, axes: Sequence[_Covering], shifts: Sequence[int]) -> SymTensor:
    """Padded windows at `shifts` as [..., groups, 1, ...]."""
    lead = list(v.shape)[: -len(axes)]
    starts = [shift + max(0, -axis.shifts[0]) for axis, shift in zip(axes, shifts, strict=True)]
    limits = [start + axis.groups for axis, start in zip(axes, starts, strict=True)]
    if any(starts) or limits != list(v.shape)[-len(axes) :]:
        starts = [0] * len(lead) + starts
        v = ops.slice(v, starts=starts, limits=[*lead, *limits], steps=[1] * v.ndim)
    return ops.reshape(v, shape=[*lead, *(size for axis in axes for size in (axis.groups, 1))])


def _sum_of_windows(
    c: Call, axes: Sequence[_Covering], term: Callable[[tuple[int, ...]], SymTensor]
) -> SymTensor:
    total: Any = None
    for shifts in itertools.product(*(axis.shifts for axis in axes)):
        part = term(shifts)
        total = part if total is None else ops.add(total, part)
    lead = list(c.shape)[: -len(axes)]
    total = ops.reshape(total, shape=[*lead, *(axis.groups * axis.stride for axis in axes)])
    if list(total.shape) != list(c.shape):
        total = ops.slice(total, starts=[0] * total.ndim, limits=list(c.shape), steps=[1] * total.ndim)
    return c.cast(total)


@rule("max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward")
def _max_pool_backward(
    c: Call,
    grad: Any,
    x: Any,
    kernel: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    indices: Any,
) -> SymTensor:
    """Each position asks the windows over it whether they chose it."""
    axes = _coverings(x, kernel, stride, padding, dilation)
    if _tile(axes, grad) and _are_own(c, len(axes)):
        return _maxima_of_tiles(c, grad, x, axes)
    if not _are_few(axes):
        return _scattered_maxima(c, grad, x, len(kernel), indices)
    position: Any = None
    step: Any = 1
    for i in reversed(range(len(axes))):
        axis = axes[i]
        shape = [1] * (2 * len(axes))
        shape[2 * i : 2 * i + 2] = [axis.groups, axis.stride]
        line = ops.iota(shape=[axis.groups * axis.stride], axis=0, dtype="i64")
        along = ops.mul(ops.reshape(line, shape=shape), c.number(step, "i64"))
        position = along if position is None else ops.add(along, position)
        step = step * axis.size

    places, given = _padded(c, indices, axes, -1), _padded(c, grad, axes, 0)
    windows_are_apart = all(len(axis.shifts) == 1 for axis in axes)

    def chosen(shifts: tuple[int, ...]) -> SymTensor:
        here = ops.eq(_shifted(places, axes, shifts), position)
        part = ops.select(here, _shifted(given, axes, shifts), c.number(0, given.dtype))
        return part if windows_are_apart else c.summed(part)

    return _sum_of_windows(c, axes, chosen)


def _tile(axes: Sequence[_Covering], grad: SymTensor) -> bool:
    """Whether each position lies in one window, which has few."""
    return math.prod(axis.stride for axis in axes) <= _MOST_WINDOWS and all(
        axis.reach == axis.stride - 1
        and axis.padding == 0
        and isinstance(axis.size, int)
        and axis.size == axis.stride * count
        for axis, count in zip(axes, grad.shape[-len(axes) :], strict=True)
    )


def _are_own(c: Call, rank: int) -> bool:
    """Whether the indices are those of the same pool of the same x in this graph."""
    x, *window, indices = c.node.args[1:]
    pool = indices.args[0] if indices.target is operator.getitem else None
    if pool is None or "max_pool" not in str(pool.target) or pool.args[0] is not x or pool.kwargs:
        return False
    kernel, *given = pool.args[1:]
    given += [kernel, 0, 1, False][len(given) :]  # stride, padding, dilation, ceil_mode

    def spread(values: Any) -> list[Any]:
        return [per_axis(v or kernel if i == 1 else v, rank) for i, v in enumerate(values)]

    return spread([kernel, *given]) == spread(window)


def _maxima_of_tiles(c: Call, grad: SymTensor, x: SymTensor, axes: Sequence[_Covering]) -> SymTensor:
    """Every position finds the maximum of its window again, as max_pool_indices does: a NaN stays, of equals
    the first. One region reads x and the gradient, and indices are not stored."""
    lead = list(x.shape)[: -len(axes)]
    full = [*lead, *(size for axis in axes for size in (axis.groups, axis.stride))]
    strides = [axis.stride for axis in axes]
    windows = ops.reshape(x, shape=full)

    def tap(at: tuple[int, ...]) -> SymTensor:
        starts, limits = [0] * len(full), list(full)
        for i, place in enumerate(at):
            starts[len(lead) + 2 * i + 1], limits[len(lead) + 2 * i + 1] = place, place + 1
        part = ops.slice(windows, starts=starts, limits=limits, steps=[1] * len(full))
        return ops.broadcast_to(part, shape=full)

    best, chosen = None, c.number(0, "i32")
    for number, at in enumerate(itertools.product(*(range(stride) for stride in strides))):
        value = tap(at)
        if best is None:
            best = value
            continue
        best, chosen = larger_first(best, chosen, value, c.number(number, "i32"))
    shape = [1] * len(lead) + [size for stride in strides for size in (1, stride)]
    own = c.graph.constant(numpy.arange(math.prod(strides), dtype="int32").reshape(shape))
    apart = [*lead, *(size for axis in axes for size in (axis.groups, 1))]
    given = ops.broadcast_to(ops.reshape(grad, shape=apart), shape=full)
    return ops.reshape(ops.select(ops.eq(chosen, own), given, c.number(0, given.dtype)), shape=c.shape)


def _scattered_maxima(c: Call, grad: Any, x: Any, rank: int, indices: Any) -> SymTensor:
    lead = list(x.shape)[:-rank]
    plane, window = math.prod(x.shape[-rank:]), math.prod(grad.shape[-rank:])
    zero = c.full([*lead, plane], 0)
    flat = ops.scatter_elements(
        zero,
        ops.reshape(indices, shape=[*lead, window]),
        ops.reshape(grad, shape=[*lead, window]),
        axis=len(lead),
        reduction="add",
    )
    return ops.reshape(flat, shape=c.shape)


@rule("avg_pool2d_backward", "avg_pool3d_backward")
def _avg_pool_backward(
    c: Call,
    grad: Any,
    x: Any,
    kernel: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: Any,
) -> SymTensor:
    axes = _coverings(x, kernel, stride, padding)
    windows = grad.shape[-len(axes) :]
    if not _are_few(axes) or any(len(axis.shifts) > 1 for axis in axes):
        raise Decompose("a product is shorter than a sum over windows that overlap, or sizes are symbolic")
    share = c.summed(grad)
    counts = numpy.ones(())
    for axis, count in zip(axes, windows, strict=True):
        start = numpy.arange(count) * axis.stride - axis.padding
        end = numpy.minimum(start + axis.reach + 1, axis.size + axis.padding)
        inside = numpy.minimum(end, axis.size) - numpy.maximum(start, 0)
        counts = counts[..., None] * (end - start if count_include_pad else inside)
    if divisor is not None or counts.min() == counts.max():
        share = ops.div(share, c.number(float(counts.min() if divisor is None else divisor), share.dtype))
    else:
        share = ops.div(share, c.cast(c.graph.constant(counts.astype(numpy.float32)), share.dtype))

    padded = _padded(c, share, axes, 0)

    def part(shifts: tuple[int, ...]) -> SymTensor:
        given = _shifted(padded, axes, shifts)
        holds = numpy.ones((), dtype=bool)
        for axis, shift in zip(axes, shifts, strict=True):
            holds = holds[..., None, None] & axis.holds(shift)[None, :]
        if holds.all() and all(axis.stride == 1 for axis in axes):
            return given
        return ops.select(c.graph.constant(holds), given, c.number(0, given.dtype))

    return _sum_of_windows(c, axes, part)


@rule("_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d_backward")
def _adaptive_backward(c: Call, grad: Any, x: Any) -> SymTensor:
    """A position sums the shares of the windows over it, which it gathers axis by axis, the last one first:
    whole rows move at the end."""
    rank = int(c.node.target._opname[-len("2d_backward")])
    axes = range(grad.ndim - rank, grad.ndim)
    sizes = [(x.shape[axis], grad.shape[axis]) for axis in axes]
    if not all(isinstance(n, int) and n for size in sizes for n in size):
        raise Decompose("sizes are symbolic")
    if math.prod(n for size in sizes for n in size) <= SMALL_PLANE:
        raise Decompose("one product is short")
    if any(_windows_over(*size).shape[1] > _MOST_WINDOWS for size in sizes):
        raise Decompose("many windows are over one position")
    spans = [(axis, window_spans(*size)) for axis, size in zip(axes, sizes, strict=True)]
    count = window_counts(grad.ndim, spans)
    total = c.summed(grad)
    total = ops.div(total, c.cast(c.graph.constant(count), total.dtype))
    for axis, (size, out) in reversed(list(zip(axes, sizes, strict=True))):
        if size != out:
            total = gathered_sums(c, total, axis, _windows_over(size, out))
    return c.cast(total)


def _windows_over(size: int, out: int) -> numpy.ndarray:
    """Of each position the windows over it, -1 behind the last."""
    spans = window_spans(size, out)
    over = [[o for o, (start, end) in enumerate(spans) if start <= i < end] for i in range(size)]
    most = max(map(len, over))
    return numpy.array([o + [-1] * (most - len(o)) for o in over], dtype=numpy.int64)
