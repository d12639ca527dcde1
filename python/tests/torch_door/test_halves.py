"""torch's ops of f16 and bf16 round once: neither numbers beside them nor sums inside are halves."""

import math
from collections.abc import Callable
from typing import Any

import aicf
import pytest
import torch
import torch.nn.functional as F
from torch import nn

Ops = dict[str, Callable[[torch.Tensor], Any]]

# f16 holds no number above 65,504.
LARGE: Ops = {
    "div": lambda x: x / 70_001.0,
    "mul": lambda x: (x / 1024) * 70_001.0,
    "rsub": lambda x: 70_000.0 - (x.abs() + 8) * 1024,
    "pow": lambda x: x.abs() ** 3.3,
    "variance": lambda x: x.var(),
    "deviation": lambda x: x.std(0),
    "norm": lambda x: x.norm(),
    "mean squared error": lambda x: F.mse_loss(x, x + 0.5),
    "cross entropy": lambda x: F.cross_entropy(x, torch.arange(len(x)) % x.shape[1]),
    "weighted cross entropy": lambda x: F.cross_entropy(
        x, torch.arange(len(x)) % x.shape[1], torch.arange(1.0, x.shape[1] + 1).to(x.dtype)
    ),
}  # fmt: skip


def apart(found: Any, expected: torch.Tensor) -> float:
    return float((torch.as_tensor(found).double() - expected).norm() / expected.norm())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", LARGE)
def test_numbers_and_sums_that_no_half_holds(name: str, dtype: torch.dtype) -> None:
    call = LARGE[name]
    x = torch.randn(35_001, 4).to(dtype)
    found = aicf.compile(call, (x,), device="cpu")(x)
    rounding = torch.finfo(dtype).eps
    expected = call(x.double())
    assert torch.as_tensor(found).dtype == dtype
    assert apart(found, expected) < 2 * rounding


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_number_is_not_rounded_to_the_dtype_of_what_it_multiplies(dtype: torch.dtype) -> None:
    x = torch.arange(1.0, 2.0, 1 / 128).to(dtype)
    found = aicf.compile(lambda x: x * 0.1, (x,), device="cpu")(x)
    assert torch.equal(found, (x.double() * 0.1).to(dtype))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_gradient_of_a_mean_of_many(dtype: torch.dtype) -> None:
    torch._dynamo.reset()
    x = torch.randn(35_001, 4).to(dtype).requires_grad_()
    torch.compile(lambda x: (x * x).mean(), backend="aicf")(x).backward()
    assert apart(x.grad, x.detach().double() / (2 * 35_001)) < 0.02  # f16 has few digits of such numbers


class Gelu(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 0.5 * (1.0 + torch.erf(x / 2.0**0.5))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_gelu_that_is_written_out_is_one(dtype: torch.dtype) -> None:
    exe = aicf.compile(Gelu(), (torch.randn(4, 8).to(dtype),), device="cpu")
    assert "gelu" in exe.plan.text
    assert "erf" not in exe.plan.text


def test_the_root_of_mean_squares_that_a_gpu_keeps_in_f32() -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    x, w = torch.randn(6, 16).half(), torch.randn(16).half()
    graph = make_fx(lambda x, w: torch.ops.aten._fused_rms_norm(x, [16], w, 1e-5)[0])(x, w)
    exe = aicf.compile(graph, (x, w), device="cpu")
    assert apart(exe(x, w), F.rms_norm(x.double(), [16], w.double(), 1e-5)) < 2e-3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_mish_takes_one_function_and_one_rounding(dtype: torch.dtype) -> None:
    x = torch.cat([torch.linspace(-80, 80, 4001), torch.tensor([0.0, 1e30, -1e30, math.inf, math.nan])]).to(
        dtype
    )
    exe = aicf.compile(F.mish, (x,), device="cpu")
    program = str(aicf.torch.import_module(nn.Mish(), (x,)).program)
    assert "exp(" in program
    assert "log1p" not in program
    expected = F.mish(x.double())
    least, rounding = torch.finfo(dtype).tiny, torch.finfo(dtype).eps
    error = (exe(x).double() - expected).abs() / expected.abs().clamp(min=least)
    right = (expected.abs() > torch.finfo(dtype).max) | expected.isnan() | (error < 4 * rounding)
    assert right.all()
    assert torch.equal(exe(x).isnan(), expected.isnan())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_the_slope_of_mish_shares_its_function(dtype: torch.dtype) -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    x = torch.cat([torch.linspace(-80, 80, 4001), torch.tensor([0.0, 6e4, -6e4, math.nan])]).to(dtype)
    ones = torch.ones_like(x)
    graph = make_fx(lambda g, x: (F.mish(x), torch.ops.aten.mish_backward(g, x)))(ones, x)
    program = str(aicf.torch.import_module(graph, (ones, x)).program)
    assert all(function not in program for function in ("softplus", "tanh", "sigmoid", "log1p"))
    _, slope = aicf.compile(graph, (ones, x), device="cpu")(ones, x)
    exact = x.double().requires_grad_()
    (expected,) = torch.autograd.grad(F.mish(exact).sum(), exact)
    assert torch.equal(slope.isnan(), expected.isnan())
    error = (slope.double() - expected).abs()
    rounding = torch.finfo(dtype).eps * expected.abs() + torch.finfo(dtype).tiny
    assert (expected.isnan() | (error < rounding + 8 * torch.finfo(torch.float32).eps)).all()
