"""What an ONNX model may not be, or not over these sizes: refused by name."""

from __future__ import annotations

from typing import Any

import aicf
import numpy as np
import pytest
from onnx import helper
from onnx_nodes import Arrays, check_sizes, draw, model_of

X = (np.float32, [2, 4, 6, 7])


def test_a_length_that_f32_rounds_unevenly_is_refused() -> None:
    """70 times the f32 nearest to 1.3 rounds to 91, 90 times it to less than 117: no fraction gives both."""
    node = helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="linear")
    constants = {"scales": np.array([1, 1, 1, 1.3], np.float32)}
    model = model_of([node], {"x": (np.float32, [1, 1, 2, "w"])}, ["y"], constants)
    with pytest.raises(aicf.UserError, match="rounds unevenly"):
        aicf.compile(model, dims={"w": "1..200"})
    check_sizes(model, {"w": "5..60"}, [({"w": w}, {"x": draw(1, 1, 2, w)}) for w in (5, 60)])


def test_a_reshape_must_fit_every_size() -> None:
    """What an exporter wrote as a number fits one length of the range only."""
    nodes = [
        helper.make_node("MaxPool", ["x"], ["half"], kernel_shape=[2], strides=[2]),
        helper.make_node("Shape", ["x"], ["whole"]),
        helper.make_node("Slice", ["whole", "zero", "one"], ["batch"]),
        helper.make_node("Concat", ["batch", "rest"], ["shape"], axis=0),
        helper.make_node("Reshape", ["half", "shape"], ["y"]),
    ]
    constants = {
        "zero": np.array([0], np.int64),
        "one": np.array([1], np.int64),
        "rest": np.array([4, 2], np.int64),
    }
    model = model_of(nodes, {"x": (np.float32, ["n", 1, "t"])}, ["y"], constants)
    with pytest.raises(aicf.UserError) as caught:
        aicf.compile(model, dims={"n": "1..4", "t": "4..200"})
    error = caught.value
    assert error.name == "bad_shape" and "t=4" in error.value and "reshape" in error.op
    check_sizes(
        model, {"n": "1..4", "t": "16..17"}, [({"n": 3, "t": t}, {"x": draw(3, 1, t)}) for t in (16, 17)]
    )


def test_the_size_that_a_reshape_infers_must_be_whole() -> None:
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["y"])]
    model = model_of(nodes, {"x": (np.float32, ["n", 6])}, ["y"], {"shape": np.array([4, -1])})
    with pytest.raises(aicf.UserError, match="not a whole number") as caught:
        aicf.compile(model, dims={"n": "1..4"})
    error = caught.value
    assert (error.name, error.expected, error.actual) == ("bad_shape", "a multiple of 4", "6*n")
    check_sizes(model, {"n": 2}, [({"n": 2}, {"x": draw(2, 6)})])


@pytest.mark.parametrize("parts", ["p", 3])
def test_a_transform_knows_whether_its_input_is_complex(parts: str | int) -> None:
    model = model_of(
        [helper.make_node("DFT", ["x"], ["y"], axis=1)], {"x": (np.float32, [1, 5, parts])}, ["y"]
    )
    with pytest.raises(aicf.UserError) as caught:
        aicf.compile(model, dims={"p": "1..2"} if parts == "p" else None)
    assert caught.value.name == ("size_not_static" if parts == "p" else "bad_model_file")


@pytest.mark.parametrize("coordinates", ["c", 3])
def test_a_grid_has_a_coordinate_for_each_axis(coordinates: str | int) -> None:
    inputs: dict[str, Any] = {"x": (np.float32, [1, 2, 4, 4]), "grid": (np.float32, [1, 3, 3, coordinates])}
    model = model_of([helper.make_node("GridSample", ["x", "grid"], ["y"])], inputs, ["y"])
    with pytest.raises(aicf.UserError) as caught:
        aicf.compile(model, dims={"c": "1..4"} if coordinates == "c" else None)
    assert caught.value.name == "bad_model_file"


def test_nodes_in_a_circle_are_refused() -> None:
    nodes = [helper.make_node("Add", ["x", "b"], ["a"]), helper.make_node("Relu", ["a"], ["b"])]
    with pytest.raises(aicf.Error, match="nothing defines before it"):
        aicf.compile(model_of(nodes, {"x": X}, ["b"]))


