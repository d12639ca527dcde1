"""Models of a few ONNX nodes, run by AICF and by onnxruntime: what the tests of ONNX ops share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import aicf
import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

__all__ = [
    "Arrays",
    "check_sizes",
    "draw",
    "model_of",
    "ours",
    "peer",
    "specs",
]

ort = pytest.importorskip("onnxruntime")

Arrays = Mapping[str, np.ndarray]
# What names the type of a value: a numpy dtype, or the number in TensorProto of one that numpy may lack.
Kind = Any
CONTRIB = {"com.microsoft": 1}


def draw(*sizes: int) -> np.ndarray:
    return np.random.default_rng(sizes).standard_normal(sizes).astype(np.float32)


def model_of(
    nodes: Sequence[NodeProto],
    inputs: Mapping[str, tuple[Kind, Sequence[int | str]]],
    outputs: Sequence[str] | Mapping[str, int],
    constants: Mapping[str, np.ndarray | TensorProto] = {},  # noqa: B006
    opset: int = 19,
    domains: Mapping[str, int] = CONTRIB,
) -> bytes:
    """`inputs`: type and sizes by name. `outputs`: names, which are f32 unless `name:TYPE` says another, or
    types by name. `domains`: versions of what is imported beside `opset` of ONNX."""
    graph = helper.make_graph(
        nodes,
        "graph",
        [
            helper.make_tensor_value_info(name, _kind(kind), list(sizes))
            for name, (kind, sizes) in inputs.items()
        ],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in _kinds(outputs).items()],
        [_named(constant, name) for name, constant in constants.items()],
    )
    imports = [helper.make_opsetid(domain, version) for domain, version in {"": opset, **domains}.items()]
    return helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()


def _kind(kind: Kind) -> int:
    return kind if isinstance(kind, int) else helper.np_dtype_to_tensor_dtype(np.dtype(kind))


def _kinds(outputs: Sequence[str] | Mapping[str, int]) -> Mapping[str, int]:
    if isinstance(outputs, Mapping):
        return outputs
    pairs = (output.partition(":") for output in outputs)
    return {name: getattr(TensorProto, kind or "FLOAT") for name, _, kind in pairs}


def _named(constant: np.ndarray | TensorProto, name: str) -> TensorProto:
    if isinstance(constant, np.ndarray):
        return numpy_helper.from_array(constant, name)
    constant.name = name
    return constant


def specs(arrays: Arrays) -> dict[str, tuple[np.dtype[Any], Sequence[int]]]:
    """What model_of() takes as the inputs of these."""
    return {name: (array.dtype, array.shape) for name, array in arrays.items()}


def peer(model: bytes, feeds: Arrays, optimised: bool = True) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    if not optimised:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    # Without VNNI its products of u8 and s8 saturate in 16 bits; this asks for those that do not.
    options.add_session_config_entry("session.x64quantprecision", "1")
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"]).run(None, dict(feeds))


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
