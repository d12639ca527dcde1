"""Interpolation of sizes that are numbers, axis by axis.

A whole factor repeats every position: a view, which fuses with what reads it. Other factors gather, and so do
cubics: on a GPU a region reads what it gathers itself.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy

from ... import ops
from ...symtensor import SymTensor
from ..call import Call, Decompose
from .shape import take
from .table import rule

__all__: list[str] = []

_MOST_NEIGHBOURS = 9  # of a position, in one expression


@dataclass(frozen=True)
class _Axis:
    """`size` positions become `out`; positions of the result are `step` apart in those of the operand."""

    axis: int
    size: int
    out: int
    step: float

    @property
    def factor(self) -> int:
        """How often each position repeats; 0 if not equally often."""
        whole = self.size > 0 and self.out % self.size == 0
        return self.out // self.size if whole and self.step == self.size / self.out else 0

    def nearest(self, offset: float) -> numpy.ndarray:
        """The position that each of the result takes, in f32 as torch."""
        places = (numpy.arange(self.out, dtype=numpy.float32) + numpy.float32(offset)) * numpy.float32(
            self.step
        )
        return numpy.minimum(places.astype(numpy.int32), self.size - 1)

    def between(self, align: bool) -> numpy.ndarray:
        """Where among the positions each of the result lies."""
        place = numpy.arange(self.out, dtype=numpy.float64)
        if align:
            return place * ((self.size - 1) / (self.out - 1) if self.out > 1 else 0.0)
        return (place + 0.5) * self.step - 0.5

    def linear(self, align: bool) -> tuple[numpy.ndarray, numpy.ndarray]:
        """The lower of two positions beside each of the result, and how far it is from there."""
        place = numpy.maximum(self.between(align), 0)
        low = numpy.minimum(place.astype(numpy.int32), self.size - 1)
        return low, numpy.minimum(place - low, 1)

    def cubic(self, align: bool) -> list[tuple[numpy.ndarray, numpy.ndarray]]:
        """The four positions around each of the result, the edges repeated, and their weights."""
        place = self.between(align)
        low = numpy.floor(place)
        return [
            (
                numpy.clip(low + step, 0, self.size - 1).astype(numpy.int32),
                _cubic_weight(numpy.abs(place - (low + step))),
            )
            for step in range(-1, 3)
        ]


def _cubic_weight(d: numpy.ndarray) -> numpy.ndarray:
    """Keys' kernel of shape -0.75 at distances up to 2, as torch has it."""
    a = -0.75
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return numpy.where(d <= 1, near, far)


def _axes(c: Call, x: SymTensor, factors: Sequence[float | None] | None) -> list[_Axis]:
    first, found = 2, []
    for axis in range(first, x.ndim):
        size, out = x.shape[axis], c.shape[axis]
        if not isinstance(size, int) or not isinstance(out, int) or size == 0:
            raise Decompose("interpolation between symbolic sizes")
        factor = factors[axis - first] if factors is not None else None
        step = 1 / factor if factor is not None and factor > 0 else size / out
        if size != out or step != 1:
            found.append(_Axis(axis, size, out, step))
    return found


def _repeated(x: SymTensor, factors: dict[int, int]) -> SymTensor:
    """Every position along these axes so many times."""
    apart: list[Any] = []
    wide: list[Any] = []
    for axis, size in enumerate(x.shape):
        apart += [size, 1] if axis in factors else [size]
        wide += [size, factors[axis]] if axis in factors else [size]
    shape = [size * factors.get(axis, 1) for axis, size in enumerate(x.shape)]
    return ops.reshape(ops.broadcast_to(ops.reshape(x, shape=apart), shape=wide), shape=shape)


def _by_growth(axes: Sequence[_Axis]) -> list[_Axis]:
    """Those that shrink first; of those that grow, the last axis, so that whole rows move at the end."""
    return sorted(axes, key=lambda a: (a.out / a.size, -a.axis if a.out > a.size else a.axis))


def _taken(c: Call, x: SymTensor, axis: int, places: numpy.ndarray) -> SymTensor:
    """x at constant positions: a slice where they are equally far apart."""
    steps = numpy.diff(places)
    if len(places) > 0 and (steps == steps[:1]).all() and (len(steps) == 0 or steps[0] > 0):
        return take(x, axis, int(places[0]), len(places), int(steps[0]) if len(steps) else 1)
    return ops.gather(x, c.graph.constant(places), axis=axis)


def _nearest(c: Call, x: SymTensor, factors: Any, offset: float) -> SymTensor:
    axes = _axes(c, x, factors)
    repeats = {a.axis: a.factor for a in axes if a.factor > 1}
    for a in _by_growth(axes):
        if a.axis not in repeats:
            x = _taken(c, x, a.axis, a.nearest(offset))
    return _repeated(x, repeats) if repeats else x


for _rank in (1, 2, 3):
    for _name, _offset in ((f"upsample_nearest{_rank}d", 0.0), (f"_upsample_nearest_exact{_rank}d", 0.5)):

        def _to_size(c: Call, x: Any, size: Any, *factors: Any, offset: float = _offset) -> SymTensor:
            return _nearest(c, x, factors or None, offset)

        def _by_factor(c: Call, x: Any, size: Any, factors: Any, offset: float = _offset) -> SymTensor:
            return _nearest(c, x, factors, offset)

        rule(_name)(_to_size)
        rule(f"{_name}.vec")(_by_factor)


