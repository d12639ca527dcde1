"""Sums, means and maxima over bags of embedding rows."""

from __future__ import annotations

from typing import Any

import torch

from ...errors import make_error
from .table import decomposes

__all__ = ["embedding_bag", "embedding_bag_backward", "embedding_renorm", "per_sample_weights_backward"]

aten = torch.ops.aten
_SUM, _MEAN, _MAX = 0, 1, 2


@decomposes(aten._embedding_bag.default, aten._embedding_bag_forward_only.default)
def embedding_bag(
    weight: torch.Tensor,
    indices: torch.Tensor,
    offsets: torch.Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = _SUM,
    sparse: bool = False,
    per_sample_weights: torch.Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> Any:
    """(bags, bag of each index, sizes of the bags, index of each maximum), the last two as the backward
    reads them.
    """
    if include_last_offset:
        offsets = offsets[:-1]
    count, bags = indices.shape[0], offsets.shape[0]
    places = torch.arange(count, device=indices.device, dtype=offsets.dtype)
    bag = (offsets[None, :] <= places[:, None]).sum(-1) - 1
    member = (bag[:, None] == torch.arange(bags, device=indices.device)) & (indices != padding_idx)[:, None]
    sizes = member.sum(0)
    rows = weight[indices]
    if mode == _MAX:
        seen = torch.where(member.t()[:, :, None], rows[None], -torch.inf)
        if count == 0:
            return (
                weight.new_zeros(bags, weight.shape[1]),
                bag,
                sizes,
                sizes[:, None].expand(-1, weight.shape[1]),
            )
        best, at = seen.max(1)
        filled = (sizes > 0)[:, None]
        chosen = torch.where(filled, indices.expand(weight.shape[1], -1).t()[at, 0], -1)
        return torch.where(filled, best, 0).to(weight.dtype), bag, sizes, chosen
    if per_sample_weights is not None:
        rows = rows * per_sample_weights[:, None]
    total = member.t().to(weight.dtype) @ rows
    if mode == _MEAN:
        total = total / sizes.clamp(min=1)[:, None].to(weight.dtype)
    return total, bag, sizes, sizes


@decomposes(aten._embedding_bag_backward.default)
def embedding_bag_backward(
    grad: torch.Tensor,
    indices: torch.Tensor,
    _offsets: torch.Tensor,
    bag: torch.Tensor,
    sizes: torch.Tensor,
    chosen: torch.Tensor,
    rows: int,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: torch.Tensor | None,
    padding_idx: int = -1,
) -> torch.Tensor:
    """The gradient of the weight, of `rows` rows."""
    if sparse or scale_grad_by_freq:
        raise make_error(
            "unsupported_op",
            "sparse gradients and gradients scaled by frequency are not supported",
            op="embedding_bag",
            remedy="make the EmbeddingBag with sparse=False and scale_grad_by_freq=False",
        )
    start = grad.new_zeros(rows, grad.shape[1])
    if mode == _MAX:
        filled = torch.where(chosen >= 0, grad, 0)
        return start.scatter_add(0, chosen.clamp(min=0), filled)
    part = grad[bag]
    if mode == _MEAN:
        part = part / sizes[bag].clamp(min=1)[:, None]
    if per_sample_weights is not None:
        part = part * per_sample_weights[:, None]
    part = torch.where((indices != padding_idx)[:, None], part, 0)
    return start.index_add(0, indices, part.to(grad.dtype))


@decomposes(aten._embedding_bag_per_sample_weights_backward.default)
def per_sample_weights_backward(
    grad: torch.Tensor,
    weight: torch.Tensor,
    indices: torch.Tensor,
    _offsets: torch.Tensor,
    bag: torch.Tensor,
    _mode: int,
    padding_idx: int = -1,
) -> torch.Tensor:
    """Each row's product with the gradient of its bag."""
    return torch.where(indices != padding_idx, (grad[bag] * weight[indices]).sum(-1), 0)


@decomposes(aten.embedding_renorm.default)
def embedding_renorm(
    weight: torch.Tensor, indices: torch.Tensor, max_norm: float, norm_type: float
) -> torch.Tensor:
    """The weight with each row that is looked up scaled to at most a norm."""
    rows = torch.arange(weight.shape[0], device=weight.device)
    used = (rows[:, None] == indices.reshape(1, -1)).any(-1, keepdim=True)
    norm = torch.linalg.vector_norm(weight, norm_type, dim=-1, keepdim=True)
    return torch.where(used & (norm > max_norm), weight * (max_norm / (norm + 1e-7)), weight)
