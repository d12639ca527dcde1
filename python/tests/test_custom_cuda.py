"""Custom ops of CUDA text and of Triton on a GPU, from tracing, ONNX and a file, beside their functions for
the CPU."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path
from typing import Any

import aicf
import numpy as np
import onnx
import pytest
from needs_triton import need_triton
from test_custom_op import OP as affine

need_triton()
from triton_ops import row_softmax, scale_shift  # noqa: E402


def no_gpu() -> bool:
    try:
        return ctypes.CDLL("libcuda.so.1").cuInit(0) != 0
    except OSError:
        return True


GPU = pytest.mark.skipif(no_gpu(), reason="needs a GPU")
DEVICES = ["cpu", pytest.param("cuda", marks=GPU)]


def model(x: Any) -> Any:
    """All three ops with ops of ours between them, which may be fused around them."""
    scaled, sums = affine(x.transpose([1, 0]), alpha=2.0, shift=3)
    shifted = scale_shift(aicf.ops.tanh(scaled), shift=-1, alpha=0.5)
    return row_softmax(shifted + x.transpose([1, 0])), sums * 2.0


def expected(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    wide = x.T.astype("d")
    scaled = 2 * wide + 3
    power = np.exp(np.tanh(scaled) / 2 - 1 + wide)
    return power / power.sum(-1, keepdims=True), 2 * scaled.sum(-1)


def compiled(device: str) -> aicf.Executable:
    program = aicf.trace(model, [aicf.TensorSpec((300, "n"), "f32")], dims={"n": "1..40"})
    return aicf.compile(program, device=device)


def check(results: Any, x: np.ndarray) -> None:
    for ours, exact in zip(results, expected(x), strict=True):
        np.testing.assert_allclose(np.asarray(ours), exact, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("device", DEVICES)
def test_traced(device: str) -> None:
    exe = compiled(device)
    assert all(f"custom:{name}" in str(exe.plan) for name in ("test::affine", "tritontest::row_softmax"))
    for n in (1, 7, 40):
        x = np.random.default_rng(n).standard_normal((300, n)).astype("f")
        check(exe(x), x)


@GPU
def test_a_file_for_the_gpu_needs_no_op(tmp_path: Path) -> None:
    exe = compiled("cuda")
    exe.save(tmp_path / "m.aicf")
    x = np.random.default_rng(0).standard_normal((300, 5)).astype("f")
    np.save(tmp_path / "x.npy", x)
    script = (
        f"import sys, aicf, numpy as np; x = np.load({str(tmp_path / 'x.npy')!r})\n"
        f"results = aicf.load({str(tmp_path / 'm.aicf')!r}, device='cuda')(x)\n"
        f"assert 'triton' not in sys.modules\n"
        f"np.savez({str(tmp_path / 'y.npz')!r}, *map(np.asarray, results))"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
    for ours, theirs in zip(np.load(tmp_path / "y.npz").values(), exe(x), strict=True):
        assert np.array_equal(ours, np.asarray(theirs))


@pytest.mark.parametrize("device", DEVICES)
def test_onnx_nodes(device: str) -> None:
    helper = onnx.helper
    nodes = [
        helper.make_node("scale_shift", ["x"], ["h"], domain="tritontest", alpha=2.0, shift=3),
        helper.make_node("row_softmax", ["h"], ["y"], domain="tritontest"),
        helper.make_node("affine", ["y"], ["z", "sums"], domain="test", alpha=0.5),
    ]
    infos = [helper.make_tensor_value_info(name, 1, None) for name in ("z", "sums")]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", 1, ["n", 30])], infos)
    opsets = [
        helper.make_opsetid("", 20),
        helper.make_opsetid("test", 1),
        helper.make_opsetid("tritontest", 1),
    ]
    data = helper.make_model(graph, opset_imports=opsets).SerializeToString()
    exe = aicf.compile(data, dims={"n": "1..9"}, device=device)
    x = np.random.default_rng(3).standard_normal((8, 30)).astype("f")
    power = np.exp(2 * x.astype("d") + 3)
    exact = power / power.sum(-1, keepdims=True) / 2
    for ours, wide in zip(exe(x), (exact, exact.sum(-1)), strict=True):
        np.testing.assert_allclose(np.asarray(ours), wide, rtol=2e-5, atol=1e-6)
