"""ONNX nodes in forms that exporters and other tools write, against onnxruntime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import aicf
import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx_nodes import Arrays, check_sizes, draw, model_of, ours, peer, specs

X = (np.float32, [2, 4, 6, 7])
FORMS: dict[str, tuple[bytes, Arrays]] = {
    "windows of LpPool do not begin in the padding behind": (
        model_of(
            [helper.make_node("LpPool", ["x"], ["y"], kernel_shape=[2, 3], strides=[3, 3], ceil_mode=1)],
            {"x": X},
            ["y"],
        ),
        {"x": draw(2, 4, 6, 7)},
    ),
    "the only window of LpPool hangs over": (
        model_of(
            [
                helper.make_node(
                    "LpPool", ["x"], ["y"], kernel_shape=[2, 3], dilations=[1, 2], strides=[3, 2], ceil_mode=1
                )
            ],
            {"x": (np.float32, [2, 4, 6, 4])},
            ["y"],
            opset=18,
        ),
        {"x": draw(2, 4, 6, 4)},
    ),
    "nodes in front of those they read from": (
        model_of(
            [
                helper.make_node("Relu", ["b"], ["y"]),
                helper.make_node("Add", ["a", "x"], ["b"]),
                helper.make_node("Exp", ["x"], ["a"]),
            ],
            {"x": X},
            ["y"],
        ),
        {"x": draw(2, 4, 6, 7)},
    ),
    "NonZero of what is known": (
        model_of(
            [
                helper.make_node("NonZero", ["k"], ["i"]),
                helper.make_node("Transpose", ["i"], ["rows"]),
                helper.make_node("GatherND", ["x", "rows"], ["y"]),
            ],
            {"x": (np.float32, [3, 4])},
            ["y", "i:INT64"],
            {"k": np.arange(12, dtype=np.int64).reshape(3, 4) % 3},
        ),
        {"x": draw(3, 4)},
    ),
    "an equation without an arrow that begins with an ellipsis": (
        model_of([helper.make_node("Einsum", ["x"], ["y"], equation="...ji")], {"x": X}, ["y"]),
        {"x": draw(2, 4, 6, 7)},
    ),
    "activations with numbers": (
        model_of(
            [
                helper.make_node(
                    "LSTM",
                    ["x", "w", "r"],
                    ["y"],
                    hidden_size=2,
                    direction="bidirectional",
                    activations=["HardSigmoid", "Elu", "ScaledTanh", "Sigmoid", "LeakyRelu", "Affine"],
                    activation_alpha=[0.3, 0.7, 1.1, 0.2, 0.9],
                    activation_beta=[0.4, 0.6, 0.1],
                )
            ],
            {"x": (np.float32, [3, 2, 3])},
            ["y"],
            {"w": draw(2, 8, 3), "r": draw(2, 8, 2)},
            opset=14,
        ),
        {"x": draw(3, 2, 3)},
    ),
    "nearest as TensorFlow has it": (
        model_of(
            [
                helper.make_node(
                    "Resize",
                    ["x", "roi", "s"],
                    ["y"],
                    mode="nearest",
                    coordinate_transformation_mode="tf_half_pixel_for_nn",
                    nearest_mode="floor",
                )
            ],
            {"x": (np.float32, [1, 2, 5, 6])},
            ["y"],
            {"s": np.array([1, 1, 1.4, 0.5], np.float32), "roi": np.zeros(0, np.float32)},
            opset=11,
        ),
        {"x": draw(1, 2, 5, 6)},
    ),
    "the range before opset 11": (
        model_of(
            [
                helper.make_node("Range", ["from", "to", "step"], ["r"], domain="com.microsoft"),
                helper.make_node("Add", ["x", "r"], ["y"]),
            ],
            {"x": (np.float32, [4])},
            ["y"],
            {
                "from": np.array(1, np.float32),
                "to": np.array(9, np.float32),
                "step": np.array(2, np.float32),
            },
            opset=9,
        ),
        {"x": draw(4)},
    ),
    "nearest where positions are ties in f32": (
        model_of(
            [helper.make_node("Resize", ["x", "", "s"], ["y"], mode="nearest")],
            {"x": (np.float32, [6])},
            ["y"],
            {"s": np.array([0.7], np.float32)},
        ),
        {"x": draw(6)},
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_forms(name: str) -> None:
    model, feeds = FORMS[name]
    for mine, theirs in zip(ours(aicf.compile(model, threads=1), feeds), peer(model, feeds), strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


def test_a_loop_without_a_count_whose_value_grows() -> None:
    """Its condition is known at each step, so it is run while the model is read."""
    body = helper.make_graph(
        [
            helper.make_node("Less", ["i", "two"], ["go_on"]),
            helper.make_node("Concat", ["a", "a"], ["b"], axis=0),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("a", TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("go_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("b", TensorProto.FLOAT, None),
        ],
    )
    node = helper.make_node("Loop", ["", "yes", "x"], ["y"], body=body)
    constants = {"two": np.array(2), "yes": np.array(True)}
    model = model_of([node], {"x": (np.float32, ["n", 3])}, ["y"], constants)
    check_sizes(model, {"n": "1..4"}, [({"n": n}, {"x": draw(n, 3)}) for n in (1, 4)])


def doubling(go_on: str, carried: Sequence[int | str] | None = None) -> Any:
    """A body that makes a + a of a, and says whether to go on by this node's op of its number and `two`."""
    return helper.make_graph(
        [helper.make_node(go_on, ["i", "two"], ["go_on"]), helper.make_node("Add", ["a", "a"], ["b"])],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("a", TensorProto.FLOAT, carried),
        ],
        [
            helper.make_tensor_value_info("go_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("b", TensorProto.FLOAT, carried),
        ],
    )


