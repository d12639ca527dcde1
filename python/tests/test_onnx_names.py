"""Names that a model gives twice, or that mean two things: refused by a code, or read by their scope."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import aicf
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_nodes import ours

W = np.arange(3, dtype=np.float32)
FLOAT = TensorProto.FLOAT
node = helper.make_node


def value(name: str, shape: Sequence[int] | None = (3,), kind: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def model(
    nodes: Sequence[Any],
    inputs: Sequence[Any] = (value("x"),),
    outputs: Sequence[Any] = (value("y", None),),
    constants: Sequence[tuple[str, np.ndarray]] = (),
    functions: Sequence[Any] = (),
    opsets: Sequence[tuple[str, int]] = (("", 19),),
) -> bytes:
    tensors = [numpy_helper.from_array(array, name) for name, array in constants]
    graph = helper.make_graph(nodes, "graph", inputs, outputs, tensors)
    imports = [helper.make_opsetid(*opset) for opset in opsets]
    made = helper.make_model(graph, opset_imports=imports, ir_version=10, functions=list(functions))
    return made.SerializeToString()


def twice(attribute: str, first: int, second: int, **others: Any) -> Any:
    made = node("Concat", ["x", "x"], ["y"], **{attribute: first}, **others)
    made.attribute.append(helper.make_attribute(attribute, second))
    return made


def function(op: str, inputs: Sequence[str] = ("a",)) -> Any:
    nodes = [node(op, [inputs[0]], ["b"])]
    return helper.make_function("d", "F", inputs, ["b"], nodes, [helper.make_opsetid("", 19)])


def loop(inputs: Sequence[str], outputs: Sequence[str]) -> Any:
    body = helper.make_graph(
        [node("Identity", ["go"], ["on"]), node("Add", ["v", "v"], ["w"])],
        "body",
        [value("i", [], TensorProto.INT64), value("go", [], TensorProto.BOOL), *map(value, inputs)],
        [value("on", None, TensorProto.BOOL), *(value(name, None) for name in outputs)],
    )
    return node("Loop", ["m", "", *["x"] * len(inputs)], [f"z{i}" for i in range(len(outputs))], body=body)


NEG = [node("Neg", ["x"], ["y"])]
ADD = [node("Add", ["x", "w"], ["y"])]
D = (("", 19), ("d", 1))
CALL = [node("F", ["x"], ["y"], domain="d")]
REFUSED: dict[str, bytes] = {
    "an input": model(NEG, [value("x"), value("x")]),
    "an input of two shapes": model(NEG, [value("x"), value("x", [2, 3])]),
    "an initialiser": model(ADD, constants=[("w", W), ("w", W + 1)]),
    "a default of another size": model(ADD, [value("x"), value("w", [4])], constants=[("w", W)]),
    "a default of another rank": model(ADD, [value("x"), value("w", [1, 3])], constants=[("w", W)]),
    "a default of another dtype": model(
        ADD, [value("x"), value("w", [3], TensorProto.DOUBLE)], constants=[("w", W)]
    ),
    "an output": model(NEG, outputs=[value("y", None), value("y", None)]),
    "a result": model([*NEG, node("Abs", ["x"], ["y"])]),
    "a result of one node": model([node("Split", ["x"], ["y", "y"], num_outputs=2)]),
    "a result and an input": model([node("Neg", ["x"], ["x"])], outputs=[value("x", None)]),
    "a result and an initialiser": model(
        [node("Neg", ["x"], ["w"])], outputs=[value("w", None)], constants=[("w", W)]
    ),
    "an input of a body": model(
        [loop(["v", "v"], ["w", "w"])], outputs=[value("z0", None)], constants=[("m", np.array(2))]
    ),
    "an attribute": model([twice("axis", 0, 0)]),
    "an attribute of two values": model([twice("axis", 0, 1)], [value("x", [2, 2])]),
    "an opset": model(NEG, opsets=[("", 19), ("", 7)]),
    "an opset under both of its names": model(NEG, opsets=[("", 19), ("ai.onnx", 7)]),
    "a function": model(CALL, functions=[function("Neg"), function("Abs")], opsets=D),
    "an input of a function": model(CALL, functions=[function("Neg", ["a", "a"])], opsets=D),
    "an input has no name": model(NEG, [value("x"), value("")]),
    "an output has no name": model(NEG, outputs=[value("y", None), value("", None)]),
}


@pytest.mark.parametrize("what", REFUSED)
def test_given_twice(what: str) -> None:
    with pytest.raises(aicf.UserError) as caught:
        aicf.compile(REFUSED[what])
    assert caught.value.name in ("bad_model_file", "bad_graph"), caught.value


def branch(
    op: str, reads: Sequence[str], gives: str, constants: Sequence[tuple[str, np.ndarray]] = ()
) -> Any:
    tensors = [numpy_helper.from_array(array, name) for name, array in constants]
    return helper.make_graph([node(op, reads, [gives])], op, [], [value(gives, None)], tensors)


def test_a_body_may_have_names_of_its_own() -> None:
    """What a graph around it calls the same stays what it is."""
    condition = value("c", [], TensorProto.BOOL)
    nodes = [
        node("Exp", ["x"], ["h"]),
        node(
            "If",
            ["c"],
            ["k"],
            then_branch=branch("Add", ["x", "w"], "h", [("w", W + 10)]),
            else_branch=branch("Sub", ["x", "w"], "h"),
        ),
        node("Sum", ["h", "k", "w"], ["y"]),
    ]
    exe = aicf.compile(model(nodes, [value("x"), condition], constants=[("w", W)]), threads=1)
    x = np.array([1, -2, 3], np.float32)
    for c, k in ((True, x + W + 10), (False, x - W)):
        np.testing.assert_allclose(ours(exe, {"x": x, "c": np.array(c)})[0], np.exp(x) + k + W, rtol=1e-5)


def test_an_initialiser_is_the_default_of_its_input() -> None:
    exe = aicf.compile(model(ADD, [value("x"), value("w", ["n"])], constants=[("w", W)]), threads=1)
    assert [info.name for info in exe.inputs] == ["x"]
    assert np.array_equal(ours(exe, {"x": W})[0], W + W)


def test_an_initialiser_without_a_name_is_nobodys() -> None:
    assert np.array_equal(ours(aicf.compile(model(NEG, constants=[("", W)])), {"x": W})[0], -W)
