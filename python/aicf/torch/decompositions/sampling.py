"""Sampling of volumes, image resizing that widens its filter where it shrinks, and gradients of resizing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import torch

from .pools import spread_axes
from .table import decomposes

__all__ = ["grid_sampler_3d"]

aten = torch.ops.aten
_TRILINEAR, _NEAREST = 0, 1
_ZEROS, _BORDER, _REFLECTION = 0, 1, 2


def _pixel(x: torch.Tensor, size: Any, padding: int, align: bool) -> torch.Tensor:
    """Coordinates -1..1 as positions in an axis."""
    x = (x + 1) / 2 * (size - 1) if align else ((x + 1) * size - 1) / 2
    if padding == _REFLECTION:
        low, span = (0.0, float(size - 1)) if align else (-0.5, float(size))
        if span == 0:
            x = torch.zeros_like(x)
        else:
            away = (x - low).abs()
            folds, rest = torch.floor(away / span), torch.fmod(away, span)
            x = torch.where(folds % 2 == 0, rest, span - rest) + low
    return x if padding == _ZEROS else x.clamp(0, size - 1)


@decomposes(aten.grid_sampler_3d.default)
def grid_sampler_3d(
    x: torch.Tensor, grid: torch.Tensor, interpolation: int, padding: int, align_corners: bool
) -> torch.Tensor:
    sizes = x.shape[2:]
    axes = [_pixel(grid[..., 2 - a], sizes[a], padding, align_corners) for a in range(3)]
    batch = torch.arange(x.shape[0], device=x.device)[:, None, None, None]

    def at(places: list[torch.Tensor]) -> torch.Tensor:
        """[N, D, H, W, C]; zero outside."""
        inside = torch.ones_like(places[0], dtype=torch.bool)
        for place, size in zip(places, sizes, strict=True):
            inside = inside & (place >= 0) & (place <= size - 1)
        whole = [p.clamp(0, s - 1).long() for p, s in zip(places, sizes, strict=True)]
        return x.movedim(1, -1)[batch, whole[0], whole[1], whole[2]] * inside[..., None].to(x.dtype)

    if interpolation == _NEAREST:
        return at([p.round() for p in axes]).movedim(-1, 1).contiguous()
    lows = [p.floor() for p in axes]
    total = None
    for corner in product((0, 1), repeat=3):
        weight: Any = 1
        for p, low, side in zip(axes, lows, corner, strict=True):
            weight = weight * (p - low if side else 1 - (p - low))
        part = at([low + side for low, side in zip(lows, corner, strict=True)]) * weight[..., None]
        total = part if total is None else total + part
    assert total is not None
    return total.movedim(-1, 1).contiguous()


def _triangle(x: torch.Tensor) -> torch.Tensor:
    return (1 - x.abs()).clamp(min=0)


def _cubic(x: torch.Tensor, a: float = -0.5) -> torch.Tensor:
    x = x.abs()
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return torch.where(x < 1, near, torch.where(x < 2, far, 0))


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


def _nearest(size: int, out: int, factor: float | None, x: torch.Tensor) -> torch.Tensor:
    """Which position each of `out` places repeats: a matrix [out, size]."""
    place = torch.arange(out, dtype=torch.float32, device=x.device) * _scale(size, out, factor)
    return place.long().clamp(max=size - 1)[:, None] == torch.arange(size, device=x.device)


def _linear(size: int, out: int, align: bool, factor: float | None, x: torch.Tensor) -> torch.Tensor:
    """The weights [out, size] of the two positions beside each of `out` places."""
    place = torch.arange(out, dtype=torch.float64, device=x.device)
    if align:
        place = place * ((size - 1) / (out - 1) if out > 1 else 0.0)
    else:
        place = ((place + 0.5) * _scale(size, out, factor) - 0.5).clamp(min=0)
    place = place.clamp(max=size - 1)
    return (1 - (place[:, None] - torch.arange(size, device=x.device)).abs()).clamp(min=0)


def _axes(
    size: Sequence[int], source: Sequence[int], factors: Sequence[float | None]
) -> list[tuple[int, int, float | None]]:
    """Of each axis, positions, places and the factor that was asked for."""
    missing = (None,) * (len(size) - len(factors))
    return list(zip(source[2:], size, (*factors, *missing), strict=True))


def _nearest_backward(
    grad: torch.Tensor, size: Sequence[int], source: Sequence[int], *factors: float | None
) -> torch.Tensor:
    """A position sums the places that repeat it: neighbours, where they are equally many everywhere."""
    axes = _axes(size, source, factors)
    if all(out % n == 0 and factor in (None, out / n) for n, out, factor in axes):
        apart = grad.reshape(*source[:2], *(part for n, out, _ in axes for part in (n, out // n)))
        return apart.sum(dim=[3 + 2 * i for i in range(len(axes))])
    return spread_axes(grad, [_nearest(*axis, grad) for axis in axes])


def _linear_backward(
    grad: torch.Tensor, size: Sequence[int], source: Sequence[int], align: bool, *factors: float | None
) -> torch.Tensor:
    return spread_axes(
        grad, [_linear(n, out, align, factor, grad) for n, out, factor in _axes(size, source, factors)]
    )


for _name in ("nearest1d", "nearest2d", "nearest3d"):
    decomposes(getattr(aten, f"upsample_{_name}_backward").default)(_nearest_backward)
for _name in ("linear1d", "bilinear2d", "trilinear3d"):
    decomposes(getattr(aten, f"upsample_{_name}_backward").default)(_linear_backward)
