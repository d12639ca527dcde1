"""Single nodes of com.microsoft, run by AICF and by onnxruntime. Among what they get, a name that begins with
`_` stands for an absent input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import aicf
import numpy as np
import onnx
import onnx_nodes
import pytest
from onnx import NodeProto, helper, numpy_helper
from onnx_nodes import Arrays, specs

__all__ = ["NONE", "check", "check_refusal", "model_of", "node_of", "present", "real", "run", "whole"]

NONE = np.zeros(0, np.float32)
RNG = np.random.default_rng(0)


def real(*sizes: int) -> np.ndarray:
    return (RNG.standard_normal(sizes) * 0.5).astype(np.float32)


def whole(high: int, *sizes: int) -> np.ndarray:
    return RNG.integers(0, high, sizes).astype(np.int32)


def present(arrays: Arrays) -> dict[str, np.ndarray]:
    return {name: array for name, array in arrays.items() if not name.startswith("_")}


def node_of(op: str, arrays: Arrays, outputs: Sequence[str], **attributes: Any) -> NodeProto:
    """Over all arrays in order."""
    names = ["" if name.startswith("_") else name for name in arrays]
    domain = "" if op == "SimplifiedLayerNormalization" else "com.microsoft"
    return helper.make_node(op, names, outputs, domain=domain, **attributes)


def model_of(op: str, feeds: Arrays, outputs: Sequence[str], **attributes: Any) -> bytes:
    """One node. `outputs` as of onnx_nodes.model_of(), or "" for one that is not wanted."""
    node = node_of(op, feeds, [output.partition(":")[0] for output in outputs], **attributes)
    wanted = [output for output in outputs if output]
    return onnx_nodes.model_of([node], specs(present(feeds)), wanted, opset=17)


def known_of(feeds: Arrays) -> dict[str, np.ndarray]:
    """The inputs whose values decide shapes."""
    return {name: feeds[name] for name in ("total",) if name in feeds}


def run(model: bytes, feeds: Arrays) -> list[np.ndarray]:
    return onnx_nodes.ours(aicf.compile(model, inputs=known_of(feeds)), feeds)


def check(op: str, feeds: Arrays, outputs: Sequence[str], attributes: dict[str, Any]) -> None:
    model = model_of(op, feeds, outputs, **attributes)
    given = present(feeds)
    for mine, theirs in zip(run(model, given), onnx_nodes.peer(model, given), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


def check_refusal(op: str, feeds: Arrays, attributes: dict[str, Any], told: str) -> None:
    """Of operands that do not fit."""
    model = onnx.load_from_string(model_of(op, feeds, ["y"], **attributes))
    for name, array in known_of(feeds).items():
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    with pytest.raises(aicf.UserError, match="AICF-U0300") as error:
        aicf.compile(model.SerializeToString())
    assert told in str(error.value)