def test_a_count_that_is_a_size_and_a_condition_that_ends_the_loop() -> None:
    """Whichever comes first."""
    nodes = [
        helper.make_node("Shape", ["x"], ["n"], end=1),
        helper.make_node("Squeeze", ["n"], ["rows"]),
        helper.make_node("Loop", ["rows", "yes", "x"], ["y"], body=doubling("Less")),
    ]
    constants = {"two": np.array(2), "yes": np.array(True)}
    model = model_of(nodes, {"x": (np.float32, ["n", 3])}, ["y"], constants)
    check_sizes(model, {"n": "1..7"}, [({"n": n}, {"x": draw(n, 3)}) for n in (1, 2, 3, 7)])


def test_a_long_loop_does_not_decide_a_shape() -> None:
    """Models are read without running loops of any length, even where all that they read is known."""
    nodes = [
        helper.make_node("Loop", ["many", "yes", "one"], ["size"], body=doubling("GreaterOrEqual", [1])),
        helper.make_node("Cast", ["size"], ["whole"], to=TensorProto.INT64),
        helper.make_node("Reshape", ["x", "whole"], ["y"]),
    ]
    constants = {"two": np.array(0), "yes": np.array(True), "one": np.zeros(1, np.float32) - 0.5}
    constants["many"] = np.array(100_000)
    with pytest.raises(aicf.UserError) as caught:
        aicf.compile(model_of(nodes, {"x": (np.float32, [2, 3])}, ["y"], constants))
    assert caught.value.op == "Reshape", str(caught.value)


