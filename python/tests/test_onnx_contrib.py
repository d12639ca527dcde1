"""Ops of com.microsoft, which onnxruntime's optimizers write, against onnxruntime."""

from __future__ import annotations

from typing import Any

import aicf
import numpy as np
import pytest
from onnx_contrib import NONE, check, check_refusal, model_of, real, run, whole

B, S, N, H = 2, 5, 4, 8
D = N * H


X, W, BIAS = real(B, S, D), real(D, 3 * D), real(3 * D)
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
ANGLES = {"cos": real(9, H // 2), "sin": real(9, H // 2)}


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
    ("EmbedLayerNormalization", EMBED, ["y", "count:INT32"], {}),
    (
        "EmbedLayerNormalization",
        {**EMBED, "mask": MASK, "places": whole(9, B, S)},
        ["y", "count:INT32", "sum"],
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
]


@pytest.mark.parametrize("case", CASES, ids=[f"{i}-{c[0]}" for i, c in enumerate(CASES)])
def test_results_are_those_of_onnxruntime(case: Any) -> None:
    check(*case)


@pytest.mark.parametrize(
    ("op", "feeds", "outputs", "attributes"),
    [
        ("FusedConv", {"x": IMAGE, "w": FILTERS}, ["y"], {"activation": "Cosine"}),
        ("Attention", PACKED, ["y"], {"num_heads": N, "do_rotary": 1}),
        ("Attention", {**PACKED, "mask": whole(5, 3 * B + 2)}, ["y"], {"num_heads": N}),
        ("MultiHeadAttention", {"q": Q, "k": X}, ["y"], {"num_heads": N}),
        ("EmbedLayerNormalization", NO_KINDS, ["y", "count:INT32"], {}),
    ],
)
def test_other_forms_are_refused_by_name(
    op: str, feeds: dict[str, np.ndarray], outputs: list[str], attributes: dict[str, Any]
) -> None:
    with pytest.raises(aicf.UserError) as caught:
        aicf.compile(model_of(op, feeds, outputs, **attributes))
    assert caught.value.name == "unsupported_op" and op in str(caught.value)


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
        np.testing.assert_array_equal(result, expected)


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
    ],
)
def test_operands_that_do_not_fit_are_named(
    op: str, feeds: dict[str, np.ndarray], attributes: dict[str, Any], told: str
) -> None:
    check_refusal(op, feeds, attributes, told)
