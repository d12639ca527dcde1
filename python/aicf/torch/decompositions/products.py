"""Products of three, and gradients of distances and of normed weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .table import decomposes

__all__ = ["cdist_backward", "pdist_backward", "trilinear", "weight_norm_backward"]

aten = torch.ops.aten


@decomposes(aten._trilinear.default)
def trilinear(
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    expand_a: Sequence[int],
    expand_b: Sequence[int],
    expand_c: Sequence[int],
    summed: Sequence[int],
    unroll_dim: int = 1,
) -> torch.Tensor:
    values = []
    for value, axes in ((a, expand_a), (b, expand_b), (c, expand_c)):
        for axis in sorted(axes):
            value = value.unsqueeze(axis)
        values.append(value)
    product = values[0] * values[1] * values[2]
    return product.sum(list(summed)) if summed else product


@decomposes(aten._cdist_backward.default)
def cdist_backward(
    grad: torch.Tensor, x: torch.Tensor, y: torch.Tensor, p: float, distance: torch.Tensor
) -> torch.Tensor:
    """With respect to x; where two points are one, the gradient is 0."""
    apart = x[..., :, None, :] - y[..., None, :, :]
    grad, distance = grad[..., None], distance[..., None]
    if p == 0:
        return torch.zeros_like(x)
    if p == 1:
        slope = apart.sign()
    elif p == float("inf"):
        slope = apart.sign() * (apart.abs() == distance)
    else:
        safe = torch.where(distance == 0, 1, distance)
        slope = apart.sign() * (apart.abs() / safe) ** (p - 1)
        slope = torch.where((distance == 0) | (apart == 0), 0, slope)
    return (grad * slope).sum(-2)


@decomposes(aten._pdist_backward.default)
def pdist_backward(grad: torch.Tensor, x: torch.Tensor, p: float, distance: torch.Tensor) -> torch.Tensor:
    """That of all distances of x to x; pdist lists those of i < j, row by row."""
    count = x.shape[0]
    if count < 2:
        return torch.zeros_like(x)
    row = torch.arange(count, device=x.device)
    low, high = torch.minimum(row[:, None], row), torch.maximum(row[:, None], row)
    place = (low * (2 * count - low - 1) // 2 + high - low - 1).clamp(min=0)

    def square(listed: torch.Tensor) -> torch.Tensor:
        return torch.where(low < high, listed[place], 0)

    return cdist_backward(square(grad), x, x, p, square(distance))


@decomposes(aten._weight_norm_interface_backward.default)
def weight_norm_backward(
    grad: torch.Tensor, v: torch.Tensor, g: torch.Tensor, _norms: torch.Tensor, dim: int
) -> Any:
    """Of w = g v / |v|, the norm over all axes but `dim`."""
    axes = [axis for axis in range(v.ndim) if axis != dim]
    norm = v.square().sum(axes, keepdim=True).sqrt()
    dot = (grad * v).sum(axes, keepdim=True)
    return g / norm * (grad - v * (dot / norm.square())), dot / norm
