"""Ops of com.microsoft, which onnxruntime's optimizers write, against onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import aicf
import numpy as np
import onnx
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

BIAS_FREE = real(B, S, D)
PAST = real(2, B, N, 3, H)
IMAGE, FILTERS = real(2, 4, 7, 7), real(6, 4, 1, 2)
GROUPS = {"num_heads": N, "kv_num_heads": 2}
ANGLES = {"cos": real(9, H // 2), "sin": real(9, H // 2)}


def group_query_case(
    steps: int, held: int, lengths: list[int], packed: bool = False
) -> dict[str, np.ndarray]:
    size, columns, b = 16, N * 16, len(lengths)
    new: dict[str, np.ndarray] = (
        {"q": real(b, steps, 2 * columns), "_k": NONE, "_v": NONE}
        if packed
        else {"q": real(b, steps, columns), "k": real(b, steps, 2 * size), "v": real(b, steps, 2 * size)}
    )
    return new | {
        "past_k": real(b, 2, held, size),
        "past_v": real(b, 2, held, size),
        "lengths": np.array(lengths, np.int32),
        "total": np.array(steps + held, np.int32),
    }


def group_query_cases() -> list[Any]:
    """Prompt, next token, chunk; with and without angles, window, bias, packing and unlike lengths."""
    outputs = ["y", "present_k", "present_v"]
    angles = {"cos": real(9, 8), "sin": real(9, 8)}
    cases = []
    for steps, held, lengths in ((5, 0, [4, 4]), (1, 6, [6, 6]), (1, 6, [6, 3]), (3, 4, [6])):
        apart = group_query_case(steps, held, lengths)
        bias = {"_cos": NONE, "_sin": NONE, "_p": NONE, "bias": real(1, N, steps, steps + held)}
        cases += [
            (apart, {}),
            (group_query_case(steps, held, lengths, packed=True), {}),
            (apart | angles, {"do_rotary": 1}),
            (apart | angles, {"do_rotary": 1, "rotary_interleaved": 1, "scale": 0.2}),
            (apart, {"local_window_size": 3}),
            (apart, {"softcap": 2.0}),
            (apart | bias, {}),
        ]
    return [("GroupQueryAttention", feeds, outputs, GROUPS | attributes) for feeds, attributes in cases]


CASES: list[tuple[str, dict[str, np.ndarray], list[str], dict[str, Any]]] = [
    ("FusedMatMul", {"a": real(3, 4, 5), "b": real(5, 6)}, ["y"], {}),
    (
        "FusedMatMul",
        {"a": real(3, 5, 4), "b": real(3, 6, 5)},
        ["y"],
        {"transA": 1, "transB": 1, "alpha": 0.3},
    ),
    ("FusedMatMul", {"a": real(2, 1, 4, 5), "b": real(3, 6, 5)}, ["y"], {"transB": 1, "alpha": 2.0}),
    ("FusedMatMul", {"a": real(4, 3, 5), "b": real(5, 3, 6)}, ["y"], {"transBatchA": 1, "transBatchB": 1}),
    (
        "FusedMatMul",
        {"a": real(5, 2, 3, 4), "b": real(6, 2, 3, 5)},
        ["y"],
        {"transBatchA": 1, "transA": 1, "transBatchB": 1, "transB": 1},
    ),
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
    (
        "MultiHeadAttention",
        {"q": Q, "k": X, "v": BIAS_FREE, "b": BIAS, "_m": NONE, "_a": NONE, "pk": PAST[0], "pv": PAST[1]},
        ["y", "present_k", "present_v"],
        {"num_heads": N, "unidirectional": 1},
    ),
    ("MultiHeadAttention", APART, ["y", "present_k", "present_v"], {"num_heads": N}),
    ("Attention", PACKED, ["y", "present"], {"num_heads": N}),
    (
        "Attention",
        {**PACKED, "_m": NONE, "past": PAST},
        ["y", "present"],
        {"num_heads": N, "unidirectional": 1},
    ),
    (
        "Attention",
        {**PACKED, "mask": whole(2, B, S + 3) | 1, "past": PAST},
        ["y", "present"],
        {"num_heads": N, "unidirectional": 1},
    ),
    (
        "FusedConv",
        {"x": IMAGE, "w": FILTERS, "b": real(6)},
        ["y"],
        {"activation": "Relu", "pads": [1, 0, 2, 1]},
    ),
    (
        "FusedConv",
        {"x": IMAGE, "w": FILTERS, "b": real(6), "z": real(2, 6, 7, 6)},
        ["y"],
        {"activation": "LeakyRelu", "activation_params": [0.3]},
    ),
    (
        "FusedConv",
        {"x": IMAGE, "w": real(4, 2, 3, 2), "_b": NONE, "z": real(2, 4, 4, 7)},
        ["y"],
        {"group": 2, "strides": [2, 1], "auto_pad": "SAME_LOWER"},
    ),
    (
        "FusedConv",
        {"x": IMAGE, "w": FILTERS},
        ["y"],
        {"activation": "Clip", "activation_params": [-0.2, 0.5]},
    ),
    (
        "FusedConv",
        {"x": IMAGE, "w": FILTERS},
        ["y"],
        {"activation": "HardSigmoid", "activation_params": [0.3, 0.4]},
    ),
    ("FusedConv", {"x": IMAGE, "w": FILTERS}, ["y"], {"activation": "Tanh", "dilations": [2, 1]}),
    ("FusedGemm", {"a": real(5, 4), "b": real(4, 6), "c": real(6)}, ["y"], {"activation": "Relu"}),
    (
        "FusedGemm",
        {"a": real(4, 5), "b": real(6, 4), "c": real(5, 1)},
        ["y"],
        {
            "transA": 1,
            "transB": 1,
            "alpha": 0.5,
            "beta": 2.0,
            "activation": "LeakyRelu",
            "activation_alpha": 0.3,
        },
    ),
    (
        "FusedGemm",
        {"a": real(5, 4), "b": real(4, 6)},
        ["y"],
        {"activation": "HardSigmoid", "activation_alpha": 0.3, "activation_beta": 0.4},
    ),
    ("TransposeMatMul", {"a": real(3, 5, 4), "b": real(3, 5, 6)}, ["y"], {"transA": 1, "alpha": 0.3}),
    ("RotaryEmbedding", {"x": X, "p": np.array([2]), **ANGLES}, ["y"], {}),
    ("RotaryEmbedding", {"x": X, "p": whole(9, B, S).astype(np.int64), **ANGLES}, ["y"], {"interleaved": 1}),
    (
        "RotaryEmbedding",
        {"x": real(B, N, S, H), "p": np.array([0]), "cos": real(9, 2), "sin": real(9, 2)},
        ["y"],
        {"num_heads": N, "rotary_embedding_dim": 4},
    ),
    *group_query_cases(),
]


def run(model: bytes, given: Mapping[str, np.ndarray]) -> tuple[Any, ...]:
    known = {name: given[name] for name in ("total",) if name in given}
    results = aicf.compile(model, inputs=known)(**given)
    return results if isinstance(results, tuple) else (results,)


@pytest.mark.parametrize("case", CASES, ids=[f"{i}-{c[0]}" for i, c in enumerate(CASES)])
def test_results_are_those_of_onnxruntime(case: Any) -> None:
    op, feeds, outputs, attributes = case
    model = model_of(op, feeds, outputs, **attributes)
    given = {name: array for name, array in feeds.items() if not name.startswith("_")}
    options = ort.SessionOptions()
    options.log_severity_level = 4
    expected = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"]).run(None, given)
    results = run(model, given)
    assert len(results) == len(expected)
    for mine, theirs in zip(results, expected, strict=True):
        np.testing.assert_allclose(np.asarray(mine), theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("op", "feeds", "outputs", "attributes"),
    [
        ("FusedConv", {"x": IMAGE, "w": FILTERS}, ["y"], {"activation": "Cosine"}),
        (
            "GroupQueryAttention",
            group_query_case(5, 0, [4, 4]),
            ["y"],
            {"num_heads": N, "kv_num_heads": 2, "smooth_softmax": 1},
        ),
        ("Attention", PACKED, ["y"], {"num_heads": N, "do_rotary": 1}),
        ("Attention", {**PACKED, "mask": whole(5, 3 * B + 2)}, ["y"], {"num_heads": N}),
        ("MultiHeadAttention", {"q": Q, "k": X}, ["y"], {"num_heads": N}),
        ("EmbedLayerNormalization", NO_KINDS, ["y", "count:i32"], {}),
    ],
)
def test_other_forms_are_refused_by_name(
    op: str, feeds: dict[str, np.ndarray], outputs: list[str], attributes: dict[str, Any]
) -> None:
    with pytest.raises(aicf.UserError) as caught:
        aicf.compile(model_of(op, feeds, outputs, **attributes))
    assert caught.value.name == "unsupported_op" and op in str(caught.value)


@pytest.mark.parametrize(("held", "operands"), [(0, 3), (4, 4)])
def test_only_behind_a_past_a_window_is_a_mask(held: int, operands: int) -> None:
    """Of a prompt attention itself knows what is seen, and leaves out the rest."""
    feeds = group_query_case(5, held, [4 + held, 4 + held])
    model = model_of("GroupQueryAttention", feeds, ["y", "pk", "pv"], **GROUPS, local_window_size=3)
    plan = str(aicf.compile(model, inputs={"total": feeds["total"]}).plan)
    (step,) = (line for line in plan.splitlines() if " attention_f32 " in line)
    assert step.split(" -> ")[0].count("[") == operands


def test_a_prompt_that_is_padded_behind() -> None:
    """Rows beyond a sequence's length mean nothing; the others are as if it stood alone."""
    feeds = group_query_case(5, 0, [4, 2])
    y, present_k, _ = run(model_of("GroupQueryAttention", feeds, ["y", "pk", "pv"], **GROUPS), feeds)
    alone = {
        name: array[1:2, :3] if name in "qkv" else array[1:2]
        for name, array in feeds.items()
        if name != "total"
    }
    alone["total"] = np.array(3, np.int32)
    expected = run(model_of("GroupQueryAttention", alone, ["y", "pk", "pv"], **GROUPS), alone)
    np.testing.assert_allclose(np.asarray(y)[1:, :3], np.asarray(expected[0]), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(np.asarray(present_k)[1:, :, :3], np.asarray(expected[1]))


def test_a_cache_of_any_length_grows_by_the_new_rows() -> None:
    """The sizes of the past and of the whole are symbolic, the whole that of a mask."""
    nodes = [
        helper.make_node("Shape", ["mask"], ["shape"], start=1, end=2),
        helper.make_node("Squeeze", ["shape"], ["one"]),
        helper.make_node("Cast", ["one"], ["total"], to=TensorProto.INT32),
        helper.make_node("ReduceSum", ["mask", "axes"], ["sum"], keepdims=0),
        helper.make_node("Sub", ["sum", "unit"], ["less"]),
        helper.make_node("Cast", ["less"], ["lengths"], to=TensorProto.INT32),
        helper.make_node(
            "GroupQueryAttention",
            ["q", "k", "v", "past_k", "past_v", "lengths", "total", "cos", "sin"],
            ["y", "present_k", "present_v"],
            domain="com.microsoft",
            num_heads=N,
            kv_num_heads=2,
            do_rotary=1,
        ),
    ]
    shapes: dict[str, list[Any]] = {
        "q": ["b", "s", N * 16],
        "k": ["b", "s", 32],
        "v": ["b", "s", 32],
        "past_k": ["b", 2, "p", 16],
        "past_v": ["b", 2, "p", 16],
    }
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    inputs.append(helper.make_tensor_value_info("mask", TensorProto.INT64, ["b", "p + s"]))
    constants = [
        helper.make_tensor("cos", TensorProto.FLOAT, [32, 8], real(32, 8).ravel()),
        helper.make_tensor("sin", TensorProto.FLOAT, [32, 8], real(32, 8).ravel()),
        helper.make_tensor("axes", TensorProto.INT64, [1], [1]),
        helper.make_tensor("unit", TensorProto.INT64, [], [1]),
    ]
    outputs = [
        helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in ("y", "present_k", "present_v")
    ]
    graph = helper.make_graph(nodes, "graph", inputs, outputs, constants)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString()
    exe = aicf.compile(model, dims={"b": "1..3", "s": "1..8", "p": "0..16"})
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    for b, s, p in ((1, 8, 0), (2, 1, 5), (1, 3, 16), (3, 1, 16)):
        sizes = {"b": b, "s": s, "p": p}
        feeds = {name: real(*(sizes.get(d, d) for d in shape)) for name, shape in shapes.items()}
        feeds["mask"] = np.ones((b, p + s), np.int64)
        for mine, theirs in zip(exe(**feeds), session.run(None, feeds), strict=True):
            np.testing.assert_allclose(np.asarray(mine), theirs, rtol=1e-4, atol=1e-5)


def test_packed_keys_and_values_are_those_apart() -> None:
    """onnxruntime's CPU has no packed forms, so ours are compared with the unpacked ones."""
    q, k, v = real(B, S, N, H), real(B, S, N, H), real(B, S, N, H)
    feeds = {name: x.reshape(B, S, D) for name, x in (("q", q), ("k", k), ("v", v))}
    (expected,) = run(model_of("MultiHeadAttention", feeds, ["y"], num_heads=N), feeds)
    forms = [
        {"q": np.stack([q, k, v], axis=3)},
        {"q": feeds["q"], "kv": np.stack([k, v], axis=3)},
    ]
    for packed in forms:
        (result,) = run(model_of("MultiHeadAttention", packed, ["y"], num_heads=N), packed)
        np.testing.assert_array_equal(np.asarray(result), np.asarray(expected))


@pytest.mark.parametrize(
    ("op", "feeds", "attributes", "told"),
    [
        ("MultiHeadAttention", {**APART, "b": real()}, {"num_heads": N}, "the rank of input 3"),
        ("MultiHeadAttention", {**APART, "b": real(3 * D + 1)}, {"num_heads": N}, "bias"),
        ("MultiHeadAttention", {"q": real(B, S, N, 4, H)}, {"num_heads": N}, "packed operands"),
        ("MultiHeadAttention", {"q": real(B, S, 2 * N, 3, H)}, {"num_heads": N}, "packed operands"),
        (
            "Attention",
            {**PACKED, "_mask": NONE, "past": real(3, B, N, 2, H)},
            {"num_heads": N},
            "past",
        ),
        (
            "GroupQueryAttention",
            {"q": Q, "k": Q, "v": Q, "pk": real(), "pv": real(), "at": whole(2, B), "total": whole(9)},
            {"num_heads": N, "kv_num_heads": N},
            "the rank of input 3",
        ),
        (
            "GroupQueryAttention",
            {"q": real(B, S, 3 * D + 2), "_k": NONE, "_v": NONE, "_pk": NONE, "_pv": NONE}
            | {"at": whole(2, B), "total": whole(9)},
            {"num_heads": N, "kv_num_heads": N},
            "packed Q, K and V",
        ),
    ],
)
def test_operands_that_do_not_fit_are_named(
    op: str, feeds: dict[str, np.ndarray], attributes: dict[str, Any], told: str
) -> None:
    constants = {name: feeds[name] for name in ("total",) if name in feeds}
    model = onnx.load_from_string(model_of(op, feeds, ["y"], **attributes))
    for name, array in constants.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    with pytest.raises(aicf.UserError, match="AICF-U0300") as error:
        aicf.compile(model.SerializeToString())
    assert told in str(error.value)
