"""Models whose tensors have types that numpy may lack, run by AICF and by onnxruntime."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import aicf
import numpy as np
import onnx_nodes
from onnx import TensorProto, helper
from onnx_nodes import Arrays
from onnx_nodes import draw as real

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
    "real",
    "whole",
]

FLOAT, UINT16, UINT32, UINT4, INT4 = (
    TensorProto.FLOAT,
    TensorProto.UINT16,
    TensorProto.UINT32,
    TensorProto.UINT4,
    TensorProto.INT4,
)
RANGES = {UINT4: (0, 15), INT4: (-8, 7), UINT16: (0, 65535), UINT32: (0, 2**32 - 1)}

# The first opset with all of these types.
model_of = functools.partial(onnx_nodes.model_of, opset=23)


def whole(low: int, high: int, dtype: Any, *sizes: int) -> np.ndarray:
    return np.random.default_rng(sizes).integers(low, high, sizes, endpoint=True).astype(dtype)


def packed(array: np.ndarray, kind: int) -> TensorProto:
    """A tensor of a type that numpy lacks."""
    return helper.make_tensor("", kind, array.shape, array.reshape(-1).tolist())


def ours(model: bytes, feeds: Arrays, dims: Mapping[str, Any] = {}) -> list[np.ndarray]:  # noqa: B006
    return onnx_nodes.ours(aicf.compile(model, dims=dims), feeds)


def check(model: bytes, feeds: Arrays, dims: Mapping[str, Any] = {}, limit: float = 1e-5) -> None:  # noqa: B006
    theirs = onnx_nodes.peer(model, feeds, optimised=False)
    for mine, exact in zip(ours(model, feeds, dims), theirs, strict=True):
        assert mine.shape == exact.shape
        assert mine.dtype == exact.dtype
        np.testing.assert_allclose(mine, exact, rtol=limit, atol=limit)
