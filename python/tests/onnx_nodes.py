"""Models of a few ONNX nodes, run by AICF and by onnxruntime, for the tests of forms, sizes and refusals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import aicf
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

__all__ = ["Arrays", "check_sizes", "draw", "model_of", "ours", "peer"]

ort = pytest.importorskip("onnxruntime")

Arrays = Mapping[str, np.ndarray]


def draw(*sizes: int) -> np.ndarray:
    return np.random.default_rng(sizes).standard_normal(sizes).astype(np.float32)


def model_of(
    nodes: Sequence[Any],
    inputs: Mapping[str, tuple[Any, Sequence[int | str]]],
    outputs: Sequence[str],
    constants: Arrays = {},  # noqa: B006
    opset: int = 19,
) -> bytes:
    """`inputs`: dtype and sizes by name; outputs are f32 unless `name:type` says another."""
    named = [output.split(":") for output in outputs]
    graph = helper.make_graph(
        nodes,
        "graph",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), list(sizes))
            for name, (dtype, sizes) in inputs.items()
        ],
        [
            helper.make_tensor_value_info(
                name, getattr(TensorProto, kind[0]) if kind else TensorProto.FLOAT, None
            )
            for name, *kind in named
        ],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports)
    model.ir_version = 9
    return model.SerializeToString()


def peer(model: bytes, feeds: Arrays) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    return ort.InferenceSession(model, options).run(None, dict(feeds))


def ours(exe: aicf.Executable, feeds: Arrays) -> list[np.ndarray]:
    results = exe(**feeds)
    return [np.asarray(r) for r in (results if isinstance(results, tuple) else (results,))]


def check_sizes(
    model: bytes, dims: Mapping[str, str], cases: Sequence[tuple[Mapping[str, int], Arrays]]
) -> None:
    exe = aicf.compile(model, dims=dims, threads=1)
    for sizes, feeds in cases:
        got = ours(exe, feeds)
        for mine, exact, theirs in zip(
            got, ours(aicf.compile(model, dims=sizes, threads=1), feeds), peer(model, feeds), strict=True
        ):
            assert mine.tobytes() == exact.tobytes(), sizes
            np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)
