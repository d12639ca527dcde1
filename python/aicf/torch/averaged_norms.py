"""Batch norms with momentum=None, whose running statistics are plain averages over the calls.

torch takes the share of a batch, one by the number of batches, as a Python number out of a buffer, which a
trace cannot follow. While a module is exported it is a tensor.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.nn.modules.batchnorm import _BatchNorm

__all__ = ["averaged_norms"]


def _averages(norm: _BatchNorm) -> bool:
    counts = norm.track_running_stats and norm.num_batches_tracked is not None
    return norm.training and norm.momentum is None and counts


def _normed(norm: _BatchNorm, x: torch.Tensor) -> torch.Tensor:
    norm._check_input_dim(x)
    norm.num_batches_tracked.add_(1)
    with torch.no_grad():
        axes = [0, *range(2, x.dim())]
        wide = x.to(norm.running_mean.dtype)
        share = 1 / norm.num_batches_tracked.to(wide.dtype)
        norm.running_mean.lerp_(wide.mean(axes), share)
        norm.running_var.lerp_(wide.var(axes), share)
    return torch.nn.functional.batch_norm(x, None, None, norm.weight, norm.bias, True, 0.0, norm.eps)


@contextmanager
def averaged_norms() -> Iterator[None]:
    """Such norms, in this thread, count in tensors."""
    here, plain = threading.get_ident(), _BatchNorm.forward

    def forward(norm: _BatchNorm, input: torch.Tensor) -> torch.Tensor:
        counted = threading.get_ident() == here and _averages(norm)
        return _normed(norm, input) if counted else plain(norm, input)

    _BatchNorm.forward = forward  # type: ignore[method-assign]
    try:
        yield
    finally:
        _BatchNorm.forward = plain  # type: ignore[method-assign]
