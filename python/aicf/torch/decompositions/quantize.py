"""Values rounded as if they were quantised; with each, whether it was inside the range."""

from __future__ import annotations

from typing import Any

import torch

from .table import decomposes

__all__ = ["per_channel", "per_tensor"]

aten = torch.ops.aten


@decomposes(aten.fake_quantize_per_tensor_affine_cachemask.default)
def per_tensor(x: torch.Tensor, scale: Any, zero_point: Any, low: int, high: int) -> Any:
    level = torch.round(x * (1.0 / scale)) + zero_point
    inside = (level >= low) & (level <= high)
    return ((level.clamp(low, high) - zero_point) * scale).to(x.dtype), inside


@decomposes(aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default)
def per_tensor_of_tensors(
    x: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor, enabled: torch.Tensor, low: int, high: int
) -> Any:
    rounded, inside = per_tensor(x, scale, zero_point, low, high)
    on = enabled[0] != 0
    return torch.where(on, rounded, x), inside | ~on


@decomposes(aten.fake_quantize_per_channel_affine_cachemask.default)
def per_channel(
    x: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor, axis: int, low: int, high: int
) -> Any:
    shape = [1] * x.ndim
    shape[axis] = -1
    return per_tensor(x, scale.reshape(shape), zero_point.reshape(shape), low, high)
