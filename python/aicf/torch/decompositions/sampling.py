"""Sampling of images and volumes, image resizing that widens its filter where it shrinks, and gradients of
both."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch

from .pools import spread_axes
from .table import decomposes

__all__ = ["grid_sampler", "grid_sampler_backward"]

aten = torch.ops.aten
_LINEAR, _NEAREST, _CUBIC = 0, 1, 2
_ZEROS, _BORDER, _REFLECTION = 0, 1, 2
_MOST_SLICES = 9  # of one sum
_CUBIC_SHAPE = -0.75  # of sampling and resizing; -0.5 of resizing with a widened filter


@dataclass(frozen=True)
class _Tap:
    """A position that a sample reads along one axis, its weight, and the weight's slope by the coordinate."""

    place: torch.Tensor
    weight: Any
    slope: Any


def _unpadded(x: torch.Tensor, size: Any, padding: int, align: bool) -> tuple[torch.Tensor, Any]:
    """Positions brought into an axis, and their slope by what they were: 0 on a border, as torch has it."""
    slope: Any = 1
    if padding == _REFLECTION:
        low, span = (0.0, float(size - 1)) if align else (-0.5, float(size))
        if span == 0:
            return torch.zeros_like(x), 0
        away = (x - low).abs()
        folds, rest = torch.floor(away / span), torch.fmod(away, span)
        forth = folds % 2 == 0
        slope = torch.where(forth == (x >= low), 1, -1)
        x = torch.where(forth, rest, span - rest) + low
    if padding == _ZEROS:
        return x, slope
    return x.clamp(0, size - 1), torch.where((x > 0) & (x < size - 1), slope, 0)


def _taps(x: torch.Tensor, size: Any, interpolation: int, padding: int, align: bool) -> list[_Tap]:
    """Of coordinates -1..1 along one axis."""
    scale = (size - 1) / 2 if align else size / 2
    if align or interpolation == _NEAREST:  # nearest as torch rounds it: halves are exact
        x = (x + 1) * scale - (0 if align else 0.5)
    else:
        x = x * scale + (scale - 0.5)
    if interpolation == _CUBIC:
        low = x.floor()
        away = [x - low - step for step in range(-1, 3)]
        places = [_unpadded(low + step, size, padding, align)[0] for step in range(-1, 3)]
        return [
            _Tap(place, _cubic(d, _CUBIC_SHAPE), _cubic_slope(d, _CUBIC_SHAPE) * scale)
            for place, d in zip(places, away, strict=True)
        ]
    x, slope = _unpadded(x, size, padding, align)
    if interpolation == _NEAREST:
        return [_Tap(x.round(), 1, None)]
    low, slope = x.floor(), slope * scale
    return [_Tap(low, 1 - (x - low), -slope), _Tap(low + 1, x - low, slope)]


