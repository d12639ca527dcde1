"""onnxruntime's ops on quantised tables, attention and recurrent nets, against it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx_kinds import (
    FLOAT,
    INT4,
    RANGES,
    UINT4,
    check,
    model_of,
    packed,
    real,
    whole,
)


def gather_cases() -> list[Any]:
    table, blocks = (6, 64), (6, 2)
    cases: list[Any] = []
    for zero in (False, True):
        for kind in (UINT4, INT4):
            low, high = RANGES[kind]
            z = packed(whole(low, high, int, *blocks), kind)
            cases.append(
                (packed(whole(low, high, int, *table), kind), blocks, z if zero else None, {"bits": 4})
            )
        z8 = whole(0, 255, np.uint8, 6, 1)
        cases.append((whole(0, 255, np.uint8, 6, 32), blocks, z8 if zero else None, {"bits": 4}))
        z8 = whole(0, 255, np.uint8, *blocks)
        cases.append((whole(0, 255, np.uint8, *table), blocks, z8 if zero else None, {"bits": 8}))
    low, high = RANGES[INT4]
    deep = packed(whole(low, high, int, 3, 40, 2), INT4)
    cases.append((deep, (3, 3, 2), None, {"block_size": 16, "gather_axis": 2}))
    cases.append((deep, (3, 3, 2), None, {"block_size": 16, "gather_axis": 0}))
    return cases


@pytest.mark.parametrize("case", gather_cases())
@pytest.mark.parametrize("shape", [(4,), (2, 3)])
def test_rows_of_a_quantised_table(case: Any, shape: tuple[int, ...]) -> None:
    data, blocks, zero, attributes = case
    constants = {"w": data, "s": np.abs(real(*blocks)) + 0.1} | ({} if zero is None else {"z": zero})
    attributes = {"block_size": 32, "quantize_axis": 1, "gather_axis": 0} | attributes
    names = ["w", "i", "s", *(["z"] if zero is not None else [])]
    node = helper.make_node("GatherBlockQuantized", names, ["y"], domain="com.microsoft", **attributes)
    kinds = {"i": (TensorProto.INT64, ["n", *shape[1:]])}
    model = model_of([node], kinds, {"y": FLOAT}, constants)
    rows = 2 if attributes["gather_axis"] == 2 else 3 if len(blocks) == 3 else 6
    check(model, {"i": whole(0, rows - 1, np.int64, *shape)}, {"n": "1..5"})


@pytest.mark.parametrize("bits", [4, 8])
def test_numbers_that_fill_their_bytes_are_not_unpacked(cli: str, tmp_path: Path, bits: int) -> None:
    attributes = {"bits": bits, "block_size": 32, "quantize_axis": 1, "gather_axis": 0}
    constants = {"w": whole(0, 255, np.uint8, 6, 8 * bits), "s": np.abs(real(6, 2))}
    node = helper.make_node(
        "GatherBlockQuantized", ["w", "i", "s"], ["y"], domain="com.microsoft", **attributes
    )
    (tmp_path / "m.onnx").write_bytes(
        model_of([node], {"i": (TensorProto.INT64, [3])}, {"y": FLOAT}, constants)
    )
    words = [cli, "compile", "m.onnx", "--stop-after", "import", "--print"]
    graph = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert " gather" in graph and ("shift_right" in graph) == (bits < 8)


def range_of(dtype: Any) -> tuple[int, int]:
    """Of weights. Those of s8 have 7 bits: without VNNI onnxruntime's products of u8 and s8 saturate."""
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    return (low, high) if dtype == np.uint8 else (low // 2, high // 2)


@pytest.mark.parametrize("per_column", [False, True])
@pytest.mark.parametrize("past", [False, True])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_quantised_attention(per_column: bool, past: bool, dtype: Any) -> None:
    heads, size, columns = 2, 4, 24
    low, high = range_of(dtype)
    count = (columns,) if per_column else ()
    constants: dict[str, Any] = {
        "w": whole(low, high, dtype, 8, columns),
        "b": real(columns),
        "xs": np.array(0.02, np.float32),
        "ws": np.asarray(np.abs(real(*count, 1)[..., 0]) * 0.02 + 0.001, np.float32),
        "xz": np.array(120, np.uint8),
        "wz": np.asarray(np.full(count, 125 if dtype == np.uint8 else -3), dtype),
    }
    inputs: dict[str, Any] = {"x": (TensorProto.UINT8, ["n", 5, 8])}
    feeds: dict[str, np.ndarray] = {"x": whole(0, 255, np.uint8, 2, 5, 8)}
    if past:
        inputs["p"] = (FLOAT, [2, "n", heads, "t", size])
        feeds["p"] = real(2, 2, heads, 3, size)
    else:
        inputs["m"] = (TensorProto.INT32, ["n"])
        feeds["m"] = np.array([3, 5], np.int32)
    names = ["x", "w", "b", "xs", "ws", "" if past else "m", "xz", "wz", *(["p"] if past else [])]
    node = helper.make_node(
        "QAttention",
        names,
        ["y", *(["q"] if past else [])],
        domain="com.microsoft",
        num_heads=heads,
        unidirectional=int(past),
    )
    model = model_of([node], inputs, {"y": FLOAT, **({"q": FLOAT} if past else {})}, constants)
    dims = {"n": "1..4"} | ({"t": "1..8"} if past else {})
    check(model, feeds, dims, 1e-4)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_quantised_lstm(direction: str, per_channel: bool, dtype: Any) -> None:
    """One sequence: onnxruntime quantises the states of several by rows that its threads decide."""
    d, i, h = (2 if direction == "bidirectional" else 1), 6, 5
    low, high = range_of(dtype)
    count = (d, 4 * h) if per_channel else (d,)
    constants = {
        "w": whole(low, high, dtype, d, i, 4 * h),
        "r": whole(low, high, dtype, d, h, 4 * h),
        "b": real(d, 8 * h),
        "h": real(d, 1, h),
        "c": real(d, 1, h),
        "ws": np.abs(real(*count)) * 0.01 + 0.001,
        "wz": np.full(count, low + 128 if dtype == np.uint8 else 0).astype(dtype),
        "rs": np.abs(real(*count)) * 0.01 + 0.002,
        "rz": np.full(count, low + 128 if dtype == np.uint8 else 0).astype(dtype),
    }
    names = ["x", "w", "r", "b", "", "h", "c", "", "ws", "wz", "rs", "rz"]
    node = helper.make_node(
        "DynamicQuantizeLSTM",
        names,
        ["y", "yh", "yc"],
        domain="com.microsoft",
        hidden_size=h,
        direction=direction,
    )
    model = model_of([node], {"x": (FLOAT, ["t", 1, i])}, {"y": FLOAT, "yh": FLOAT, "yc": FLOAT}, constants)
    for steps in (1, 7):
        check(model, {"x": real(steps, 1, i)}, {"t": "1..9"}, 2e-4)
        check(model, {"x": real(steps, 1, i)}, {"t": steps}, 2e-4)
