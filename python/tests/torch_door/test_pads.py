"""Padding that the tensor itself fills, slices with a step, and their gradients: without indices."""

from __future__ import annotations

from typing import Any

import aicf
import pytest
import torch
import torch.nn.functional as F
from aicf.torch.compiled_graph import CompiledGraph
from torch import nn

aten = torch.ops.aten
MODES = {"reflect": "reflection", "replicate": "replication"}
# shape, pads
PADS: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((2, 3, 7), (2, 1)),
    ((3, 6), (5, 5)),
    ((2, 3, 5, 7), (2, 2, 2, 2)),
    ((2, 3, 5, 7), (0, 6, 3, 0)),
    ((0, 3, 5, 7), (1, 2, 2, 1)),
    ((2, 3, 6, 7), (-1, 2, 1, -2)),
    ((1, 2, 4, 3, 5), (1, 2, 2, 1, 3, 0)),
]
# dim, start, end, step
SLICES: list[tuple[int, Any, Any, int]] = [
    (0, 0, None, 2),
    (0, 1, -1, 3),
    (1, -5, None, 2),
    (1, 2, 100, 4),
    (0, 3, 3, 2),
    (-1, 0, 7, 7),
    (1, 6, None, 5),
    (0, 1, 9, 1),
]


def _same(found: Any, expected: torch.Tensor) -> None:
    torch.testing.assert_close(torch.as_tensor(found), expected, rtol=1e-6, atol=1e-6)