def _within(tap: _Tap, size: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """The position that a tap reads, an edge in place of one outside, and its weight, which is 0 there."""
    place = tap.place.clamp(0, size - 1)
    return place.long(), torch.where(place == tap.place, tap.weight, 0).to(place.dtype)


def _nested(corners: Sequence[torch.Tensor], weights: Sequence[Sequence[torch.Tensor]]) -> torch.Tensor:
    """The weighted sum of corners, the last axis fastest."""
    if not weights:
        return corners[0]
    step = len(corners) // len(weights[0])
    parts = [
        _nested(corners[i * step : (i + 1) * step], weights[1:]) * weight
        for i, weight in enumerate(weights[0])
    ]
    return functools.reduce(torch.add, parts)


@dataclass(frozen=True)
class _Sampler:
    """What each sample of a grid reads of positions [N, ..., C], and the dtype that it computes in."""

    x: torch.Tensor
    dtype: torch.dtype
    axes: list[list[_Tap]]

    def corners(self) -> Iterator[tuple[_Tap, ...]]:
        return product(*self.axes)

    def rows(self, corner: Sequence[_Tap]) -> tuple[torch.Tensor, torch.Tensor]:
        """Which of all positions a corner is, and whether it is inside."""
        places = list(zip((tap.place for tap in corner), self.x.shape[1:], strict=False))
        inside = torch.ones_like(corner[0].place, dtype=torch.bool)
        for place, size in places:
            inside = inside & (place >= 0) & (place <= size - 1)
        row = torch.arange(self.x.shape[0], device=self.x.device).reshape(-1, *[1] * len(corner))
        for place, size in places:
            row = row * size + torch.where(inside, place, 0).long()
        return row, inside

    def values(self, row: torch.Tensor) -> torch.Tensor:
        return self.x.flatten(0, -2)[row].to(self.dtype)


def _weight(factors: Sequence[Any], inside: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The product of the factors of all axes [N, ..., 1], 0 outside."""
    weight: Any = inside.to(dtype)
    for factor in factors:
        weight = weight * factor
    return weight[..., None]


def _axes_of(
    grid: torch.Tensor, x: torch.Tensor, interpolation: int, padding: int, align: bool
) -> list[list[_Tap]]:
    """In f32 or f64; a grid has the last axis first."""
    wide = torch.promote_types(x.dtype, torch.float32)
    sizes = x.shape[2:]
    return [
        _taps(grid[..., len(sizes) - 1 - a].to(wide), size, interpolation, padding, align)
        for a, size in enumerate(sizes)
    ]


def _sampler(x: torch.Tensor, grid: torch.Tensor, interpolation: int, padding: int, align: bool) -> _Sampler:
    axes = _axes_of(grid, x, interpolation, padding, align)
    return _Sampler(x.movedim(1, -1), torch.promote_types(x.dtype, torch.float32), axes)


@decomposes(aten.grid_sampler_2d.default, aten.grid_sampler_3d.default)
def grid_sampler(
    x: torch.Tensor, grid: torch.Tensor, interpolation: int, padding: int, align_corners: bool
) -> torch.Tensor:
    """Every corner is one gather whose indices all channels share: on a GPU one region reads them all."""
    sizes, places = x.shape[2:], grid.shape[1:-1]
    axes = []
    for size, taps in zip(sizes, _axes_of(grid, x, interpolation, padding, align_corners), strict=True):
        axes.append([_within(tap, size) for tap in taps])
    flat, corners = x.flatten(2), []
    for corner in product(*axes):
        row = corner[0][0]
        for (place, _), size in zip(corner[1:], sizes[1:], strict=True):
            row = row * size + place
        indices = row.flatten(1)[:, None].expand(-1, x.shape[1], -1)
        corners.append(flat.gather(2, indices).to(torch.promote_types(x.dtype, torch.float32)))
    weights = [[weight.flatten(1)[:, None] for _, weight in taps] for taps in axes]
    return _nested(corners, weights).to(x.dtype).unflatten(2, places)


@decomposes(aten.grid_sampler_2d_backward.default, aten.grid_sampler_3d_backward.default)
def grid_sampler_backward(
    grad: torch.Tensor,
    x: torch.Tensor,
    grid: torch.Tensor,
    interpolation: int,
    padding: int,
    align_corners: bool,
    mask: Sequence[bool],
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """With respect to the positions and, where the mask says so, to the grid. What all corners add to the
    positions is one product, which a scatter can make itself."""
    sampler = _sampler(x, grid, interpolation, padding, align_corners)
    dy = grad.movedim(1, -1).flatten(0, -2).to(sampler.dtype)
    along = [torch.zeros_like(grid[..., 0], dtype=dy.dtype) for _ in sampler.axes]
    rows, shares = [], []
    for corner in sampler.corners():
        row, inside = sampler.rows(corner)
        weights = [tap.weight for tap in corner]
        rows.append(row.flatten())
        shares.append(_weight(weights, inside, dy.dtype).flatten(0, -2))
        if interpolation == _NEAREST or not mask[1]:
            continue
        read = (sampler.values(rows[-1]) * dy).sum(-1).reshape(row.shape)
        for axis, tap in enumerate(corner):
            factors = [*weights[:axis], tap.slope, *weights[axis + 1 :]]
            along[axis] = along[axis] + read * _weight(factors, inside, dy.dtype)[..., 0]
    dx = None
    if mask[0]:
        parts = dy * torch.stack(shares)
        zeros = torch.zeros_like(sampler.x, dtype=dy.dtype).flatten(0, -2)
        dx = zeros.index_put((torch.stack(rows),), parts, accumulate=True)
        dx = dx.reshape(sampler.x.shape).movedim(-1, 1).to(x.dtype).contiguous()
    return dx, torch.stack(along[::-1], -1).to(grid.dtype) if mask[1] else None


def _triangle(x: torch.Tensor) -> torch.Tensor:
    return (1 - x.abs()).clamp(min=0)


def _cubic(x: torch.Tensor, a: float = -0.5) -> torch.Tensor:
    x = x.abs()
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return torch.where(x < 1, near, torch.where(x < 2, far, 0))


def _cubic_slope(x: torch.Tensor, a: float) -> torch.Tensor:
    d = x.abs()
    near = (3 * (a + 2) * d - 2 * (a + 3)) * d
    far = (3 * a * d - 10 * a) * d + 8 * a
    return x.sign() * torch.where(d < 1, near, torch.where(d < 2, far, 0))


def _lanczos(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x.abs() < 3, torch.sinc(x) * torch.sinc(x / 3), 0)


def _matrix(
    size: int, out: int, align: bool, factor: float | None, support: int, filter_: Callable[..., Any], x: Any
) -> torch.Tensor:
    """Weights [out, size] of one axis; the filter is as much wider as the axis shrinks."""
    if align:
        scale = (size - 1) / (out - 1) if out > 1 else 0.0
    else:
        scale = 1 / factor if factor is not None and factor > 0 else size / out
    reach = support * scale if scale >= 1 else float(support)
    centre = scale * (torch.arange(out, dtype=torch.float64, device=x.device) + 0.5)
    low = (centre - reach + 0.5).floor().clamp(min=0)
    high = (centre + reach + 0.5).floor().clamp(max=size)
    place = torch.arange(size, dtype=torch.float64, device=x.device)
    weights = filter_((place - centre[:, None] + 0.5) / max(scale, 1.0))
    weights = torch.where((place >= low[:, None]) & (place < high[:, None]), weights, 0)
    return (weights / weights.sum(-1, keepdim=True)).to(x.dtype)


def _resized(
    support: int, filter_: Callable[..., Any]
) -> tuple[Callable[..., torch.Tensor], Callable[..., torch.Tensor]]:
    """Resizing, and its gradient."""

    def resize(
        x: torch.Tensor, size: Any, align_corners: bool, scales_h: Any = None, scales_w: Any = None
    ) -> torch.Tensor:
        height, width = x.shape[-2:]
        rows = _matrix(height, size[0], align_corners, scales_h, support, filter_, x)
        columns = _matrix(width, size[1], align_corners, scales_w, support, filter_, x)
        return rows @ (x @ columns.t())

    def backward(
        grad: torch.Tensor,
        size: Any,
        source: Any,
        align_corners: bool,
        scales_h: Any = None,
        scales_w: Any = None,
    ) -> torch.Tensor:
        rows = _matrix(source[2], size[0], align_corners, scales_h, support, filter_, grad)
        columns = _matrix(source[3], size[1], align_corners, scales_w, support, filter_, grad)
        return rows.t() @ (grad @ columns)

    return resize, backward


for _name, _support, _filter in (
    ("bilinear", 1, _triangle),
    ("bicubic", 2, _cubic),
    ("lanczos", 3, _lanczos),
):
    _resize, _backward = _resized(_support, _filter)
    if hasattr(aten, f"_upsample_{_name}2d_aa"):
        decomposes(getattr(aten, f"_upsample_{_name}2d_aa").default)(_resize)
        decomposes(getattr(aten, f"_upsample_{_name}2d_aa_backward").default)(_backward)


def _scale(size: int, out: int, factor: float | None) -> float:
    return 1 / factor if factor is not None and factor > 0 else size / out


def _nearest(size: int, out: int, factor: float | None, offset: float, x: torch.Tensor) -> torch.Tensor:
    """Which position each of `out` places repeats: a matrix [out, size]."""
    place = torch.arange(out, dtype=torch.float32, device=x.device) + offset
    place = place * _scale(size, out, factor)
    return place.long().clamp(max=size - 1)[:, None] == torch.arange(size, device=x.device)


def _between(
    size: int, out: int, align: bool, factor: float | None, clamped: bool, x: torch.Tensor
) -> torch.Tensor:
    """The place among the positions of each of `out`."""
    place = torch.arange(out, dtype=torch.float64, device=x.device)
    if align:
        return place * ((size - 1) / (out - 1) if out > 1 else 0.0)
    place = (place + 0.5) * _scale(size, out, factor) - 0.5
    return place.clamp(min=0) if clamped else place


def _linear(size: int, out: int, align: bool, factor: float | None, x: torch.Tensor) -> torch.Tensor:
    """The weights [out, size] of the two positions beside each of `out` places."""
    place = _between(size, out, align, factor, True, x).clamp(max=size - 1)
    return (1 - (place[:, None] - torch.arange(size, device=x.device)).abs()).clamp(min=0)


def _cubics(size: int, out: int, align: bool, factor: float | None, x: torch.Tensor) -> torch.Tensor:
    """The weights [out, size] of the four positions around each of `out` places; the edges are repeated."""
    place = _between(size, out, align, factor, False, x)[:, None]
    near = place.floor() + torch.arange(-1, 3, device=x.device)
    weights = _cubic(place - near, _CUBIC_SHAPE)[..., None]
    taken = near.clamp(0, size - 1)[..., None] == torch.arange(size, device=x.device)
    return (weights * taken).sum(1)


def _axes(
    size: Sequence[int], source: Sequence[int], factors: Sequence[float | None]
) -> list[tuple[int, int, float | None]]:
    """Of each axis, positions, places and the factor that was asked for."""
    missing = (None,) * (len(size) - len(factors))
    return list(zip(source[2:], size, (*factors, *missing), strict=True))


def _repeating_backward(offset: float) -> Callable[..., torch.Tensor]:
    """A position sums the places that repeat it: neighbours, where they are equally many everywhere."""

    def backward(
        grad: torch.Tensor, size: Sequence[int], source: Sequence[int], *factors: float | None
    ) -> torch.Tensor:
        axes = _axes(size, source, factors)
        if all(out % n == 0 and factor in (None, out / n) for n, out, factor in axes):
            return _sum_of_repeats(grad, [out // n for n, out, _ in axes])
        return spread_axes(grad, [_nearest(*axis, offset, grad) for axis in axes])

    return backward


def _sum_of_repeats(grad: torch.Tensor, repeats: Sequence[int]) -> torch.Tensor:
    """Of so many neighbours along each axis after the second. A few slices are one expression."""
    if math.prod(repeats) <= _MOST_SLICES:
        wide = torch.promote_types(grad.dtype, torch.float32)
        steps = (
            [slice(first, None, step) for first, step in zip(starts, repeats, strict=True)]
            for starts in product(*map(range, repeats))
        )
        return functools.reduce(torch.add, (grad[(..., *step)].to(wide) for step in steps)).to(grad.dtype)
    for axis in range(grad.ndim - 1, 1, -1):
        grad = grad.unflatten(axis, (-1, repeats[axis - 2])).sum(axis + 1)
    return grad


def _weighted_backward(weights: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def backward(
        grad: torch.Tensor, size: Sequence[int], source: Sequence[int], align: bool, *factors: float | None
    ) -> torch.Tensor:
        axes = _axes(size, source, factors)
        return spread_axes(grad, [weights(n, out, align, factor, grad) for n, out, factor in axes])

    return backward


for _rank in (1, 2, 3):
    decomposes(getattr(aten, f"upsample_nearest{_rank}d_backward").default)(_repeating_backward(0.0))
    decomposes(getattr(aten, f"_upsample_nearest_exact{_rank}d_backward").default)(_repeating_backward(0.5))
for _name, _weights in (
    ("linear1d", _linear),
    ("bilinear2d", _linear),
    ("trilinear3d", _linear),
    ("bicubic2d", _cubics),
):
    decomposes(getattr(aten, f"upsample_{_name}_backward").default)(_weighted_backward(_weights))
