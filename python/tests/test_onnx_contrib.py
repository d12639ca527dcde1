"""Ops of com.microsoft, which onnxruntime's optimizers write, against onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import aicf
import numpy as np
import pytest
from onnx import TensorProto, helper

ort = pytest.importorskip("onnxruntime")

RNG = np.random.default_rng(0)
B, S, N, H = 2, 5, 4, 8
D = N * H


def real(*sizes: int) -> np.ndarray:
    return (RNG.standard_normal(sizes) * 0.5).astype(np.float32)


def whole(high: int, *sizes: int) -> np.ndarray:
    return RNG.integers(0, high, sizes).astype(np.int32)


def model_of(op: str, feeds: Mapping[str, np.ndarray], outputs: list[str], **attributes: Any) -> bytes:
    """One node over all feeds in order; a name that begins with `_` stands for an absent input."""
    names = ["" if name.startswith("_") else name for name in feeds]
    domain = "" if op == "SimplifiedLayerNormalization" else "com.microsoft"
    node = helper.make_node(op, names, [o.split(":")[0] for o in outputs], domain=domain, **attributes)
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feeds.items()
        if not name.startswith("_")
    ]
    results = [
        helper.make_tensor_value_info(
            o.split(":")[0], TensorProto.INT32 if o.endswith(":i32") else TensorProto.FLOAT, None
        )
        for o in outputs
        if o
    ]
    graph = helper.make_graph([node], "graph", inputs, results)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports)
    model.ir_version = 9
    return model.SerializeToString()


X, W, BIAS = real(B, S, D), real(D, 3 * D), real(3 * D)
NONE = np.zeros(0, np.float32)
Q, K, V = real(B, S, D), real(B, 7, D), real(B, 7, D)
PACKED = {"x": X, "w": W, "b": BIAS}
APART = {"q": Q, "k": K, "v": V}
EMBED = {
    "ids": whole(11, B, S),
    "segments": whole(2, B, S),
    "words": real(11, D),
    "positions": real(9, D),
    "kinds": real(2, D),
    "gamma": real(D),
    "beta": real(D),
}
NO_KINDS = {name if name != "kinds" else "_kinds": value for name, value in EMBED.items()}
MASK = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]], np.int32)

CASES: list[tuple[str, dict[str, np.ndarray], list[str], dict[str, Any]]] = [
    ("FusedMatMul", {"a": real(3, 4, 5), "b": real(5, 6)}, ["y"], {}),
    (
        "FusedMatMul",
        {"a": real(3, 5, 4), "b": real(3, 6, 5)},
        ["y"],
        {"transA": 1, "transB": 1, "alpha": 0.3},
    ),
    ("FusedMatMul", {"a": real(2, 1, 4, 5), "b": real(3, 6, 5)}, ["y"], {"transB": 1, "alpha": 2.0}),
    ("QuickGelu", {"x": real(3, 4)}, ["y"], {}),
    ("QuickGelu", {"x": real(3, 4)}, ["y"], {"alpha": 1.0}),
    ("SimplifiedLayerNormalization", {"x": X, "scale": real(D)}, ["y"], {"epsilon": 1e-3}),
    ("SkipSimplifiedLayerNormalization", {"x": X, "skip": Q, "gamma": real(D)}, ["y"], {}),
    (
        "SkipSimplifiedLayerNormalization",
        {"x": X, "skip": Q, "gamma": real(D), "bias": real(D)},
        ["y", "", "", "sum"],
        {},
    ),
    ("EmbedLayerNormalization", EMBED, ["y", "count:i32"], {}),
    (
        "EmbedLayerNormalization",
        {**EMBED, "mask": MASK, "places": whole(9, B, S)},
        ["y", "count:i32", "sum"],
        {"epsilon": 1e-3},
    ),
    ("Attention", PACKED, ["y"], {"num_heads": N}),
    ("Attention", PACKED, ["y"], {"num_heads": N, "unidirectional": 1, "scale": 0.2}),
    ("Attention", {**PACKED, "mask": MASK}, ["y"], {"num_heads": N}),
    ("Attention", {**PACKED, "mask": np.array([3, 5], np.int32)}, ["y"], {"num_heads": N}),
    ("Attention", {**PACKED, "mask": whole(2, B, S, S)}, ["y"], {"num_heads": N, "mask_filter_value": -50.0}),
    ("Attention", {**PACKED, "_m": NONE, "_p": NONE, "bias": real(B, N, S, S)}, ["y"], {"num_heads": N}),
    (
        "Attention",
        {"x": X, "w": real(D, 2 * D + 12), "b": real(2 * D + 12)},
        ["y"],
        {"num_heads": N, "qkv_hidden_sizes": [D, D, 12]},
    ),
    ("MultiHeadAttention", APART, ["y"], {"num_heads": N}),
    ("MultiHeadAttention", {**APART, "b": BIAS}, ["y"], {"num_heads": N, "scale": 0.3}),
    ("MultiHeadAttention", {**APART, "b": BIAS, "mask": whole(2, B, 7)}, ["y"], {"num_heads": N}),
    (
        "MultiHeadAttention",
        {"q": Q, "k": real(B, N, 7, H), "v": real(B, N, 7, H)},
        ["y"],
        {"num_heads": N},
    ),
    (
        "MultiHeadAttention",
        {**APART, "_b": NONE, "_m": NONE, "bias": real(1, N, S, 7)},
        ["y"],
        {"num_heads": N},
    ),
]


@pytest.mark.parametrize("case", CASES, ids=[f"{i}-{c[0]}" for i, c in enumerate(CASES)])
def test_results_are_those_of_onnxruntime(case: Any) -> None:
    op, feeds, outputs, attributes = case
    model = model_of(op, feeds, outputs, **attributes)
    given = {name: array for name, array in feeds.items() if not name.startswith("_")}
    options = ort.SessionOptions()
    options.log_severity_level = 4
    expected = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"]).run(None, given)
    results = aicf.compile(model)(**given)
    results = results if isinstance(results, tuple) else (results,)
    assert len(results) == len(expected)
    for mine, theirs in zip(results, expected, strict=True):
        np.testing.assert_allclose(np.asarray(mine), theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("op", "feeds", "outputs", "attributes"),
    [
        ("FusedMatMul", {"a": real(3, 4, 5), "b": real(3, 5, 6)}, ["y"], {"transBatchA": 1}),
        ("Attention", PACKED, ["y", "present"], {"num_heads": N}),
        ("Attention", PACKED, ["y"], {"num_heads": N, "do_rotary": 1}),
        ("Attention", {**PACKED, "mask": whole(5, 3 * B + 2)}, ["y"], {"num_heads": N}),
        ("MultiHeadAttention", {"q": real(B, S, N, 3, H)}, ["y"], {"num_heads": N}),
        ("EmbedLayerNormalization", NO_KINDS, ["y", "count:i32"], {}),
    ],
)
def test_other_forms_are_refused_by_name(
    op: str, feeds: dict[str, np.ndarray], outputs: list[str], attributes: dict[str, Any]
) -> None:
    with pytest.raises(aicf.UserError) as caught:
        aicf.compile(model_of(op, feeds, outputs, **attributes))
    assert caught.value.name == "unsupported_op" and op in str(caught.value)