# --- between two positions


def _along(c: Call, weight: numpy.ndarray, dtype: str, rank: int, axis: int) -> SymTensor:
    """One weight for each position of an axis."""
    shape = [1] * rank
    shape[axis] = len(weight)
    return c.cast(c.graph.constant(weight.reshape(shape).astype(numpy.float64)), dtype)


def _mixed(
    c: Call, low: SymTensor, high: SymTensor, weight: numpy.ndarray, rank: int, axis: int
) -> SymTensor:
    far = _along(c, weight, low.dtype, rank, axis)
    return ops.add(low, ops.mul(far, ops.sub(high, low)))


def _between_gathered(c: Call, x: SymTensor, a: _Axis, align: bool) -> SymTensor:
    low, weight = a.linear(align)
    high = numpy.minimum(low + 1, a.size - 1)
    parts = [c.summed(_taken(c, x, a.axis, places)) for places in (low, high)]
    return _mixed(c, parts[0], parts[1], weight, x.ndim, a.axis)


def _between_neighbours(c: Call, x: SymTensor, axes: Sequence[_Axis]) -> SymTensor:
    """A position of the result lies between two of three neighbours, at a distance that only its place among
    the repetitions decides. The edges are repeated."""
    low: list[Any] = [0] * x.ndim
    for a in axes:
        low[a.axis] = 1
    padded = ops.pad(x, low=low, high=low, mode="edge")
    place = {a.axis: a.axis + i for i, a in enumerate(axes)}
    factors = {a.axis: a.factor for a in axes}
    rank = x.ndim + len(axes)

    apart: list[Any] = []
    full: list[Any] = []
    for axis, size in enumerate(x.shape):
        apart += [size, 1] if axis in place else [size]
        full += [size, factors[axis]] if axis in place else [size]

    def neighbour(shifts: tuple[int, ...]) -> SymTensor:
        part = padded
        for a, shift in zip(axes, shifts, strict=True):
            part = take(part, a.axis, shift, a.size)
        # What computes all places of the result is one region.
        return c.summed(ops.broadcast_to(ops.reshape(part, shape=apart), shape=full))

    values = {shifts: neighbour(shifts) for shifts in itertools.product(range(3), repeat=len(axes))}
    for a in reversed(axes):
        centre = (numpy.arange(a.factor) + 0.5) / a.factor - 0.5
        shape = [1] * rank
        shape[place[a.axis] + 1] = a.factor
        before = c.graph.constant((centre < 0).reshape(shape))
        weight = centre - numpy.floor(centre)
        values = {
            rest: _mixed(
                c,
                ops.select(before, values[(*rest, 0)], values[(*rest, 1)]),
                ops.select(before, values[(*rest, 1)], values[(*rest, 2)]),
                weight,
                rank,
                place[a.axis] + 1,
            )
            for rest in {shifts[:-1] for shifts in values}
        }
    shape = list(x.shape)
    for a in axes:
        shape[a.axis] = a.out
    return ops.reshape(values[()], shape=shape)


def _linear(c: Call, x: SymTensor, align: bool, factors: Any) -> SymTensor:
    axes = _axes(c, x, factors)
    whole = [a for a in axes if a.factor > 1 and not align]
    result = x
    for a in _by_growth(axes):
        if a not in whole:
            result = _between_gathered(c, result, a, align)
    while whole:
        count = min(len(whole), int(math.log(_MOST_NEIGHBOURS, 3)))
        result = _between_neighbours(c, result, whole[:count])
        whole = whole[count:]
    return c.cast(result)


def _linear_to_size(c: Call, x: Any, size: Any, align: bool, *factors: Any) -> SymTensor:
    return _linear(c, x, align, factors or None)


def _linear_by_factor(c: Call, x: Any, size: Any, align: bool, factors: Any) -> SymTensor:
    return _linear(c, x, align, factors)


for _name in ("linear1d", "bilinear2d", "trilinear3d"):
    rule(f"upsample_{_name}")(_linear_to_size)
    rule(f"upsample_{_name}.vec")(_linear_by_factor)


# --- between four positions


def _between_four(c: Call, x: SymTensor, a: _Axis, align: bool) -> SymTensor:
    def term(places: numpy.ndarray, weight: numpy.ndarray) -> SymTensor:
        part = c.summed(ops.gather(x, c.graph.constant(places), axis=a.axis))
        return ops.mul(part, _along(c, weight, part.dtype, x.ndim, a.axis))

    return functools.reduce(ops.add, itertools.starmap(term, a.cubic(align)))


def _cubic(c: Call, x: SymTensor, align: bool, factors: Any) -> SymTensor:
    for a in _by_growth(_axes(c, x, factors)):
        x = _between_four(c, x, a, align)
    return c.cast(x)


@rule("upsample_bicubic2d")
def _cubic_to_size(c: Call, x: Any, size: Any, align: bool, *factors: Any) -> SymTensor:
    return _cubic(c, x, align, factors or None)


@rule("upsample_bicubic2d.vec")
def _cubic_by_factor(c: Call, x: Any, size: Any, align: bool, factors: Any) -> SymTensor:
    return _cubic(c, x, align, factors)
