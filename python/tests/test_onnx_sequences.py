"""Sequences and optionals of known length, which leave no trace in the graph, against onnxruntime."""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aicf
import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx_nodes import check_sizes, draw, model_of

ROWS: dict[str, Any] = {"x": (np.float32, ["n", 6]), "y": (np.float32, ["n", 6])}
NUMBERS = {"zero": np.array(0), "one": np.array(1), "last": np.array(-1), "two": np.array([2, 1, 3])}
NUMBERS |= {"less": np.array([2, 1]), "far": np.zeros((1, 1 << 16), np.float32)}


def node(op: str, inputs: Sequence[str], output: str, **attributes: Any) -> Any:
    return helper.make_node(op, inputs, [output], **attributes)


def check(nodes: list[Any], outputs: Sequence[str] = ("z",)) -> None:
    runs = [({"n": n}, {"x": draw(n, 6), "y": draw(n, 6, 1)[..., 0]}) for n in (1, 4, 7)]
    check_sizes(model_of(nodes, ROWS, outputs, NUMBERS), {"n": "1..7"}, runs)


STACKED = node("ConcatFromSequence", ["s"], "z", axis=1, new_axis=1)
JOINED = node("ConcatFromSequence", ["s"], "z", axis=-1)

FORMS = {
    "stack": [node("SequenceConstruct", ["x", "y", "x"], "s"), STACKED],
    "join": [node("SequenceConstruct", ["x", "y"], "s"), JOINED],
    "at": [node("SequenceConstruct", ["x", "y"], "s"), node("SequenceAt", ["s", "last"], "z")],
    "insert": [
        node("SequenceEmpty", [], "e"),
        node("SequenceInsert", ["e", "x"], "f"),
        node("SequenceInsert", ["f", "y", "zero"], "g"),
        node("SequenceInsert", ["g", "x", "one"], "s"),
        STACKED,
    ],
    "erase": [
        node("SequenceConstruct", ["x", "y", "x"], "e"),
        node("SequenceErase", ["e", "zero"], "f"),
        node("SequenceErase", ["f"], "s"),
        JOINED,
    ],
    "split by sizes": [
        node("SplitToSequence", ["x", "two"], "p", axis=1),
        node("SequenceAt", ["p", "last"], "q"),
        node("SequenceConstruct", ["q", "x"], "s"),
        JOINED,
    ],
    "split in one": [node("SplitToSequence", ["x"], "s", axis=1, keepdims=0), STACKED],
    "split evenly": [
        node("SplitToSequence", ["x", "one"], "p", axis=1),
        node("SequenceErase", ["p", "one"], "s"),
        JOINED,
    ],
    "identity": [node("SequenceConstruct", ["x", "y"], "e"), node("Identity", ["e"], "s"), JOINED],
}


@pytest.mark.parametrize("name", FORMS)
def test_forms(name: str) -> None:
    check(FORMS[name])


def test_a_length_is_a_number() -> None:
    nodes = [node("SequenceConstruct", ["x", "y", "y"], "s"), node("SequenceLength", ["s"], "z")]
    check(nodes, ["z:INT64"])


def test_a_loop_that_collects() -> None:
    """As torch scripts a list that grows in a loop: the sequence is carried, the body reads another."""
    body = helper.make_graph(
        [
            node("SequenceAt", ["parts", "i"], "part"),
            node("Mul", ["part", "part"], "squared"),
            node("SequenceInsert", ["list", "squared"], "longer"),
            node("Identity", ["go"], "go_on"),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_sequence_value_info("list", TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("go_on", TensorProto.BOOL, []),
            helper.make_tensor_sequence_value_info("longer", TensorProto.FLOAT, None),
        ],
    )
    nodes = [
        node("SplitToSequence", ["x", "two"], "parts", axis=1),
        node("SequenceLength", ["parts"], "count"),
        node("SequenceEmpty", [], "empty"),
        node("Loop", ["count", "", "empty"], "s", body=body),
        JOINED,
    ]
    check(nodes)


def test_an_optional_that_holds_a_tensor() -> None:
    nodes = [
        node("Optional", ["x"], "o"),
        node("OptionalHasElement", ["o"], "has"),
        node("OptionalGetElement", ["o"], "v"),
        node("Cast", ["has"], "number", to=TensorProto.FLOAT),
        node("Add", ["v", "number"], "z"),
    ]
    check(nodes)


@pytest.mark.parametrize(
    ("nodes", "text"),
    [
        ([node("SplitToSequence", ["x"], "s"), JOINED], "size_not_static"),
        ([node("SequenceConstruct", ["x", "y"], "s"), node("Relu", ["s"], "z")], "unsupported_op"),
        ([node("SequenceConstruct", ["x", "y"], "z")], "unsupported_op"),
        ([node("SequenceEmpty", [], "s"), JOINED], "bad_model_file"),
        ([node("Identity", ["x"], "s"), JOINED], "bad_model_file"),
        ([node("SequenceConstruct", ["x"], "s"), node("SequenceAt", ["s", "one"], "z")], "bad_model_file"),
        ([node("SplitToSequence", ["x", "less"], "s", axis=1), JOINED], "bad_model_file"),
        ([node("SplitToSequence", ["far"], "s", axis=1), JOINED], "unsupported_op"),
    ],
)
def test_what_is_refused(nodes: list[Any], text: str) -> None:
    with pytest.raises(aicf.UserError) as caught:
        aicf.compile(model_of(nodes, ROWS, ["z"], NUMBERS), dims={"n": "1..7"})
    assert caught.value.name == text, str(caught.value)


def test_a_split_into_too_many_parts_lists_none_of_them(cli: str, tmp_path: Path) -> None:
    """Within 4 GiB: the list of the parts' sizes alone would not fit."""
    nodes = [node("SplitToSequence", ["huge"], "s"), node("ConcatFromSequence", ["s"], "z", axis=0)]
    (tmp_path / "m.onnx").write_bytes(model_of(nodes, {"huge": (np.float32, [1 << 40])}, ["z"]))
    limit = 4 << 30
    done = subprocess.run(
        [cli, "compile", "m.onnx", "--stop-after", "import"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )
    assert done.returncode == 2 and "a sequence of more than 4096 tensors" in done.stderr
