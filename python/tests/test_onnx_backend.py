"""aicf.onnx.backend on single nodes and models."""

from __future__ import annotations

import aicf
import numpy as np
import onnx
import pytest
from aicf.onnx import backend
from onnx import helper


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
