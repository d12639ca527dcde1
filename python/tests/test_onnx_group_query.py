"""GroupQueryAttention of com.microsoft, by which exporters write language models, against onnxruntime."""

from __future__ import annotations

from typing import Any

import aicf
import numpy as np
import onnx_nodes
import pytest
from onnx import TensorProto, helper
from onnx_contrib import NONE, check, check_refusal, model_of, node_of, real, run, whole
from onnx_nodes import ours, peer

B, S, HEADS, KV_HEADS, SIZE = 2, 5, 4, 2, 16
GROUPS = {"num_heads": HEADS, "kv_num_heads": KV_HEADS}
OP, OUTPUTS = "GroupQueryAttention", ["y", "present_k", "present_v"]


def feeds_of(steps: int, held: int, lengths: list[int], packed: bool = False) -> dict[str, np.ndarray]:
    """So many new rows behind those that a past holds; `lengths` are those of the sequences, less one."""
    b, columns, kv_columns = len(lengths), HEADS * SIZE, KV_HEADS * SIZE
    new: dict[str, np.ndarray] = (
        {"q": real(b, steps, columns + 2 * kv_columns), "_k": NONE, "_v": NONE}
        if packed
        else {
            "q": real(b, steps, columns),
            "k": real(b, steps, kv_columns),
            "v": real(b, steps, kv_columns),
        }
    )
    return new | {
        "past_k": real(b, KV_HEADS, held, SIZE),
        "past_v": real(b, KV_HEADS, held, SIZE),
        "lengths": np.array(lengths, np.int32),
        "total": np.array(steps + held, np.int32),
    }


def cases() -> list[Any]:
    """Prompt, next token, chunk; with and without angles, window, bias, packing and unlike lengths."""
    angles = {"cos": real(9, 8), "sin": real(9, 8)}
    found: list[Any] = []
    for steps, held, lengths in ((5, 0, [4, 4]), (1, 6, [6, 6]), (1, 6, [6, 3]), (3, 4, [6])):
        apart = feeds_of(steps, held, lengths)
        bias = {"_cos": NONE, "_sin": NONE, "_p": NONE, "bias": real(1, HEADS, steps, steps + held)}
        found += [
            (apart, {}),
            (feeds_of(steps, held, lengths, packed=True), {}),
            (apart | angles, {"do_rotary": 1}),
            (apart | angles, {"do_rotary": 1, "rotary_interleaved": 1, "scale": 0.2}),
            (apart, {"local_window_size": 3}),
            (apart, {"softcap": 2.0}),
            (apart | bias, {}),
        ]
    return found


@pytest.mark.parametrize(("feeds", "attributes"), cases())
def test_results_are_those_of_onnxruntime(feeds: dict[str, np.ndarray], attributes: dict[str, Any]) -> None:
    check(OP, feeds, OUTPUTS, GROUPS | attributes)


def test_other_forms_are_refused_by_name() -> None:
    with pytest.raises(aicf.UserError) as caught:
        aicf.compile(model_of(OP, feeds_of(5, 0, [4, 4]), ["y"], **GROUPS, smooth_softmax=1))
    assert caught.value.name == "unsupported_op" and OP in str(caught.value)


@pytest.mark.parametrize(
    ("feeds", "told"),
    [
        ({name: real(B, S, 32) for name in "qkv"} | {"pk": real(), "pv": real()}, "the rank of input 3"),
        ({"q": real(B, S, 98), "_k": NONE, "_v": NONE, "_pk": NONE, "_pv": NONE}, "packed Q, K and V"),
    ],
)
def test_operands_that_do_not_fit_are_named(feeds: dict[str, np.ndarray], told: str) -> None:
    rest = {"at": whole(2, B), "total": whole(9)}
    check_refusal(OP, feeds | rest, {"num_heads": HEADS, "kv_num_heads": HEADS}, told)


@pytest.mark.parametrize(("held", "operands"), [(0, 3), (4, 4)])
def test_only_behind_a_past_a_window_is_a_mask(held: int, operands: int) -> None:
    """Of a prompt attention itself knows what is seen, and leaves out the rest."""
    feeds = feeds_of(5, held, [4 + held, 4 + held])
    model = model_of(OP, feeds, OUTPUTS, **GROUPS, local_window_size=3)
    plan = str(aicf.compile(model, inputs={"total": feeds["total"]}).plan)
    (step,) = (line for line in plan.splitlines() if " attention_f32 " in line)
    assert step.split(" -> ")[0].count("[") == operands


def test_a_prompt_that_is_padded_behind() -> None:
    """Rows beyond a sequence's length mean nothing; the others are as if it stood alone."""
    feeds = feeds_of(5, 0, [4, 2])
    y, present_k, _ = run(model_of(OP, feeds, OUTPUTS, **GROUPS), feeds)
    alone = {
        name: array[1:2, :3] if name in "qkv" else array[1:2]
        for name, array in feeds.items()
        if name != "total"
    }
    alone["total"] = np.array(3, np.int32)
    expected = run(model_of(OP, alone, OUTPUTS, **GROUPS), alone)
    np.testing.assert_allclose(y[1:, :3], expected[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(present_k[1:, :, :3], expected[1])


def test_a_cache_of_any_length_grows_by_the_new_rows() -> None:
    """The sizes of the past and of the whole are symbolic, the whole that of a mask."""
    nodes = [
        helper.make_node("Shape", ["mask"], ["shape"], start=1, end=2),
        helper.make_node("Squeeze", ["shape"], ["one"]),
        helper.make_node("Cast", ["one"], ["total"], to=TensorProto.INT32),
        helper.make_node("ReduceSum", ["mask", "axes"], ["sum"], keepdims=0),
        helper.make_node("Sub", ["sum", "unit"], ["less"]),
        helper.make_node("Cast", ["less"], ["lengths"], to=TensorProto.INT32),
        node_of(
            OP,
            dict.fromkeys(["q", "k", "v", "past_k", "past_v", "lengths", "total", "cos", "sin"], NONE),
            OUTPUTS,
            **GROUPS,
            do_rotary=1,
        ),
    ]
    shapes: dict[str, list[Any]] = {
        "q": ["b", "s", HEADS * SIZE],
        "k": ["b", "s", KV_HEADS * SIZE],
        "v": ["b", "s", KV_HEADS * SIZE],
        "past_k": ["b", KV_HEADS, "p", SIZE],
        "past_v": ["b", KV_HEADS, "p", SIZE],
    }
    inputs: dict[str, Any] = {name: (np.float32, shape) for name, shape in shapes.items()}
    inputs["mask"] = (np.int64, ["b", "p + s"])
    constants = {
        "cos": real(32, 8),
        "sin": real(32, 8),
        "axes": np.array([1]),
        "unit": np.array(1),
    }
    model = onnx_nodes.model_of(nodes, inputs, OUTPUTS, constants, opset=17)
    exe = aicf.compile(model, dims={"b": "1..3", "s": "1..8", "p": "0..16"})
    for b, s, p in ((1, 8, 0), (2, 1, 5), (1, 3, 16), (3, 1, 16)):
        sizes = {"b": b, "s": s, "p": p}
        feeds = {name: real(*(sizes.get(d, d) for d in shape)) for name, shape in shapes.items()}
        feeds["mask"] = np.ones((b, p + s), np.int64)
        for mine, theirs in zip(ours(exe, feeds), peer(model, feeds), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)
