"""Ops of the user's own through tracing, files and ONNX."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import aicf
import numpy as np
import onnx
import pytest

# y = alpha x + shift, and the row sums of y.
TEXT = """
extern "C" __global__ void affine(const float* x, float* y, float* sums, int64_t rows, int64_t columns,
                                  int64_t shift, double alpha) {
  aicf::wait_for_inputs();
  const int64_t row = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (row >= rows) return;
  float sum = 0;
  for (int64_t i = 0; i < columns; ++i) {
    const float value = float(alpha) * x[row * columns + i] + float(shift);
    y[row * columns + i] = value;
    sum += value;
  }
  sums[row] = sum;
}
"""


def affine(x: np.ndarray, y: np.ndarray, sums: np.ndarray, *, alpha: float, shift: int) -> None:
    y[...] = np.float32(alpha) * x + np.float32(shift)
    sums[...] = y.sum(-1)


def results(x: Any, *, alpha: float, shift: int) -> Any:
    return [(x.dtype, x.shape), (x.dtype, x.shape[:1])]


OP = aicf.register_op(
    "test::affine",
    results=results,
    attributes={"alpha": 1.0, "shift": 0},
    cpu=affine,
    cuda=aicf.CudaKernel(
        TEXT,
        "affine",
        grid=lambda y, sums: [-(-sums.shape[0] // 128)],
        params=lambda inputs, outputs: list(inputs[0].shape),
    ),
)


def program() -> aicf.Program:
    def model(x: Any) -> Any:
        y, sums = OP(x.transpose([1, 0]), alpha=2.0, shift=3)  # dense memory is made for it
        return aicf.ops.relu(y), sums + 1.0

    return aicf.trace(model, [aicf.TensorSpec((5, "n"), "f32")], dims={"n": "1..9"})


@pytest.mark.parametrize("size", [1, 4, 9])
def test_traced(size: int) -> None:
    x = np.random.default_rng(size).standard_normal((5, size)).astype("f")
    y, sums = aicf.compile(program())(x)
    np.testing.assert_allclose(y, np.maximum(2 * x.T + 3, 0), rtol=1e-6)
    np.testing.assert_allclose(sums, (2 * x.T + 3).sum(-1) + 1, rtol=1e-5)


def test_the_text_form_is_whole() -> None:
    text = str(program())
    assert "test::affine" in text and "__global__" in text


def test_a_gpu_file_needs_nothing_and_a_cpu_file_names_the_op(tmp_path: Path) -> None:
    exe = aicf.compile(program())
    exe.save(tmp_path / "m.aicf")
    assert "custom:test::affine" in str(exe.plan)
    again = aicf.load(tmp_path / "m.aicf")
    x = np.ones((5, 2), "f")
    assert np.array_equal(again(x)[0], exe(x)[0])
    script = f"import aicf; aicf.load({str(tmp_path / 'm.aicf')!r})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "AICF-U0504" in done.stderr and "test::affine" in done.stderr and "register" in done.stderr


def test_onnx_nodes_of_the_domain() -> None:
    helper = onnx.helper
    node = helper.make_node("affine", ["x"], ["y", "sums"], domain="test", alpha=0.5)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", 1, ["n", 3])],
        [helper.make_tensor_value_info("y", 1, None), helper.make_tensor_value_info("sums", 1, None)],
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("test", 1)]
    model = helper.make_model(graph, opset_imports=opsets)
    x = np.arange(6, dtype="f").reshape(2, 3)
    y, sums = aicf.compile(model.SerializeToString(), dims={"n": "1..4"})(x)
    np.testing.assert_allclose(y, x / 2)
    np.testing.assert_allclose(sums, x.sum(-1) / 2)
    node.attribute[0].name = "beta"
    graph.node[0].CopyFrom(node)
    with pytest.raises(aicf.UserError, match="beta"):
        aicf.compile(helper.make_model(graph, opset_imports=opsets).SerializeToString(), dims={"n": 2})


def test_mistakes_are_named() -> None:
    with pytest.raises(aicf.UserError, match="registered already"):
        aicf.register_op("test::affine", results=results)
    with pytest.raises(aicf.UserError, match="domain"):
        aicf.register_op("affine", results=results)
    with pytest.raises(aicf.UserError, match="gamma"):
        aicf.trace(lambda x: OP(x, gamma=1)[0], [aicf.TensorSpec((2, 3))])
    gpu_only = aicf.register_op("test::gpu_only", results=lambda x: x)
    with pytest.raises(aicf.UserError, match="AICF-U0504"):
        aicf.compile(aicf.trace(gpu_only, [aicf.TensorSpec((2, 3))]))
    with pytest.raises(aicf.UserError, match="AICF-U0600"):
        aicf.compile(aicf.trace(gpu_only, [aicf.TensorSpec((2, 3))]), options={"target": "sm_90"})
    for text, word in (
        ('extern "C" __global__ void other(float* x) { aicf::wait_for_inputs(); }', "define"),
        ('extern "C" __global__ void f(float* x) {}', "wait"),
    ):
        kernel = aicf.CudaKernel(text, "f")
        name = f"test::{word}"
        broken = aicf.register_op(name, results=lambda x: x, cuda=kernel)
        with pytest.raises(aicf.UserError, match=word):
            aicf.compile(aicf.trace(broken, [aicf.TensorSpec((2, 3))]), options={"target": "sm_90"})
