"""Losses of which torch's own decomposition gives other values than torch."""

from __future__ import annotations

from typing import Any

import torch
from torch._decomp import decompositions

from .table import decomposes

__all__ = [
    "multilabel_margin_loss",
    "multilabel_margin_loss_backward",
    "multilabel_margin_loss_forward",
    "nll_loss_forward",
]

aten = torch.ops.aten
_NONE, _MEAN = 0, 1  # of torch's `reduction`


def _margins(
    x: torch.Tensor, target: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Of each label and class 1 - (x[label] - x[class]) and whether it counts: [rows, labels, classes]; the
    labels, and which classes are one: [rows, classes]."""
    rows, labels = torch.atleast_2d(x), torch.atleast_2d(target)
    given = (labels == -1).cumsum(1) == 0
    labels = labels.clamp_min(0)
    classes = torch.arange(rows.shape[1], device=x.device)
    is_target = ((labels.unsqueeze(2) == classes) & given.unsqueeze(2)).any(1)
    margins = 1 - rows.gather(1, labels).unsqueeze(2) + rows.unsqueeze(1)
    return margins, given.unsqueeze(2) & ~is_target.unsqueeze(1), labels, is_target


@decomposes(aten.multilabel_margin_loss_forward.default)
def multilabel_margin_loss_forward(
    x: torch.Tensor, target: torch.Tensor, reduction: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The sum over labels j and classes i that are no label of max(0, 1 - (x[j] - x[i])) / classes.

    Labels of a row end at its first -1; torch's decomposition counts those after it.
    """
    margins, counts, _, is_target = _margins(x, target)
    sums = torch.where(counts, margins.clamp_min(0), 0).sum((1, 2)) / is_target.shape[1]
    is_target = is_target.to(x.dtype).reshape(target.shape)
    if reduction == _NONE:
        return sums.reshape(target.shape[:-1]), is_target
    return sums.mean() if reduction == _MEAN else sums.sum(), is_target


@decomposes(aten.multilabel_margin_loss.default)
def multilabel_margin_loss(x: torch.Tensor, target: torch.Tensor, reduction: int = _MEAN) -> torch.Tensor:
    return multilabel_margin_loss_forward(x, target, reduction)[0]


@decomposes(aten.multilabel_margin_loss_backward.default)
def multilabel_margin_loss_backward(
    grad: torch.Tensor, x: torch.Tensor, target: torch.Tensor, reduction: int, _is_target: torch.Tensor
) -> torch.Tensor:
    margins, counts, labels, is_target = _margins(x, target)
    rows, classes = is_target.shape
    slope = (counts & (margins > 0)).to(x.dtype) / (classes * (rows if reduction == _MEAN else 1))
    dx = slope.sum(1).scatter_add(1, labels, -slope.sum(2))
    return (dx * grad.reshape(-1, 1)).reshape(x.shape)


@decomposes(aten.nll_loss_forward.default, aten.nll_loss2d_forward.default)
def nll_loss_forward(
    x: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None, reduction: int, ignore_index: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The loss and the sum of the weights that count. Of halves in f32, as on a GPU: torch's decomposition
    rounds the sum over all targets before it divides it, which no f16 holds of 65,504 and more.
    """
    loss: Any = decompositions.nll_loss_forward if target.dim() < 2 else decompositions.nll_loss2d_forward
    dtype = torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype
    wide = None if weight is None else weight.to(dtype)
    result, total = loss(x.to(dtype), target, wide, reduction, ignore_index)
    return result.to(x.dtype), total.to(x.dtype)
