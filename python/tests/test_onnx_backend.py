"""aicf.onnx.backend on single nodes and models."""

from __future__ import annotations

import aicf
import numpy as np
import onnx
import pytest
from aicf.onnx import backend
from onnx import TensorProto, helper


def test_run_node() -> None:
    x, y = np.arange(6, dtype="f").reshape(2, 3), np.ones(3, "f")
    (result,) = backend.run_node(helper.make_node("Add", ["x", "y"], ["z"]), [x, y])
    assert np.array_equal(result, x + y)


def test_an_input_that_decides_a_shape() -> None:
    x = np.arange(6, dtype="f")
    node = helper.make_node("Reshape", ["x", "shape"], ["y"])
    for shape in ([2, 3], [3, -1]):
        (result,) = backend.run_node(node, [x, np.array(shape)])
        assert np.array_equal(result, x.reshape(shape))


def test_run_model_for_several_sizes(mlp: bytes) -> None:
    model = backend.prepare(onnx.load_from_string(mlp))
    for batch in (1, 4, 1):
        (result,) = model.run([np.zeros((batch, 16), "f")])
        assert result.shape == (batch, 8)


def test_devices() -> None:
    assert backend.supports_device("CPU") and not backend.supports_device("CUDA")


def test_unsupported_raises() -> None:
    with pytest.raises(aicf.UserError) as caught:
        backend.run_node(
            helper.make_node("StringNormalizer", ["x"], ["y"]), [np.zeros((2,), "f")], opset_version=17
        )
    assert caught.value.name in ("unsupported_op", "unsupported_dtype", "bad_model_file")


def test_a_value_that_decided_a_shape_is_the_only_one_accepted() -> None:
    graph = helper.make_graph(
        [helper.make_node("Reshape", ["x", "shape"], ["y"])],
        "reshape",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [6]),
            helper.make_tensor_value_info("shape", TensorProto.INT64, [2]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    shape = np.array([3, 2], np.int64)
    exe = aicf.compile(model.SerializeToString(), inputs={"shape": shape})
    x = np.arange(6, dtype=np.float32)
    assert np.array_equal(np.asarray(exe(x=x, shape=shape)), x.reshape(3, 2))
    with pytest.raises(aicf.UserError, match="accepts only the value") as refused:
        exe(x=x, shape=np.array([2, 3], np.int64))
    assert refused.value.code == "AICF-U0407"
