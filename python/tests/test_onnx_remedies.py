"""Every remedy of the importer, followed as it is written: then the model compiles."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aicf
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_nodes import draw, model_of

node = helper.make_node
ZERO = {"zero": np.array([0]), "one": np.array([1]), "two": np.array([2])}


@dataclass
class Refused:
    """`model` with `options` is refused by the error `name`. `arrays`: values of the inputs it names."""

    name: str
    model: bytes
    options: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)


def crop(size: str | None) -> bytes:
    """Its axis must have one value."""
    nodes = [node("CenterCropPad", ["x", "two"], ["y"], axes=[0])]
    return model_of(nodes, {"x": (np.float32, [size, 4])}, ["y"], ZERO)  # type: ignore[list-item]


CACHE = [node("Add", ["x", "past"], ["present"]), node("Neg", ["present"], ["y"])]
BY_ARGUMENTS: dict[str, Refused] = {
    "sizes are not set": Refused(
        "unset_size",
        model_of([node("Neg", ["x"], ["y"])], {"x": (np.float32, ["batch", "rows/2", None])}, ["y"]),  # type: ignore[list-item]
    ),
    "one size is not set": Refused(
        "unset_size",
        model_of([node("Neg", ["x"], ["y"])], {"x": (np.float32, ["batch", "time"])}, ["y"]),
        {"dims": {"time": "1..8"}},
    ),
    "a size must have one value": Refused("size_not_static", crop("n"), {"dims": {"n": "3..8"}}),
    "a size without a name must have one value": Refused(
        "size_not_static", crop(None), {"dims": {"x:0": "3..8"}}
    ),
    "a size whose name is no word must have one value": Refused(
        "size_not_static", crop("rows/2"), {"dims": {"rows/2": "3..8"}}
    ),
    "a sum of sizes must have one value": Refused(
        "size_not_static",
        model_of(
            [node("Concat", ["x", "z"], ["c"], axis=0), node("CenterCropPad", ["c", "two"], ["y"], axes=[0])],
            {"x": (np.float32, ["a", 4]), "z": (np.float32, ["b", 4])},
            ["y"],
            ZERO,
        ),
        {"dims": {"a": "3..8", "b": "3..8"}},
    ),
    "a range of floats ends at a size": Refused(
        "size_not_static",
        model_of(
            [
                node("Shape", ["x"], ["s"]),
                node("Squeeze", ["s"], ["n"]),
                node("Cast", ["n"], ["f"], to=TensorProto.FLOAT),
                node("Range", ["start", "f", "step"], ["y"]),
            ],
            {"x": (np.float32, ["n"])},
            ["y"],
            {"start": np.array(0, np.float32), "step": np.array(0.5, np.float32)},
        ),
        {"dims": {"n": "1..8"}},
    ),
    "a range ends at an input": Refused(
        "size_not_static",
        model_of(
            [node("Range", ["start", "end", "step"], ["y"])],
            {"end": (np.int64, [])},
            {"y": TensorProto.INT64},
            {"start": np.array(0), "step": np.array(1)},
        ),
        arrays={"end": np.array(5)},
    ),
    "a range is computed from two inputs": Refused(
        "size_not_static",
        model_of(
            [
                node("ReduceMax", ["lengths"], ["longest"], keepdims=0),
                node("Mul", ["longest", "by"], ["end"]),
                node("Range", ["start", "end", "step"], ["r"]),
                node("Cast", ["r"], ["y"], to=TensorProto.FLOAT),
            ],
            {"lengths": (np.int64, [3]), "by": (np.int64, [])},
            ["y"],
            {"start": np.array(0), "step": np.array(1)},
        ),
        arrays={"lengths": np.array([1, 4, 2]), "by": np.array(2)},
    ),
    "a range of floats starts at an input": Refused(
        "size_not_static",
        model_of(
            [node("Range", ["from", "end", "step"], ["y"])],
            {"from": (np.float32, [])},
            ["y"],
            {"end": np.array(4, np.float32), "step": np.array(0.5, np.float32)},
        ),
        arrays={"from": np.array(1.5, np.float32)},
    ),
    "a shape is an input": Refused(
        "size_not_static",
        model_of(
            [node("Reshape", ["x", "shape"], ["y"])],
            {"x": (np.float32, [6]), "shape": (np.int64, [2])},
            ["y"],
        ),
        arrays={"shape": np.array([2, 3])},
    ),
    "a shape in a body comes from an input": Refused(
        "size_not_static",
        model_of(
            [
                node(
                    "If",
                    ["c"],
                    ["y"],
                    then_branch=helper.make_graph(
                        [node("Reshape", ["x", "shape"], ["t"])],
                        "then",
                        [],
                        [helper.make_tensor_value_info("t", TensorProto.FLOAT, None)],
                    ),
                    else_branch=helper.make_graph(
                        [node("Reshape", ["x", "shape"], ["r"]), node("Neg", ["r"], ["e"])],
                        "else",
                        [],
                        [helper.make_tensor_value_info("e", TensorProto.FLOAT, None)],
                    ),
                )
            ],
            {"x": (np.float32, [6]), "shape": (np.int64, [2]), "c": (np.bool_, [])},
            ["y"],
        ),
        arrays={"shape": np.array([2, 3])},
    ),
    "a state has a size that changes": Refused(
        "bad_shape",
        model_of(CACHE, {"x": (np.float32, ["NAME"]), "past": (np.float32, ["NAME"])}, ["y", "present"]),
        {"dims": {"NAME": "1..8"}, "options": {"states": {"past": "present"}}},
    ),
    "sizes that do not fit every size of a range": Refused(
        "bad_shape",
        model_of(
            [
                node("MaxPool", ["x"], ["half"], kernel_shape=[2], strides=[2]),
                node("Resize", ["half", "", "twice"], ["whole"]),
                node("Sub", ["whole", "x"], ["y"]),
            ],
            {"x": (np.float32, [1, 1, "NAME"])},
            ["y"],
            {"twice": np.array([1, 1, 2], np.float32)},
        ),
        {"dims": {"NAME": "16..32"}},
    ),
    "an inferred size is not whole": Refused(
        "bad_shape",
        model_of(
            [
                node("Shape", ["z"], ["s"]),
                node("Concat", ["minus", "s"], ["shape"], axis=0),
                node("Reshape", ["x", "shape"], ["y"]),
            ],
            {"x": (np.float32, ["A", 4]), "z": (np.float32, ["B"])},
            ["y"],
            {"minus": np.array([-1])},
        ),
        {"dims": {"A": "1..8", "B": "1..8"}},
    ),
}


def argument(remedy: str, name: str) -> list[dict[str, Any]]:
    """What the remedy gives a Python caller for this argument, each time it does."""
    return [json.loads(text.replace("array", '"array"')) for text in re.findall(name + r"=(\{.*?\})", remedy)]


@pytest.mark.parametrize("what", BY_ARGUMENTS)
def test_followed_in_python(what: str) -> None:
    case = BY_ARGUMENTS[what]
    with pytest.raises(aicf.UserError) as caught:
        aicf.compile(case.model, **case.options)
    assert caught.value.name == case.name, caught.value
    dims, values = (argument(caught.value.remedy, name) for name in ("dims", "inputs"))
    assert dims or values, caught.value.remedy
    for given in dims:
        aicf.compile(case.model, **{**case.options, "dims": {**case.options.get("dims", {}), **given}})
    for given in values:
        aicf.compile(case.model, {name: case.arrays[name] for name in given}, **case.options)


@pytest.mark.parametrize("what", BY_ARGUMENTS)
def test_followed_on_the_command_line(what: str, tmp_path: Path, cli: str) -> None:
    case = BY_ARGUMENTS[what]
    (tmp_path / "m.onnx").write_bytes(case.model)
    for name, array in case.arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
    own = {name: f"--dim {name}={value}" for name, value in case.options.get("dims", {}).items()}
    states = [f"--state {p}={q}" for p, q in case.options.get("options", {}).get("states", {}).items()]

    def compiled(words: Sequence[str]) -> tuple[int, dict[str, Any]]:
        command = [cli, "compile", "m.onnx", "--json", *" ".join([*words, *states]).split()]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        return done.returncode, json.loads(done.stdout)

    code, answer = compiled(list(own.values()))
    assert code == 2
    # A remedy may offer one value or a range.
    offers = re.split(r"\bor\b", answer["error"]["remedy"])
    groups = [group for offer in offers if (group := re.findall(r"--(?:dim|value) [^ ,)]+", offer))]
    assert groups
    for flags in groups:
        group = [re.sub(r"--value (.*)=x.npy", r"--value \1=\1.npy", flag) for flag in flags]
        named = {flag.split()[1].split("=")[0] for flag in group}
        kept = [flag for name, flag in own.items() if name not in named]
        code, answer = compiled([*kept, *group])
        assert code == 0, answer


def converted(model: bytes) -> bytes:
    return onnx.version_converter.convert_version(onnx.load_from_string(model), 13).SerializeToString()


OTHERS: dict[str, tuple[Refused, str, Callable[[bytes], tuple[bytes, Mapping[str, Any]]]]] = {
    "windows that do not fit every size of a range": (
        Refused(
            "bad_shape",
            model_of(
                [node("MaxPool", ["x"], ["y"], kernel_shape=[5])], {"x": (np.float32, [1, 1, "NAME"])}, ["y"]
            ),
            {"dims": {"NAME": "2..32"}},
        ),
        "narrow the ranges",
        lambda model: (model, {"dims": {"NAME": "5..32"}}),
    ),
    "a size by its name and by its axis": (
        Refused(
            "bad_option",
            model_of([node("Neg", ["x"], ["y"])], {"x": (np.float32, ["n"])}, ["y"]),
            {"dims": {"n": 3, "x:0": 4}},
        ),
        'leave out dims={"x:0": ',
        lambda model: (model, {"dims": {"n": 3}}),
    ),
    "an op that is not supported": (
        Refused(
            "unsupported_op",
            model_of(
                [node("Neg", ["x"], ["near"]), node("Unheard", ["near"], ["y"])],
                {"x": (np.float32, [3])},
                ["y"],
            ),
        ),
        "results",
        lambda model: (model, {"options": {"results": ["near"]}}),
    ),
    "an opset that is too old": (
        Refused(
            "unsupported_opset",
            model_of([node("Neg", ["x"], ["y"])], {"x": (np.float32, [3])}, ["y"], opset=5, domains={}),
        ),
        "version_converter",
        lambda model: (converted(model), {}),
    ),
    "a cache that grows": (
        Refused(
            "bad_shape",
            model_of(
                [node("Concat", ["past", "x"], ["present"], axis=0), node("Neg", ["present"], ["y"])],
                {"x": (np.float32, [1, 2]), "past": (np.float32, [4, 2])},
                ["y", "present"],
            ),
            {"options": {"states": {"past": "present"}}},
        ),
        "fixed-size cache",
        lambda _: (
            model_of(CACHE, {"x": (np.float32, [2]), "past": (np.float32, [2])}, ["y", "present"]),
            {"options": {"states": {"past": "present"}}},
        ),
    ),
    "a file that is cut off": (
        Refused(
            "bad_model_file",
            model_of([node("Neg", ["x"], ["y"])], {"x": (np.float32, [3])}, ["y"])[:-9],
        ),
        "complete ONNX model",
        lambda _: (model_of([node("Neg", ["x"], ["y"])], {"x": (np.float32, [3])}, ["y"]), {}),
    ),
}


@pytest.mark.parametrize("what", OTHERS)
def test_followed_by_hand(what: str) -> None:
    case, says, follow = OTHERS[what]
    with pytest.raises(aicf.UserError) as caught:
        aicf.compile(case.model, **case.options)
    assert caught.value.name == case.name and says in caught.value.remedy, caught.value
    model, options = follow(case.model)
    aicf.compile(model, **options)


def test_data_beside_the_model(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [node("Add", ["x", "w"], ["y"])],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [300])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(draw(300), "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=10)
    path, data = tmp_path / "m.onnx", tmp_path / "w.bin"
    onnx.save(model, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    whole = data.read_bytes()

    def remedy(given: Any) -> str:
        with pytest.raises(aicf.Error) as caught:
            aicf.compile(given)
        return caught.value.remedy

    assert "from its file instead of from bytes" in remedy(path.read_bytes())
    aicf.compile(str(path))
    data.unlink()
    assert "check the path" in remedy(str(path))
    data.write_bytes(whole[:100])
    assert "put the whole data file beside the model" in remedy(str(path))
    data.write_bytes(whole)
    aicf.compile(path)
    outside = tmp_path / "models" / "m.onnx"
    outside.parent.mkdir()
    for tensor in (proto := onnx.load(path, load_external_data=False)).graph.initializer:
        next(e for e in tensor.external_data if e.key == "location").value = "../w.bin"
    outside.write_bytes(proto.SerializeToString())
    assert "put the data file beside the model and export again" in remedy(outside)
