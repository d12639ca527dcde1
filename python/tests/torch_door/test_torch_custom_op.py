"""A torch custom op becomes the registered op of its name, in both ways in."""

from __future__ import annotations

import aicf
import numpy as np
import pytest
import torch
from needs_triton import need_triton
from torch import nn

TEXT = """
extern "C" __global__ void scaled(const float* x, const float* y, float* z, int64_t count, double alpha) {
  aicf::wait_for_inputs();
  const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (i < count) z[i] = float(alpha) * x[i] + y[i];
}
"""


def scaled_cpu(x: np.ndarray, y: np.ndarray, z: np.ndarray, *, alpha: float) -> None:
    z[...] = np.float32(alpha) * x + y


aicf.register_op(
    "torchtest::scaled",
    results=lambda x, y, *, alpha: x,
    attributes={"alpha": 1.0},
    cpu=scaled_cpu,
    cuda=aicf.CudaKernel(TEXT, "scaled"),
)


@torch.library.custom_op("torchtest::scaled", mutates_args=())
def scaled(x: torch.Tensor, y: torch.Tensor, alpha: float = 1.0) -> torch.Tensor:
    return alpha * x + y


@scaled.register_fake
def _(x: torch.Tensor, y: torch.Tensor, alpha: float = 1.0) -> torch.Tensor:
    return torch.empty_like(x)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(scaled(self.linear(x), x.flip(-1), alpha=0.5))


DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU that torch can use"),
    ),
]


def check(model: nn.Module, op: str, device: str) -> None:
    """Both ways in, beside torch; the plan calls the op."""
    torch._dynamo.reset()
    model = model.eval().to(device)
    x = torch.randn(4, 6, device=device)
    with torch.no_grad():
        expected = model(x)
        exe = aicf.compile(model, (x,), dims={"x": {0: "batch=1..9"}}, device=device)
        assert torch.allclose(exe(x), expected, rtol=1e-5, atol=1e-6)
        assert torch.allclose(torch.compile(model, backend="aicf")(x), expected, rtol=1e-5, atol=1e-6)
    assert f"custom:{op}" in str(exe.plan)


@pytest.mark.parametrize("device", DEVICES)
def test_exported_and_compiled(device: str) -> None:
    check(Model(), "torchtest::scaled", device)


def test_what_its_function_raises_is_what_the_call_raises() -> None:
    error: BaseException | None = None

    def copy_cpu(x: np.ndarray, y: np.ndarray) -> None:
        if error is not None:
            raise error
        y[...] = x

    aicf.register_op("torchtest::copied", results=lambda x: x, cpu=copy_cpu)
    copied = torch.library.custom_op(
        "torchtest::copied", torch.Tensor.clone, mutates_args=(), schema="(Tensor x) -> Tensor"
    )
    copied.register_fake(torch.empty_like)

    class Copied(Model):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return copied(self.linear(x).bfloat16()).float() + copied(x.half()).float()

    model, x = Copied().eval(), torch.randn(4, 6)
    torch._dynamo.reset()
    with torch.no_grad():
        for call in (aicf.compile(model, (x,)), torch.compile(model, backend="aicf")):
            error = None
            right = np.array(call(x))
            np.testing.assert_allclose(right, model(x), rtol=0.02, atol=0.02)
            for error in (KeyboardInterrupt(), ValueError("no")):
                with pytest.raises(type(error)) as caught:
                    call(x)
                assert caught.value is error
            error = None
            assert np.array_equal(np.array(call(x)), right)


@pytest.mark.parametrize("device", DEVICES)
def test_of_triton(device: str) -> None:
    need_triton()
    import triton_ops

    assert triton_ops.row_softmax.name == "tritontest::row_softmax"

    @torch.library.custom_op("tritontest::row_softmax", mutates_args=())
    def row_softmax(x: torch.Tensor) -> torch.Tensor:
        return x.softmax(-1)

    @row_softmax.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    class Softmax(Model):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return row_softmax(self.linear(x)) * 2

    check(Softmax(), "tritontest::row_softmax", device)
