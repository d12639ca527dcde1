"""Quantised ops of com.microsoft, which onnxruntime's quantiser and optimizers write, against onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import aicf
import numpy as np
import onnx_nodes
import pytest
from onnx_contrib import node_of, present
from onnx_nodes import draw as real
from onnx_nodes import peer, specs

Case = tuple[str, Mapping[str, np.ndarray], Sequence[str], Sequence[str], dict[str, Any]]


def u8(*sizes: int) -> np.ndarray:
    return np.random.default_rng(sizes).integers(0, 256, sizes).astype(np.uint8)


def i8(*sizes: int) -> np.ndarray:
    return np.random.default_rng(sizes).integers(-128, 128, sizes).astype(np.int8)


def i7(*sizes: int) -> np.ndarray:
    """Codes of 7 bits in i8: onnxruntime's convolutions of u8 and s8 saturate in 16 bits without VNNI."""
    return (i8(*sizes) // 2).astype(np.int8)


def scale(value: float) -> np.ndarray:
    return np.array(value, np.float32)


def zero(value: int, dtype: Any = np.uint8) -> np.ndarray:
    return np.array(value, dtype)


def model_of(case: Case, symbolic: bool = False) -> bytes:
    """One node over inputs in order: those named in `fed` are inputs of the model, the others constants. A
    name that begins with `_` stands for an absent input."""
    op, arrays, fed, kinds, attributes = case
    node = node_of(op, arrays, ["y"], **attributes)
    inputs = {
        name: (dtype, [f"{name}0", *sizes[1:]] if symbolic and sizes else sizes)
        for name, (dtype, sizes) in specs({name: arrays[name] for name in fed}).items()
    }
    constants = {name: array for name, array in present(arrays).items() if name not in fed}
    return onnx_nodes.model_of([node], inputs, [f"y:{kinds[0]}"], constants, opset=17)


def of_one(name: str, size: float, point: int, dtype: Any = np.uint8) -> dict[str, np.ndarray]:
    return {f"{name}_scale": scale(size), f"{name}_zero": zero(point, dtype)}


X = {"x": u8(2, 6, 5, 7), **of_one("x", 0.05, 100)}
XS = {"x": i8(3, 4, 5), **of_one("x", 0.04, -3, np.int8)}
Y, YS = of_one("y", 0.07, 90), of_one("y", 0.06, 5, np.int8)
B = {"b": u8(6, 1, 7), **of_one("b", 0.03, 20)}
PACKED = np.random.default_rng(3).integers(0, 256, (9, 3, 16)).astype(np.uint8)  # N=9, K=70, blocks of 32

CASES: list[Case] = [
    ("QLinearAdd", {**X, **B, **Y}, ["x", "b"], ["UINT8"], {}),
    ("QLinearAdd", {**XS, "b": i8(1, 5), **of_one("b", 0.1, 0, np.int8), **YS}, ["x"], ["INT8"], {}),
    ("QLinearMul", {**X, **B, **Y}, ["x", "b"], ["UINT8"], {}),
    ("QLinearSigmoid", {**X, **of_one("y", 1 / 256, 0)}, ["x"], ["UINT8"], {}),
    ("QLinearLeakyRelu", {**XS, **YS}, ["x"], ["INT8"], {"alpha": 0.2}),
    ("QLinearGlobalAveragePool", {**X, **Y}, ["x"], ["UINT8"], {}),
    ("QLinearGlobalAveragePool", {**X, **Y}, ["x"], ["UINT8"], {"channels_last": 1}),
    ("QLinearAveragePool", {**X, **Y}, ["x"], ["UINT8"], {"kernel_shape": [3, 2], "strides": [2, 1]}),
    (
        "QLinearAveragePool",
        {**X, **Y},
        ["x"],
        ["UINT8"],
        {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "channels_last": 1, "ceil_mode": 1, "strides": [2, 2]},
    ),
    (
        "QLinearConcat",
        {**Y, **X, "b": u8(2, 3, 5, 7), **of_one("b", 0.1, 3)},
        ["x", "b"],
        ["UINT8"],
        {"axis": 1},
    ),
    (
        "QLinearSoftmax",
        {**XS, **of_one("y", 1 / 256, -128, np.int8)},
        ["x"],
        ["INT8"],
        {"axis": -1, "opset": 13},
    ),
    ("QLinearSoftmax", {**X, **of_one("y", 1 / 256, 0)}, ["x"], ["UINT8"], {"axis": 1, "opset": 11}),
    (
        "QLinearWhere",
        {"c": real(3, 4, 1) > 0, **XS, "b": i8(5), **of_one("b", 0.1, 7, np.int8), **YS},
        ["c", "x"],
        ["INT8"],
        {},
    ),
    (
        "QLinearConv",
        {**X, "w": i7(4, 7, 3, 3), "w_scale": np.abs(real(4)) * 0.01, "w_zero": np.zeros(4, np.int8), **Y},
        ["x"],
        ["UINT8"],
        {"channels_last": 1, "pads": [1, 0, 1, 2], "strides": [1, 2]},
    ),
    (
        "MatMulIntegerToFloat",
        {
            "a": u8(2, 5, 8),
            "b": i8(8, 6),
            "a_scale": scale(0.02),
            "b_scale": np.abs(real(6)),
            "a_zero": zero(120),
            "b_zero": np.arange(6).astype(np.int8),
            "bias": real(6),
        },
        ["a"],
        ["FLOAT"],
        {},
    ),
    (
        "MatMulIntegerToFloat",
        {"a": u8(5, 8), "b": u8(8, 6), "a_scale": scale(0.02), "b_scale": scale(0.1)},
        ["a", "b"],
        ["FLOAT"],
        {},
    ),
    (
        "DynamicQuantizeMatMul",
        {
            "a": real(3, 5, 8),
            "b": i8(8, 6),
            "b_scale": np.abs(real(6)),
            "b_zero": np.zeros(6, np.int8),
            "bias": real(6),
        },
        ["a"],
        ["FLOAT"],
        {},
    ),
    (
        "DynamicQuantizeMatMul",
        {"a": real(7, 8), "b": u8(8, 6), "b_scale": scale(0.3), "b_zero": zero(117)},
        ["a"],
        ["FLOAT"],
        {},
    ),
    (
        "QGemm",
        {
            "a": u8(5, 8),
            "a_scale": scale(0.02),
            "a_zero": zero(120),
            "b": i8(6, 8),
            "b_scale": scale(0.01),
            "b_zero": zero(0, np.int8),
            "c": np.arange(-300, 300, 100).astype(np.int32),
            **Y,
        },
        ["a"],
        ["UINT8"],
        {"transB": 1},
    ),
    (
        "QGemm",
        {
            "a": u8(5, 8),
            "a_scale": scale(0.02),
            "a_zero": zero(120),
            "b": i8(8, 6),
            "b_scale": np.abs(real(6)),
            "b_zero": np.arange(6).astype(np.int8),
            "_c": zero(0),
        },
        ["a"],
        ["FLOAT"],
        {"alpha": 0.5},
    ),
    ("QuantizeLinear", {"x": real(3, 4) * 9, **Y}, ["x"], ["UINT8"], {}),
    (
        "DequantizeLinear",
        {"x": i8(3, 4), "s": np.abs(real(4)), "z": np.arange(4).astype(np.int8)},
        ["x"],
        ["FLOAT"],
        {"axis": 1},
    ),
    (
        "MatMulNBits",
        {"a": real(2, 5, 70), "b": PACKED, "s": np.abs(real(27))},
        ["a"],
        ["FLOAT"],
        {"K": 70, "N": 9, "bits": 4, "block_size": 32},
    ),
    (
        "MatMulNBits",
        {"a": real(5, 70), "b": PACKED, "s": np.abs(real(27)), "z": u8(18), "_g": zero(0), "bias": real(9)},
        ["a"],
        ["FLOAT"],
        {"K": 70, "N": 9, "bits": 4, "block_size": 32},
    ),
    (
        "MatMulNBits",
        {"a": real(5, 70), "b": PACKED, "s": np.abs(real(27)), "z": np.abs(real(27))},
        ["a"],
        ["FLOAT"],
        {"K": 70, "N": 9, "bits": 4, "block_size": 32},
    ),
    (
        "MatMulNBits",
        {"a": real(5, 40), "b": u8(3, 2, 32), "s": np.abs(real(6)), "z": u8(6)},
        ["a"],
        ["FLOAT"],
        {"K": 40, "N": 3, "bits": 8, "block_size": 32},
    ),
]


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("case", CASES, ids=[f"{i}-{c[0]}" for i, c in enumerate(CASES)])
def test_results_are_those_of_onnxruntime(case: Case, symbolic: bool) -> None:
    """Integers within one step: the two round products of scales in different places."""
    _, arrays, fed, kinds, _ = case
    model = model_of(case, symbolic)
    feeds = {name: arrays[name] for name in fed}
    (theirs,) = peer(model, feeds)
    dims = {f"{name}0": arrays[name].shape[0] for name in fed} if symbolic else {}
    mine = np.asarray(aicf.compile(model, dims=dims)(**feeds))
    assert mine.dtype == theirs.dtype and mine.shape == theirs.shape
    if kinds[0] == "FLOAT":
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-4)
    else:
        assert np.abs(mine.astype(int) - theirs.astype(int)).max() <= 1
        assert np.ptp(theirs.astype(int)) > 10


@pytest.mark.parametrize("sizes", [(), (3, 4)])
@pytest.mark.parametrize("value", [0.0, -0.0])
def test_zeros_have_a_scale(sizes: tuple[int, ...], value: float) -> None:
    """Nothing but zeros has no range to divide by: a scale of 1, as onnxruntime makes it."""
    from onnx import helper

    feeds = {"x": np.full(sizes, value, np.float32)}
    node = helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "scale", "zero"])
    outputs = ["y:UINT8", "scale", "zero:UINT8"]
    model = onnx_nodes.model_of([node], {"x": (np.float32, list(sizes))}, outputs)
    for mine, theirs in zip(aicf.compile(model, threads=1)(**feeds), peer(model, feeds), strict=True):
        np.testing.assert_array_equal(np.asarray(mine), theirs)
    assert theirs == 0 and not np.asarray(mine).any()
