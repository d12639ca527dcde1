"""Models whose tensors have types that numpy may lack, run by AICF and by onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import aicf
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

__all__ = [
    "FLOAT",
    "INT4",
    "RANGES",
    "UINT4",
    "UINT16",
    "UINT32",
    "check",
    "model_of",
    "ours",
    "packed",
    "peer",
    "real",
    "whole",
]

ort = pytest.importorskip("onnxruntime")

Arrays = Mapping[str, np.ndarray]
FLOAT, UINT16, UINT32, UINT4, INT4 = (
    TensorProto.FLOAT,
    TensorProto.UINT16,
    TensorProto.UINT32,
    TensorProto.UINT4,
    TensorProto.INT4,
)
RANGES = {UINT4: (0, 15), INT4: (-8, 7), UINT16: (0, 65535), UINT32: (0, 2**32 - 1)}


def real(*sizes: int) -> np.ndarray:
    return np.random.default_rng(sizes).standard_normal(sizes).astype(np.float32)


def whole(low: int, high: int, dtype: Any, *sizes: int) -> np.ndarray:
    return np.random.default_rng(sizes).integers(low, high, sizes, endpoint=True).astype(dtype)


def packed(array: np.ndarray, kind: int) -> TensorProto:
    """A tensor of a type that numpy lacks."""
    return helper.make_tensor("", kind, array.shape, array.reshape(-1).tolist())


def named(tensor: TensorProto, name: str) -> TensorProto:
    tensor.name = name
    return tensor


def model_of(
    nodes: Sequence[Any],
    inputs: Mapping[str, tuple[int, Sequence[Any]]],
    outputs: Mapping[str, int],
    constants: Mapping[str, Any] = {},  # noqa: B006
    opset: int = 23,
) -> bytes:
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(name, kind, list(sizes)) for name, (kind, sizes) in inputs.items()],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()],
        [
            named(c, name) if isinstance(c, TensorProto) else numpy_helper.from_array(c, name)
            for name, c in constants.items()
        ],
    )
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports)
    model.ir_version = 10
    return model.SerializeToString()


def peer(model: bytes, feeds: Arrays) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"]).run(None, dict(feeds))


def ours(model: bytes, feeds: Arrays, dims: Mapping[str, Any] = {}) -> list[np.ndarray]:  # noqa: B006
    results = aicf.compile(model, dims=dims)(**feeds)
    return [np.asarray(r) for r in (results if isinstance(results, tuple) else (results,))]


def check(model: bytes, feeds: Arrays, dims: Mapping[str, Any] = {}, limit: float = 1e-5) -> None:  # noqa: B006
    for mine, theirs in zip(ours(model, feeds, dims), peer(model, feeds), strict=True):
        assert mine.shape == theirs.shape
        assert mine.dtype == theirs.dtype
        np.testing.assert_allclose(mine, theirs, rtol=limit, atol=limit)