def test_a_name_that_is_no_text_is_refused_in_text() -> None:
    model = model_of([helper.make_node("Relu", ["x"], ["why"])], {"x": X}, ["why"])
    with pytest.raises(aicf.Error, match="not UTF-8"):
        aicf.compile(model.replace(b"why", b"\xffhy"))
    strange = model_of([helper.make_node("Conv", ["x", "x"], ["y"], auto_pad="why")], {"x": X}, ["y"])
    with pytest.raises(aicf.Error, match="xffhy"):
        aicf.compile(strange.replace(b"why", b"\xffhy"))


@pytest.mark.parametrize(
    ("op", "constants", "text"),
    [
        ("ConstantOfShape", {"k": np.array([-1])}, "sizes of at least 0"),
        ("Resize", {"k": np.zeros((0, 2), np.float32)}, "at least one element to resize"),
        ("Bernoulli", {"k": np.zeros(3, np.float32)}, "random values"),
        ("ReorderOutput", {"k": np.zeros(3, np.float32)}, "ORT_ENABLE_EXTENDED"),
    ],
)
def test_what_no_plan_can_hold_is_refused_by_name(op: str, constants: Arrays, text: str) -> None:
    inputs = ["k", "", "", "sizes"] if op == "Resize" else ["k"]
    domain = "com.microsoft.nchwc" if op == "ReorderOutput" else ""
    model = model_of(
        [helper.make_node(op, inputs, ["y"], domain=domain), helper.make_node("Add", ["x", "y"], ["z"])],
        {"x": (np.float32, [3])},
        ["z"],
        {**constants, "sizes": np.array([2, 2])},
    )
    with pytest.raises(aicf.UserError, match=text):
        aicf.compile(model)


@pytest.mark.parametrize(
    ("op", "count", "most"),
    [("Relu", 2, 1), ("Add", 3, 2), ("Conv", 4, 3), ("Reshape", 3, 2), ("Dropout", 4, 3)],
)
def test_inputs_that_an_op_does_not_have(op: str, count: int, most: int) -> None:
    constants = {"k": np.array([4], np.int64)} if op == "Reshape" else {}
    names = ["x", *(["k"] if op == "Reshape" else []), *["x"] * count][:count]
    sizes = [1, 1, 1, 1] if op == "Conv" else [4]
    if op == "Conv":
        constants, names = {"b": draw(1)}, ["x", "x", "b", "x"]
    if op == "Dropout":
        constants = {"r": np.array(0.5, np.float32), "t": np.array(False)}
        names = ["x", "r", "t", "x"]
    model = model_of([helper.make_node(op, names, ["y"])], {"x": (np.float32, sizes)}, ["y"], constants)
    with pytest.raises(aicf.UserError) as caught:
        aicf.compile(model)
    error = caught.value
    assert (error.name, error.op) == ("bad_model_file", op)
    assert (error.expected, error.actual) == (f"at most {most} inputs", str(count))


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (helper.make_node("RNN", ["x", "w", "r"], ["y"], hidden_size=4, direction="bidirectional",
                          activations=["Tanh"]), "2 names"),
        (helper.make_node("DeformConv", ["i", "k", "o"], ["y"], pads=[0, -1, 0, 0]), "0 to 2"),
        (helper.make_node("ConvTranspose", ["i", "k"], ["y"], output_padding=[1]), "2"),
        (helper.make_node("LeakyRelu", ["x"], ["y"], alpha=1), "a number"),
    ],
    ids=lambda value: value.op_type if hasattr(value, "op_type") else "",
)  # fmt: skip
def test_attributes_of_another_form(node: Any, expected: str) -> None:
    constants = {"w": draw(2, 4, 3), "r": draw(2, 4, 4), "k": draw(4, 4, 1, 1), "o": draw(2, 2, 6, 7)}
    constants = {name: value for name, value in constants.items() if name in node.input}
    inputs = {"x": (np.float32, [5, 2, 3]), "i": X}
    inputs = {name: kind for name, kind in inputs.items() if name in node.input}
    with pytest.raises(aicf.UserError) as caught:
        aicf.compile(model_of([node], inputs, ["y"], constants))
    assert caught.value.op == node.op_type
    assert expected in str(caught.value.expected), str(caught.value)
