"""What a model computes from sizes holds at every size of a range, not at the example's only."""

from __future__ import annotations

from collections.abc import Callable

import aicf
import pytest
import torch
import torch.nn.functional as F
from torch import nn

Function = Callable[[torch.Tensor], torch.Tensor]
DIMS = {"x": {0: "b=1..4", 2: "h=4..16", 3: "w=4..16"}}
SIZES = ((2, 8, 8), (1, 4, 6), (3, 16, 9), (4, 15, 4))


class Of(nn.Module):
    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
        return self.function(x, *others)


FUNCTIONS: dict[str, Function] = {
    "the last 20 of fewer": lambda x: x[:, :, -20:] + 1,
    "the last 20 of fewer, written": lambda x: torch.slice_scatter(x, x * 2, 2, -20),
    "none from 20 on": lambda x: x[:, :, 20:].sum(2) + x[:, :, 0],
    "means of 3 windows": lambda x: F.adaptive_avg_pool2d(x, 3),
    "means of fewer windows": lambda x: F.adaptive_avg_pool2d(x, (x.shape[2] - 1, 2)),
    "nearest to a size": lambda x: F.interpolate(x, size=(7, 9)),
    "nearest by 2.5": lambda x: F.interpolate(x, scale_factor=2.5),
    "bilinear to a size": lambda x: F.interpolate(x, size=(7, 9), mode="bilinear"),
    "bilinear by 1.5": lambda x: F.interpolate(x, scale_factor=1.5, mode="bilinear"),
    "bilinear, corners aligned": lambda x: F.interpolate(
        x, scale_factor=2, mode="bilinear", align_corners=True
    ),
    "bicubic to a size": lambda x: F.interpolate(x, size=(7, 9), mode="bicubic"),
    "bicubic from a table": lambda x: (
        x + F.interpolate(torch.arange(108.0).view(1, 3, 6, 6) / 108, size=x.shape[2:], mode="bicubic")
    ),
    "numbers from sizes": lambda x: x * x.shape[2] ** -0.5 + x.shape[3] / 7,
    "roll": lambda x: x.roll((-9, 5), (2, 3)),
    "the end of a table": lambda x: x + torch.arange(64.0)[max(0, 64 - x.shape[3]) :],
    "rows up to a bound": lambda x: x * torch.arange(16.0)[: min(16, x.shape[3])],
    "fold": lambda x: F.fold(F.unfold(x, 2), x.shape[2:], 2),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    function = FUNCTIONS[name]
    exe = aicf.compile(Of(function), (torch.randn(2, 3, 8, 8),), dims=DIMS)
    for batch, height, width in SIZES:
        x = torch.randn(batch, 3, height, width)
        assert torch.allclose(exe(x), function(x), rtol=1e-4, atol=1e-5), (height, width)


def test_lengths_are_sums_over_a_size() -> None:
    dims = {"x": {2: "4*h"}, "x1": ["n+1"], "h": (2, 4), "n": "1..8"}
    exe = aicf.compile(
        Of(lambda x, y: (F.avg_pool2d(x, 4), y[1:])), (torch.randn(1, 3, 6, 8), torch.ones(1)), dims=dims
    )
    assert [row.shape for row in exe.inputs] == [(1, 3, "4*h", 8), ("n+1",)]
    for height, length in ((8, 2), (16, 9)):
        x, y = torch.randn(1, 3, height, 8), torch.randn(length)
        torch.testing.assert_close(exe(x, y), (F.avg_pool2d(x, 4), y[1:]))
    for height, name in ((10, "input_shape"), (20, "size_out_of_range")):
        with pytest.raises(aicf.UserError) as error:
            exe(torch.randn(1, 3, height, 8), torch.randn(3))
        assert error.value.name == name


def test_sizes_of_torch_export() -> None:
    dims = {"x": (torch.export.Dim("b", min=1, max=4), None)}
    exe = aicf.compile(Of(lambda x: x * 2), (torch.randn(2, 3),), dims=dims)
    assert exe(torch.randn(4, 3)).shape == (4, 3)
    for axis in ("2*", "0*b", "b*c", "2*b=1..8", 7):
        with pytest.raises(aicf.UserError, match="names no axis"):
            aicf.compile(Of(lambda x: x * 2), (torch.randn(2, 3),), dims={"x": {0: axis}})


def test_what_depends_on_a_size_is_refused() -> None:
    with pytest.raises(aicf.UserError, match=r"depends on a size") as caught:
        aicf.compile(Of(lambda x: F.adaptive_max_pool2d(x, 2)[0]), (torch.randn(2, 3, 8, 8),), dims=DIMS)
    assert caught.value.name == "size_not_static" and "leave its axis out" in str(caught.value)


def test_sizes_that_change_where_torch_would_choose_by_them() -> None:
    torch._dynamo.reset()
    call = torch.compile(Of(lambda x: F.adaptive_max_pool2d(x, 2)), backend="aicf", dynamic=True)
    for height in (8, 5, 7, 12):
        x = torch.randn(2, 3, height, 6)
        assert torch.equal(call(x), F.adaptive_max_pool2d(x, 2)), height


def test_a_size_at_which_it_does_not_hold() -> None:
    """Rows up to 12 of 4 to 16 fit the factor up to 12 alone."""
    model = Of(lambda x: x * torch.arange(12.0)[: min(12, x.shape[1])])
    with pytest.raises(aicf.UserError, match="every size"):
        aicf.compile(model, (torch.randn(2, 8),), dims={"x": {1: "w=4..16"}})