@pytest.mark.parametrize("directions", [[0, 0], [1, 0], [0, 1]])
def test_a_scan_of_a_known_length(directions: list[int]) -> None:
    """Of two inputs along different axes, one of which may be walked from its end."""
    names = ["sum", "a", "b"]
    body = helper.make_graph(
        [
            helper.make_node("Mul", ["a", "b"], ["product"]),
            helper.make_node("Add", ["sum", "product"], ["next"]),
            helper.make_node("Sub", ["next", "a"], ["row"]),
        ],
        "body",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in names],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("next", "row")],
    )
    node = helper.make_node(
        "Scan",
        ["s", "x", "z"],
        ["y", "rows"],
        body=body,
        num_scan_inputs=2,
        scan_input_axes=[0, 1],
        scan_input_directions=directions,
    )
    feeds = {"s": draw(2), "x": draw(3, 2), "z": draw(2, 3)}
    model = model_of([node], specs(feeds), ["y", "rows"])
    for mine, theirs in zip(ours(aicf.compile(model, threads=1), feeds), peer(model, feeds), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


def test_more_activations_than_directions() -> None:
    """onnxruntime's optimizer writes the default of the schema, which has two."""
    node = helper.make_node("RNN", ["x", "w", "r"], ["y"], hidden_size=4, activations=["Tanh", "Tanh"])
    constants = {"w": draw(1, 4, 3), "r": draw(1, 4, 4)}
    model = model_of([node], {"x": (np.float32, ["s", 2, 3])}, ["y"], constants)
    check_sizes(model, {"s": "1..5"}, [({"s": 5}, {"x": draw(5, 2, 3)})])


def test_a_clip_bounds_the_gates_and_not_the_cell() -> None:
    constants = {"w": draw(1, 16, 3), "r": draw(1, 16, 4), "p": draw(1, 12)}
    node = helper.make_node("LSTM", ["x", "w", "r", "", "", "", "", "p"], ["y"], hidden_size=4, clip=0.9)
    model = model_of([node], {"x": (np.float32, ["s", 3, 3])}, ["y"], constants)
    check_sizes(model, {"s": "1..12"}, [({"s": s}, {"x": 9 * draw(s, 3, 3)}) for s in (1, 12)])


def test_the_mask_of_an_old_dropout_has_the_type_of_its_input() -> None:
    model = model_of([helper.make_node("Dropout", ["x"], ["y", "mask"])], {"x": X}, ["y", "mask"], opset=7)
    x = draw(2, 4, 6, 7)
    y, mask = ours(aicf.compile(model, threads=1), {"x": x})
    assert mask.dtype == np.float32 and np.array_equal(y, x)


def test_lengths_that_an_exporter_writes_in_its_own_form() -> None:
    """Two strided convolutions, and a reshape to what torch's exporter makes of their lengths."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["p"], strides=[5]),
        helper.make_node("Conv", ["p", "v"], ["q"], strides=[4]),
        helper.make_node("Shape", ["x"], ["length"], start=2),
        helper.make_node("Div", ["length", "twenty"], ["twentieths"]),
        helper.make_node("Sub", ["twentieths", "one"], ["count"]),
        helper.make_node("Concat", ["one", "two", "count", "one"], ["shape"], axis=0),
        helper.make_node("Reshape", ["q", "shape"], ["y"]),
    ]
    constants = {"w": draw(2, 1, 10), "v": draw(2, 2, 7), "twenty": np.array([20]), "one": np.array([1])}
    constants |= {"two": np.array([2])}
    model = model_of(nodes, {"x": (np.float32, [1, 1, "w"])}, ["y"], constants)
    check_sizes(model, {"w": "40..200"}, [({"w": w}, {"x": draw(1, 1, w)}) for w in (40, 59, 60, 133, 200)])


def test_gathers_of_a_shape_written_as_a_split() -> None:
    """As onnxruntime's optimizer writes them, before an Expand of keys."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Split", ["shape"], ["b", "t", "d"], axis=0),
        helper.make_node("Concat", ["b", "two", "t", "d"], ["wide"], axis=0),
        helper.make_node("Equal", ["wide", "less"], ["unset"]),
        helper.make_node("Where", ["unset", "ones", "wide"], ["target"]),
        helper.make_node("Unsqueeze", ["x", "one"], ["thin"]),
        helper.make_node("Expand", ["thin", "target"], ["y"]),
    ]
    constants = {
        "two": np.array([2]),
        "less": np.array([-1]),
        "ones": np.ones(4, np.int64),
        "one": np.array([1]),
    }
    model = model_of(nodes, {"x": (np.float32, ["b", "t", 3])}, ["y"], constants, opset=13)
    check_sizes(model, {"b": "1..3", "t": "1..9"}, [({"b": 2, "t": 9}, {"x": draw(2, 9, 3)})])


