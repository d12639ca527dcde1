"""Sums, means and maxima over bags of embedding rows."""

from __future__ import annotations

from typing import Any

import torch

from .table import decomposes

__all__ = ["embedding_bag"]

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
