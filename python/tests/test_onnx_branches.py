"""What a constant condition rules out, or no output needs, may hold anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import aicf
import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx_nodes import draw, model_of, ours

X = (np.float32, [2, 4])
node = helper.make_node


def branch(name: str, nodes: Sequence[Any], output: str) -> Any:
    info = helper.make_tensor_value_info(output, TensorProto.FLOAT, None)
    return helper.make_graph(nodes, name, [], [info])


TAKEN = branch("taken", [node("Neg", ["x"], ["t"])], "t")
# Each cannot be converted; what they read stands in front of the If.
BAD: dict[str, list[Any]] = {
    "an op that does not exist": [node("Unheard", ["x"], ["b"])],
    "an op on text": [node("Cast", ["text"], ["b"], to=TensorProto.FLOAT)],
    "an LSTM of a length of 0": [node("LSTM", ["none", "w", "r"], ["b"], hidden_size=2)],
    "an LSTM whose weights do not fit": [node("LSTM", ["x", "w", "r"], ["b"], hidden_size=2)],
    "a squeeze of an axis that is not 1": [node("Squeeze", ["x", "zero"], ["b"])],
    "a size that depends on data": [node("NonZero", ["x"], ["n"]), node("Cast", ["n"], ["b"], to=1)],
    "a reshape that does not fit": [node("Reshape", ["x", "seven"], ["b"])],
    "an attribute of another type": [node("Softmax", ["x"], ["b"], axis=1.5)],
}
CONSTANTS: dict[str, Any] = {
    "yes": np.array(True),
    "no": np.array(False),
    "zero": np.array([0]),
    "seven": np.array([7]),
    "w": draw(1, 8, 3),
    "r": draw(1, 8, 2),
    "none": np.zeros((0, 1, 3), np.float32),
    "text": helper.make_tensor("text", TensorProto.STRING, [1], [b"1"]),
}


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("taken", ["then", "else"])
@pytest.mark.parametrize("what", BAD)
def test_a_branch_that_cannot_be_taken(what: str, taken: str, inside: bool) -> None:
    other = branch("other", BAD[what] if inside else [node("Identity", ["b"], ["o"])], "b" if inside else "o")
    branches = {"then_branch": TAKEN, "else_branch": other}
    if taken == "else":
        branches = {"then_branch": other, "else_branch": TAKEN}
    nodes = [] if inside else list(BAD[what])
    nodes.append(node("If", ["yes" if taken == "then" else "no"], ["y"], **branches))
    x = draw(2, 4)
    assert np.array_equal(ours(aicf.compile(model_of(nodes, {"x": X}, ["y"], CONSTANTS)), {"x": x})[0], -x)


@pytest.mark.parametrize("what", BAD)
def test_a_branch_that_may_be_taken_is_checked(what: str) -> None:
    nodes = [node("If", ["c"], ["y"], then_branch=TAKEN, else_branch=branch("other", BAD[what], "b"))]
    with pytest.raises(aicf.UserError) as caught:
        aicf.compile(model_of(nodes, {"x": X, "c": (np.bool_, [])}, ["y"], CONSTANTS))
    assert "if" not in caught.value.op.lower() or caught.value.name == "unsupported_op"


def test_a_size_decides_which_branch_is_taken() -> None:
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["n"]),
        node("Equal", ["n", "seven"], ["is_seven"]),
        node(
            "If",
            ["is_seven"],
            ["y"],
            then_branch=branch("o", BAD["an op that does not exist"], "b"),
            else_branch=TAKEN,
        ),
    ]
    model = model_of(nodes, {"x": (np.float32, ["n", 4])}, ["y"], CONSTANTS)
    x = draw(2, 4)
    assert np.array_equal(ours(aicf.compile(model, dims={"n": "1..6"}), {"x": x})[0], -x)
    with pytest.raises(aicf.UserError, match="Unheard"):
        aicf.compile(model, dims={"n": "1..8"})


def test_what_no_output_needs() -> None:
    for nodes in BAD.values():
        model = model_of([node("Neg", ["x"], ["y"]), *nodes], {"x": X}, ["y"], CONSTANTS)
        assert np.array_equal(ours(aicf.compile(model), {"x": draw(2, 4)})[0], -draw(2, 4))


def test_every_reason_is_listed_at_once() -> None:
    nodes = [
        node("Unheard", ["x"], ["a"]),
        node("Unknown", ["a"], ["b"]),
        node("Unasked", ["x"], ["c"]),
        node("NonZero", ["x"], ["d"]),
        node("Cast", ["d"], ["e"], to=1),
    ]
    with pytest.raises(aicf.UserError) as caught:
        aicf.compile(model_of(nodes, {"x": X}, ["b", "e"], CONSTANTS))
    assert caught.value.value == "NonZero, Unheard, Unknown"


def test_a_branch_that_reads_what_is_known_outside() -> None:
    """[2, 2] sums of constants are nodes whose contents are known; only one branch reads them."""
    one = branch("one", [node("Add", ["k", "k"], ["s"]), node("Cast", ["s"], ["t"], to=1)], "t")
    other = branch("other", [node("Neg", ["z"], ["o"])], "o")
    nodes = [node("Add", ["a", "a"], ["k"]), node("If", ["c"], ["y"], then_branch=one, else_branch=other)]
    inputs = {"z": (np.float32, [2, 2]), "c": (np.bool_, [])}
    a = np.arange(4).reshape(2, 2)
    exe = aicf.compile(model_of(nodes, inputs, ["y"], {"a": a}))
    for c, wanted in ((True, 4.0 * a), (False, -draw(2, 2))):
        assert np.array_equal(ours(exe, {"z": draw(2, 2), "c": np.array(c)})[0], wanted)
