"""Circular padding of a graph that torch differentiates: a concat of slices along each axis.

torch takes the op apart into writes to slices of one tensor before anyone sees it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

__all__ = ["circular_pads_as_concats"]

_PAD = torch._C._nn.pad


def circular_pads_as_concats(module: torch.fx.GraphModule) -> None:
    """Changes the module, a graph of torch's functions, in place."""
    for part in module.modules():
        if not isinstance(part, torch.fx.GraphModule):
            continue
        for node in part.graph.nodes:
            if node.target is _PAD and "circular" in (*node.args[2:3], node.kwargs.get("mode")):
                node.target = _padded
        part.recompile()


def _padded(x: torch.Tensor, pad: Sequence[Any], mode: str = "circular", value: Any = None) -> torch.Tensor:
    for i in range(len(pad) // 2):
        axis, (low, high) = x.ndim - 1 - i, pad[2 * i : 2 * i + 2]
        cut = max(-low, 0), max(-high, 0)
        if any(cut):
            x = x.narrow(axis, cut[0], x.shape[axis] - sum(cut))
        size = x.shape[axis]
        start = [x.narrow(axis, size - low, low)] if low > 0 else []
        end = [x.narrow(axis, 0, high)] if high > 0 else []
        x = torch.cat([*start, x, *end], axis)
    return x
