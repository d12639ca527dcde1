"""A loss of which torch's own decomposition gives another value than torch."""

from __future__ import annotations

import torch

from .table import decomposes

_NONE, _MEAN = 0, 1  # of torch's `reduction`


@decomposes(torch.ops.aten.multilabel_margin_loss.default)
def multilabel_margin_loss(x: torch.Tensor, target: torch.Tensor, reduction: int = _MEAN) -> torch.Tensor:
    """The sum over labels j and classes i that are no label of max(0, 1 - (x[j] - x[i])) / classes.

    Labels of a row end at its first -1; torch's decomposition counts those after it.
    """
    rows, labels = torch.atleast_2d(x), torch.atleast_2d(target)
    classes = rows.shape[1]
    given = (labels == -1).cumsum(1) == 0
    labels = labels.clamp_min(0)
    is_target = ((labels.unsqueeze(2) == torch.arange(classes, device=x.device)) & given.unsqueeze(2)).any(1)
    margins = 1 - rows.gather(1, labels).unsqueeze(2) + rows.unsqueeze(1)
    counts = given.unsqueeze(2) & ~is_target.unsqueeze(1)
    sums = torch.where(counts, margins.clamp_min(0), 0).sum((1, 2)) / classes
    if reduction == _NONE:
        return sums.reshape(target.shape[:-1])
    return sums.mean() if reduction == _MEAN else sums.sum()