def test_a_row_of_indices_with_a_step_of_any_size() -> None:
    """The first index of each bag, as torch's exporter writes EmbeddingBag: 0, t, 2t, … of n * t."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("ReduceProd", ["s"], ["all"], keepdims=0),
        helper.make_node("Gather", ["s", "one"], ["t"]),
        helper.make_node("Range", ["zero", "all", "t"], ["first"]),
        helper.make_node("Range", ["all", "zero", "back"], ["last"]),
        helper.make_node("Cast", ["first"], ["y"], to=1),
        helper.make_node("Cast", ["last"], ["z"], to=1),
    ]
    constants = {"zero": np.array(0), "one": np.array(1), "back": np.array(-3)}
    model = model_of(nodes, {"x": (np.float32, ["n", "t"])}, ["y", "z"], constants)
    cases = [({"n": n, "t": t}, {"x": draw(n, t)}) for n, t in ((1, 1), (4, 3), (2, 7))]
    check_sizes(model, {"n": "1..4", "t": "1..7"}, cases)
    constants["back"] = np.array(0)
    with pytest.raises(aicf.Error, match="never 0"):
        aicf.compile(model_of(nodes, {"x": (np.float32, [2, 3])}, ["y", "z"], constants))


def test_a_roll_by_a_size_less_one() -> None:
    """torch.roll(x, 1) cuts at -1 modulo the size."""
    nodes = [
        helper.make_node("Shape", ["x"], ["t"], start=1, end=2),
        helper.make_node("Mod", ["minus", "t"], ["cut"]),
        helper.make_node("Slice", ["x", "zero", "cut", "one"], ["head"]),
        helper.make_node("Slice", ["x", "cut", "t", "one"], ["tail"]),
        helper.make_node("Concat", ["tail", "head"], ["y"], axis=1),
    ]
    constants = {"minus": np.array([-1]), "zero": np.array([0]), "one": np.array([1])}
    model = model_of(nodes, {"x": (np.float32, [2, "t", 3])}, ["y"], constants)
    check_sizes(model, {"t": "1..9"}, [({"t": t}, {"x": draw(2, t, 3)}) for t in (1, 2, 9)])


def loop_over_rows(trips: str) -> bytes:
    """y[i] = x[i] * 2, with the number of the step declared as [1], as tf2onnx does."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["go_on"]),
            helper.make_node("Gather", ["x", "i"], ["row"], axis=0),
            helper.make_node("Squeeze", ["row"], ["flat"], axes=[0]),
            helper.make_node("Add", ["flat", "flat"], ["twice"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, [1]),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
        ],
        [
            helper.make_tensor_value_info("go_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("twice", TensorProto.FLOAT, None),
        ],
    )
    nodes = [
        helper.make_node("Shape", ["x"], ["sizes"]),
        helper.make_node("Gather", ["sizes", "first"], ["rows"], axis=0),
        helper.make_node("Loop", [trips, "yes"], ["y"], body=body),
    ]
    constants = {"first": np.array(0), "three": np.array(3), "yes": np.array(True)}
    return model_of(nodes, {"x": (np.float32, ["n", 4])}, ["y"], constants, opset=12)


def test_steps_that_are_numbered_by_one_element() -> None:
    check_sizes(loop_over_rows("rows"), {"n": "1..7"}, [({"n": n}, {"x": draw(n, 4)}) for n in (1, 3, 7)])
    check_sizes(loop_over_rows("three"), {"n": "3..5"}, [({"n": n}, {"x": draw(n, 4)}) for n in (3, 5)])


