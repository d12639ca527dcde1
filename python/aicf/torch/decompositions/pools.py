"""Gradients of pools, axis by axis with a matrix of which element fed which."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .table import decomposes

__all__ = [
    "SMALL_PLANE",
    "adaptive_avg_pool_backward",
    "avg_pool_backward",
    "spread_axes",
]

aten = torch.ops.aten


SMALL_PLANE = 1 << 14  # weights of a plane that are cheaper read whole than axis by axis


def spread_axes(grad: torch.Tensor, matrices: Sequence[torch.Tensor]) -> torch.Tensor:
    """Each of the last axes times its matrix [out, size]; small planes by one matrix of all axes."""
    sizes = [size for m in matrices for size in m.shape]
    if all(isinstance(size, int) for size in sizes) and math.prod(sizes) <= SMALL_PLANE:
        plane = functools.reduce(torch.kron, matrices)
        shape = [*grad.shape[: -len(matrices)], *(m.shape[1] for m in matrices)]
        return (grad.reshape(-1, plane.shape[0]) @ plane.to(grad.dtype)).reshape(shape)
    for axis, matrix in zip(range(-len(matrices), 0), matrices, strict=True):
        grad = (grad.movedim(axis, -1) @ matrix.to(grad.dtype)).movedim(-1, axis)
    return grad.contiguous()


def _adaptive(size: int, out: int, device: torch.device) -> torch.Tensor:
    window = torch.arange(out, device=device)[:, None]
    place = torch.arange(size, device=device)
    start, end = window * size // out, -(-(window + 1) * size // out)
    return torch.where((place >= start) & (place < end), 1 / (end - start).double(), 0)


def _decomposes_of_ranks(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Gives the rank first: the batch may be missing from the shape."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        for rank in (2, 3):
            decomposes(getattr(aten, name.format(rank)).default)(functools.partial(function, rank))
        return function

    return add


@_decomposes_of_ranks("_adaptive_avg_pool{}d_backward")
def adaptive_avg_pool_backward(rank: int, grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return spread_axes(grad, [_adaptive(x.shape[a], grad.shape[a], grad.device) for a in range(-rank, 0)])


@decomposes(aten.avg_pool2d_backward.default, aten.avg_pool3d_backward.default)
def avg_pool_backward(
    grad: torch.Tensor,
    x: torch.Tensor,
    kernel: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: int | None,
) -> torch.Tensor:
    rank = len(kernel)
    stride = stride or kernel
    inside, count = [], torch.ones((), device=grad.device)
    for i in range(rank):
        size, out = x.shape[i - rank], grad.shape[i - rank]
        start = torch.arange(out, device=grad.device) * stride[i] - padding[i]
        end = (start + kernel[i]).clamp(max=size + padding[i])
        place = torch.arange(size, device=grad.device)
        inside.append((place >= start[:, None]) & (place < end[:, None]))
        length = end - start if count_include_pad else end.clamp(max=size) - start.clamp(min=0)
        count = count[..., None] * length
    return spread_axes(grad / (count.to(grad.dtype) if divisor is None else divisor), inside)


@_decomposes_of_ranks("adaptive_max_pool{}d_backward")
def adaptive_max_pool_backward(
    rank: int, grad: torch.Tensor, x: torch.Tensor, indices: torch.Tensor
) -> torch.Tensor:
    flat = grad.new_zeros(*x.shape[:-rank], x.shape[-rank:].numel())
    return flat.scatter_add(-1, indices.flatten(-rank), grad.flatten(-rank)).view(x.shape)