def _ran(call: Any, *xs: torch.Tensor) -> tuple[Any, int]:
    """What the call gives, made without indices, and the number of kernels."""
    exe = aicf.compile(call, xs)
    steps = str(exe.plan)
    assert not any(word in steps for word in ("gather", "scatter", "iota", "matmul")), steps
    return exe(*xs), exe.plan.kernels


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape, pads", PADS)
def test_gradients_of_pads(mode: str, shape: tuple[int, ...], pads: tuple[int, ...]) -> None:
    x = torch.randn(shape)
    op = getattr(aten, f"{MODES[mode]}_pad{len(pads) // 2}d_backward")

    def call(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return op(grad, x, pads)

    grad = torch.randn_like(F.pad(x, pads, mode))
    found, kernels = _ran(call, grad, x)
    _same(found, call(grad, x))
    assert kernels <= 5 * (len(pads) // 2)


@pytest.mark.parametrize("dtype, large", [(torch.float16, 2048.0), (torch.bfloat16, 256.0)])
def test_borders_are_added_in_f32(dtype: torch.dtype, large: float) -> None:
    """Of the elements at the end four would vanish beside the first."""
    grad = torch.tensor([[1.0, 1.0, large, 1.0, 1.0, 1.0, 1.0]], dtype=dtype)
    x = torch.ones(1, 3, dtype=dtype)
    found, _ = _ran(lambda g, x: aten.replication_pad1d_backward(g, x, [0, 4]), grad, x)
    assert torch.equal(torch.as_tensor(found), torch.tensor([[1.0, 1.0, large + 4]], dtype=dtype))


@pytest.mark.parametrize("shape, pads", [p for p in PADS if len(p[0]) > 2])
def test_circular(shape: tuple[int, ...], pads: tuple[int, ...]) -> None:
    x = torch.randn(shape)
    found, kernels = _ran(lambda x: F.pad(x, pads, "circular"), x)
    assert torch.equal(torch.as_tensor(found), F.pad(x, pads, "circular"))
    assert kernels <= 2


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_training(mode: str) -> None:
    """Both ways to a gradient: torch's own graph, and ours of a convolution that pads itself."""
    x = torch.randn(2, 3, 8, 7)
    whole = nn.Conv2d(3, 4, (5, 3), padding=(2, 1), padding_mode=mode)
    compiled = torch.compile(whole, backend="aicf", fullgraph=True)
    results = []
    for module in (whole, compiled):
        own = x.clone().requires_grad_()
        module(own).square().sum().backward()
        results.append(own.grad)
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("pads", [(2, -1, 3, 5), (1, 2, 1, 2), (0, 7, 5, 0)])
@pytest.mark.parametrize("dynamic", [False, True])
def test_circular_in_a_graph_of_torch(
    monkeypatch: pytest.MonkeyPatch, pads: tuple[int, ...], dynamic: bool
) -> None:
    graphs: list[str] = []

    def compiled(graph: torch.fx.GraphModule, *rest: Any) -> Any:
        graphs.append(graph.code)
        return CompiledGraph(graph, *rest)

    def call(x: torch.Tensor) -> torch.Tensor:
        return F.pad(x, pads, mode="circular").square()

    monkeypatch.setattr("aicf.torch.backend.CompiledGraph", compiled)
    torch._dynamo.reset()
    results = []
    for function in (call, torch.compile(call, backend="aicf", fullgraph=True)):
        x = torch.arange(70.0).reshape(1, 2, 5, 7).requires_grad_()
        if dynamic:
            torch._dynamo.mark_dynamic(x, 3)
        y = function(x)
        y.sum().backward()
        results.append((y, x.grad))
    torch.testing.assert_close(*results)
    assert len(graphs) == 2 and not any("scatter" in code or "index" in code for code in graphs)


def test_circular_left_to_eager() -> None:
    """The op itself, where AICF does not take the graph."""
    x = torch.randn(1, 2, 5, 7, dtype=torch.float64, requires_grad=True)
    pads = [2, 1, 3, 5]
    assert torch.equal(torch.ops.aicf.circular_pad(x, pads), F.pad(x, pads, "circular"))
    torch.library.opcheck(torch.ops.aicf.circular_pad.default, (x, pads))
    torch.autograd.gradcheck(lambda x: torch.ops.aicf.circular_pad(x, pads), x)


@pytest.mark.parametrize("dim, start, end, step", SLICES)
def test_gradients_of_slices(dim: int, start: Any, end: Any, step: int) -> None:
    x = torch.randn(10, 7)
    where = dim, start, 2**63 - 1 if end is None else end, step
    part = aten.slice(x, *where)

    def call(grad: torch.Tensor) -> torch.Tensor:
        return aten.slice_backward(grad, [10, 7], *where)

    grad = torch.randn_like(part)
    found, kernels = _ran(call, grad)
    assert torch.equal(torch.as_tensor(found), call(grad))
    assert kernels <= 2
    grad = torch.randn_like(part).to(torch.bfloat16)
    assert torch.equal(torch.as_tensor(aicf.compile(call, (grad,))(grad)), call(grad))


@pytest.mark.parametrize("dim, start, end, step", SLICES)
def test_slices_written(dim: int, start: Any, end: Any, step: int) -> None:
    x = torch.randn(10, 7)
    source = torch.randn_like(aten.slice(x, dim, start, end, step))

    def call(x: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        return torch.slice_scatter(x, source, dim, start, end, step)

    found, kernels = _ran(call, x, source)
    assert torch.equal(torch.as_tensor(found), call(x, source))
    assert kernels <= 5


class _Every(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        padded = [F.pad(x, (1, 2, 2, 1), mode) for mode in ("reflect", "replicate", "circular")]
        part = x[:, :, 1::2]
        return (
            *padded,
            aten.slice_backward(part, x.shape, 2, 1, 2**63 - 1, 2),
            aten.reflection_pad2d_backward(padded[0], x, [1, 2, 2, 1]),
            aten.replication_pad2d_backward(padded[1], x, [1, 2, 2, 1]),
        )


def test_sizes_of_a_range() -> None:
    dims = {"x": {0: "b=1..4", 2: "h=4..16", 3: "w=4..16"}}
    exe = aicf.compile(_Every(), (torch.randn(2, 3, 8, 8),), dims=dims)
    for batch, height, width in ((2, 8, 8), (1, 4, 6), (3, 15, 9)):
        x = torch.randn(batch, 3, height, width)
        for found, expected in zip(exe(x), _Every()(x), strict=True):
            _same(found, expected)


@pytest.mark.parametrize("pads", [(1, 1, 1, 1), (2, 0, 1, 3), (0, 2)])
def test_what_is_cropped_again_is_made_of_x(pads):
    """The gradient of a pad crops what is made of its result: of the interior nothing else is made."""

    def call(x):
        y = F.pad(x, pads)
        return y, F.pad(y.cos(), [-pad for pad in pads])

    x = torch.randn(2, 3, 5, 7)
    exe = aicf.compile(call, (x,))
    assert exe.plan.kernels == 2, exe.explain()
    for found, expected in zip(exe(x), call(x), strict=True):
        _same(found, expected)