def test_a_size_divided_by_a_sum() -> None:
    """Text recognition: rows of pooled columns, regrouped through -1."""
    nodes = [
        helper.make_node("MaxPool", ["x"], ["half"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Transpose", ["half"], ["columns"], perm=[3, 0, 1, 2]),
        helper.make_node("Shape", ["columns"], ["sizes"]),
        helper.make_node("Slice", ["sizes", "zero", "two"], ["first"]),
        helper.make_node("Concat", ["first", "rest"], ["shape"], axis=0),
        helper.make_node("Reshape", ["columns", "shape"], ["y"]),
    ]
    constants = {
        "zero": np.array([0], np.int64),
        "two": np.array([2], np.int64),
        "rest": np.array([-1], np.int64),
    }
    model = model_of(nodes, {"x": (np.float32, ["n", 3, 8, "w"])}, ["y"], constants)
    cases = [({"n": n, "w": w}, {"x": draw(n, 3, 8, w)}) for n, w in ((1, 2), (2, 31), (4, 64))]
    check_sizes(model, {"n": "1..4", "w": "2..64"}, cases)


@pytest.mark.parametrize("scale", [0.6, 0.5, 1.5])
def test_nearest_of_opset_10_rounds_up_where_it_shrinks(scale: float) -> None:
    constants = {"scales": np.array([1, 1, scale, 2], np.float32)}
    node = helper.make_node("Resize", ["x", "scales"], ["y"], mode="nearest")
    model = model_of([node], {"x": (np.float32, [1, 1, "h", 3])}, ["y"], constants, opset=10)
    check_sizes(model, {"h": "2..9"}, [({"h": h}, {"x": draw(1, 1, h, 3)}) for h in (2, 4, 5, 9)])


@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        ("HardSigmoid", {"alpha": 0.2, "beta": 0.5}),
        ("LeakyRelu", {"alpha": 0.01}),
        ("Selu", {"alpha": 1.6732632, "gamma": 1.0507010}),
        ("BatchNormalization", {"epsilon": 1e-5}),
        ("InstanceNormalization", {"epsilon": 1e-5}),
    ],
)
def test_a_default_is_what_the_attribute_would_be(op: str, attributes: dict[str, float]) -> None:
    """An f32, in f64 too."""
    names = ["x", *"sbmv"[: {"BatchNormalization": 4, "InstanceNormalization": 2}.get(op, 0)]]
    constants = {name: np.abs(draw(2)).astype(np.float64) for name in names[1:]}
    x = draw(3, 2, 5).astype(np.float64) * 1e-2
    results = [
        ours(
            aicf.compile(
                model_of(
                    [helper.make_node(op, names, ["y"], **given)],
                    {"x": (np.float64, [3, 2, 5])},
                    {"y": TensorProto.DOUBLE},
                    constants,
                )
            ),
            {"x": x},
        )[0]
        for given in ({}, attributes)
    ]
    assert np.array_equal(*results)


def test_the_sixth_of_hard_swish_is_that_of_its_function() -> None:
    node = helper.make_node("HardSwish", ["x"], ["y"])
    model = model_of([node], {"x": (np.float64, [50])}, {"y": TensorProto.DOUBLE}, opset=18)
    x = draw(50).astype(np.float64) * 3
    np.testing.assert_allclose(ours(aicf.compile(model), {"x": x})[0], peer(model, {"x": x})[0], rtol=1e-14)


@pytest.mark.parametrize("op", ["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"])
def test_the_epsilon_that_onnxruntime_takes_where_none_is_given(op: str) -> None:
    node = helper.make_node(op, ["x", "x", "g"], ["y"], domain="com.microsoft")
    model = model_of([node], {"x": (np.float32, [2, 3, 4])}, ["y"], {"g": draw(4)})
    feeds = {"x": draw(2, 3, 4) * np.float32(1e-3)}
    np.testing.assert_allclose(ours(aicf.compile(model), feeds)[0], peer(model, feeds)[0], rtol=1e-4)


@pytest.mark.parametrize(
    ("op", "sizes"), [("ReduceL2", [4, 30]), ("GlobalLpPool", [2, 3, 8]), ("LpPool", [1, 2, 9])]
)
def test_norms_of_halves_do_not_overflow_on_the_way(op: str, sizes: list[int]) -> None:
    """Squares of 300 are above the largest f16, their root is not."""
    given = {"kernel_shape": [3]} if op == "LpPool" else {}
    model = model_of([helper.make_node(op, ["x"], ["y"], **given)], {"x": (np.float16, sizes)}, ["y:FLOAT16"])
    x = (draw(*sizes) * 200 + 300).astype(np.float16)
    axes = tuple(range(len(sizes))) if op == "ReduceL2" else (2,)
    wide = x.astype(np.float64)
    if op == "LpPool":
        wanted = np.sqrt((np.lib.stride_tricks.sliding_window_view(wide, 3, 2) ** 2).sum(-1))
    else:
        wanted = np.sqrt((wide**2).sum(axes, keepdims=True))
    np.testing.assert_allclose(ours(aicf.compile(model), {"x": x})[0], wanted, rtol=2e-3)
