"""Writes in place become values without another trace by torch where nothing else sees the tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import aicf
import pytest
import torch
import torch.nn.functional as F
from aicf.torch.export import export
from torch import nn


class Block(nn.Module):
    """A residual block as torchvision writes it."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Hardswish(inplace=True)
        )
        self.last = nn.Dropout(0.5, inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.body(x)
        y += x
        return self.last(F.relu_(y)).mean((2, 3))


def _viewed(x: torch.Tensor) -> Any:
    y = x * 2
    first = y[0]
    y.relu_()
    return first, y


def _written_view(x: torch.Tensor) -> Any:
    y = x * 2
    y[:, 0].relu_()
    return y


def _narrower(x: torch.Tensor) -> Any:
    y = x.half()
    y.add_(x)
    return y


def _same_tensor(x: torch.Tensor) -> Any:
    y = x * 2
    z = y.type_as(x)
    z.relu_()
    return y, z


def _returned(x: torch.Tensor) -> Any:
    y = x - 1
    z = y.relu_()
    return y, z


def _in_a_list(x: torch.Tensor) -> Any:
    y = x - 1
    joined = torch.cat([y, y])
    y.mul_(3)
    return torch.cat([joined, y])


def _placed(x: torch.Tensor) -> Any:
    y = torch.zeros(x.shape, dtype=torch.float16)
    y[torch.tensor([0, 2])] = x[:2].half()
    y.scatter_(1, torch.tensor([[1], [0], [3]]), 5.0)
    return y.index_fill_(0, torch.tensor([1]), 2.0)


CASES: dict[str, Callable[[torch.Tensor], Any]] = {
    "viewed before": _viewed,
    "a view is written": _written_view,
    "keeps its type": _narrower,
    "an op that gives its operand": _same_tensor,
    "the tensor itself is a result": _returned,
    "read before and after": _in_a_list,
    "put at places": _placed,
    "twice": lambda x: (x + 1).clamp_(max=1.5).masked_fill_(x > 0, 7.0).neg_(),
}


@pytest.mark.parametrize("name", CASES)
def test_writes(name: str) -> None:
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))
    results = aicf.compile(CASES[name], (x,))(x)
    expected = CASES[name](x)
    pairs = zip(results, expected, strict=True) if isinstance(expected, tuple) else [(results, expected)]
    for ours, theirs in pairs:
        assert ours.dtype == theirs.dtype and torch.allclose(ours, theirs)


def test_a_residual_block_is_traced_once() -> None:
    """No write is left for torch to take out; with a size in a range, too."""
    model, x = Block().eval(), torch.randn(2, 4, 6, 6)
    dims = {"x": {0: "n=1..4", 2: "h=4..8"}}
    program, _, _ = export(model, (x,), dims)
    assert not any(
        node.target._schema.is_mutable for node in program.graph.nodes if node.op == "call_function"
    )
    exe = aicf.compile(model, (x,), dims=dims)
    for shape in ((2, 4, 6, 6), (1, 4, 8, 6)):
        x = torch.randn(shape)
        with torch.no_grad():
            assert torch.allclose(exe(x), model(x), rtol=1e-5, atol=1e-6)
