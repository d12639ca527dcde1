"""Floats of 8 and 4 bits, against the reference of ONNX and onnxruntime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from onnx_kinds import (
    FLOAT,
    check,
    model_of,
    ours,
    real,
)

SMALL_FLOATS = [
    TensorProto.FLOAT8E4M3FN,
    TensorProto.FLOAT8E4M3FNUZ,
    TensorProto.FLOAT8E5M2,
    TensorProto.FLOAT8E5M2FNUZ,
    TensorProto.FLOAT4E2M1,
]


def bits_of_all(kind: int) -> np.ndarray:
    return np.arange(16 if kind == TensorProto.FLOAT4E2M1 else 256, dtype=np.uint8)


def values_of_all(kind: int) -> np.ndarray:
    return bits_of_all(kind).view(helper.tensor_dtype_to_np_dtype(kind)).astype(np.float32)


@pytest.mark.parametrize("kind", SMALL_FLOATS)
@pytest.mark.parametrize("saturate", [0, 1])
def test_small_floats_round_as_the_standard_says(kind: int, saturate: int) -> None:
    """At each number of the type, at the middles between two, and one step beside; of NaN any."""
    known = values_of_all(kind)
    sorted_ = np.unique(known[np.isfinite(known)])
    middles = (sorted_[1:] + sorted_[:-1]) / 2
    beside = [np.nextafter(middles, np.float32(end)) for end in (np.inf, -np.inf)]
    far = np.array([np.inf, -np.inf, 464, 465, 480, 61439, 61440, 1e30, -1e30, 1e-40], np.float32)
    x = np.concatenate([known, middles, *beside, far, real(500) * np.exp2(real(500) * 8)]).astype(np.float32)
    nodes = [
        helper.make_node("Cast", ["x"], ["c"], to=kind, saturate=saturate),
        helper.make_node("Cast", ["c"], ["y"], to=FLOAT),
    ]
    model = model_of(nodes, {"x": (FLOAT, ["n"])}, {"c": kind, "y": FLOAT})
    bits, mine = ours(model, {"x": x}, {"n": "1..4000"})
    theirs_bits, theirs = ReferenceEvaluator(onnx.load_from_string(model)).run(None, {"x": x})
    np.testing.assert_array_equal(mine, theirs)
    number = ~np.isnan(theirs)
    np.testing.assert_array_equal(bits[number], np.asarray(theirs_bits).view(np.uint8)[number])


@pytest.mark.parametrize("kind", [*SMALL_FLOATS, TensorProto.FLOAT8E8M0])
def test_small_floats_as_weights_and_as_inputs(kind: int) -> None:
    bits, known = bits_of_all(kind), values_of_all(kind)
    tensor = TensorProto(dims=bits.shape, data_type=kind)
    tensor.raw_data = bits.tobytes() if bits.size > 16 else (bits[::2] | bits[1::2] << 4).tobytes()
    nodes = [
        helper.make_node("Transpose", ["w"], ["t"]),
        helper.make_node("DequantizeLinear", ["t", "scale"], ["y"]),
        helper.make_node("Cast", ["x"], ["z"], to=FLOAT),
    ]
    constants = {"w": tensor, "scale": np.array(0.5, np.float32)}
    model = model_of(nodes, {"x": (kind, bits.shape)}, {"y": FLOAT, "z": FLOAT}, constants)
    y, z = ours(model, {"x": bits})
    np.testing.assert_array_equal(y, known * np.float32(0.5))
    np.testing.assert_array_equal(z, known)


def test_activations_through_f8() -> None:
    zero = TensorProto(dims=[], data_type=TensorProto.FLOAT8E4M3FN, raw_data=b"\0")
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["y"]),
    ]
    constants = {"scale": np.array(0.125, np.float32), "zero": zero}
    check(
        model_of(nodes, {"x": (FLOAT, ["n"])}, {"y": FLOAT}, constants, opset=19),
        {"x": real(300) * 40},
        {"n": "1..512"},
    )
