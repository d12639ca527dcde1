"""Where the elements of a dense torch tensor lie: as a row-major tensor's, with its axes in another order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

__all__ = ["inverse", "restrided", "storage_order"]


def storage_order(tensor: torch.Tensor) -> tuple[int, ...] | None:
    """The axes, outermost in memory first, where `tensor.permute(order)` is row-major and `tensor` is not;
    None for any other.
    """
    if tensor.is_contiguous() or any(_hint(n) is None for n in (*tensor.shape, *tensor.stride())):
        return None
    strides = tensor.stride()
    order = tuple(sorted(range(tensor.dim()), key=lambda axis: _hint(strides[axis]), reverse=True))
    expected: Any = 1
    for axis in reversed(order):
        size = _expression(tensor.shape[axis])
        if size == 1:
            continue
        if _expression(strides[axis]) != expected:
            return None
        expected = expected * size
    return order


def inverse(order: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def restrided(stored: torch.Tensor, order: Sequence[int], strides: Sequence[int]) -> torch.Tensor:
    """The tensor of these strides of which `stored` is the row-major form in `order`. It shares memory, but
    is no view: a view that is made in here could not be written in place.
    """
    shape = [stored.shape[at] for at in inverse(order)]
    return stored.new_empty(0).set_(stored.untyped_storage(), stored.storage_offset(), shape, strides)


def _hint(number: Any) -> int | None:
    return number.node.hint if isinstance(number, torch.SymInt) else number


def _expression(number: Any) -> Any:
    return number.node.expr if isinstance(number, torch.SymInt) else number
