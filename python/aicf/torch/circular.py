"""Circular padding as one op of a graph that torch differentiates.

torch takes its own apart into writes to slices of one tensor before anyone sees it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

__all__ = ["circular_pads_whole"]

_PAD = torch._C._nn.pad
_NAME, _BACKWARD = "aicf::circular_pad", "aicf::circular_pad_backward"

# Pairs of pads from the last axis backwards, none negative.
torch.library.define(_NAME, "(Tensor x, int[] pad) -> Tensor")
torch.library.define(_BACKWARD, "(Tensor grad, int[] pad) -> Tensor")


def circular_pads_whole(module: torch.fx.GraphModule) -> None:
    """Changes the module, a graph of torch's functions, in place."""
    for part in module.modules():
        if not isinstance(part, torch.fx.GraphModule):
            continue
        for node in part.graph.nodes:
            if node.target is _PAD and "circular" in (*node.args[2:3], node.kwargs.get("mode")):
                node.target = _padded
        part.recompile()


def _padded(x: torch.Tensor, pad: Sequence[Any], mode: str = "circular", value: Any = None) -> torch.Tensor:
    """Crops first, as torch does."""
    if not all(isinstance(p, int) for p in pad):
        return _PAD(x, pad, mode, value)
    for i, (low, high) in enumerate(_pairs(pad)):
        cut = max(-low, 0), max(-high, 0)
        if any(cut):
            axis = x.ndim - 1 - i
            x = x.narrow(axis, cut[0], x.shape[axis] - sum(cut))
    return torch.ops.aicf.circular_pad(x, [max(p, 0) for p in pad])


def _pairs(pad: Sequence[int]) -> list[tuple[int, int]]:
    return list(zip(pad[::2], pad[1::2], strict=True))


@torch.library.impl(_NAME, "CompositeExplicitAutograd")
def _computed(x: torch.Tensor, pad: Sequence[int]) -> torch.Tensor:
    for i, (low, high) in enumerate(_pairs(pad)):
        axis = x.ndim - 1 - i
        x = torch.cat([x.narrow(axis, x.shape[axis] - low, low), x, x.narrow(axis, 0, high)], axis)
    return x


@torch.library.impl(_BACKWARD, "CompositeExplicitAutograd")
def _computed_backward(grad: torch.Tensor, pad: Sequence[int]) -> torch.Tensor:
    for i, (low, high) in enumerate(_pairs(pad)):
        axis = grad.ndim - 1 - i
        size = grad.shape[axis] - low - high
        total = grad.narrow(axis, low, size).clone(memory_format=torch.contiguous_format)
        total.narrow(axis, size - low, low).add_(grad.narrow(axis, 0, low))
        total.narrow(axis, 0, high).add_(grad.narrow(axis, low + size, high))
        grad = total
    return grad


def _described(x: torch.Tensor, pad: Sequence[int], sign: int) -> torch.Tensor:
    shape = list(x.shape)
    for i, pair in enumerate(_pairs(pad)):
        shape[-1 - i] += sign * sum(pair)
    return x.new_empty(shape)


torch.library.register_fake(_NAME, lambda x, pad: _described(x, pad, 1))
torch.library.register_fake(_BACKWARD, lambda grad, pad: _described(grad, pad, -1))


def _keep_pads(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.pad = inputs[1]


def _gradients(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
    return torch.ops.aicf.circular_pad_backward(grad, ctx.pad), None


torch.library.register_autograd(_NAME, _gradients, setup_context=_keep_pads)
