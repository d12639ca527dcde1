"""y[mask] = values as exporters write it, NonZero and ScatterND, against onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import aicf
import numpy as np
import onnx
import onnx_nodes
import pytest
from onnx import TensorProto, helper
from onnx_nodes import ours, peer

SIZES = {"x": ["n", 4], "m": ["n", 4], "rows": ["n", 1]}
CONSTANTS = {
    "all": np.array([-1]),
    "zero": np.array([0]),
    "one": np.array([1]),
    "four": np.array([4]),
    "scalar": np.array(0.5, np.float32),
    "row": np.array([0.5, 1.5, 2.5, 3.5], np.float32),
    "single": np.array([[0.25, 1.0, 2.0, 3.0]], np.float32),
    "many": np.arange(64, dtype=np.float32),
    "table": np.arange(64, dtype=np.float32).reshape(16, 4),
}


def node(op: str, inputs: str, output: str, **attributes: Any) -> Any:
    return helper.make_node(op, inputs.split(), [output], **attributes)


def places(mask: str) -> list[Any]:
    """The places of the mask, one row each, and how many they are: [count]."""
    return [
        node("NonZero", mask, "listed"),
        node("Transpose", "listed", "places", perm=[1, 0]),
        node("Shape", "places", "lengths"),
        node("Slice", "lengths zero one zero", "count"),
    ]


WIDE_ROWS = [node("Shape", "x", "sizes"), node("Expand", "rows sizes", "wide")]
VECTOR = [node("Squeeze", "rows one", "vector")]
FORMS = {
    "a number": [
        *places("m"),
        node("Cast", "m", "bits", to=TensorProto.INT64),
        node("Reshape", "bits all", "line"),
        node("ReduceSum", "line", "sum"),
        node("Reshape", "sum all", "counted"),
        node("Expand", "scalar counted", "wide"),
        node("Reshape", "wide all", "values"),
        node("ScatterND", "x places values", "y"),
    ],
    "a row for whole rows, element by element": [
        *WIDE_ROWS,
        *places("wide"),
        node("NonZero", "rows", "chosen"),
        node("Shape", "chosen", "chosen_sizes"),
        node("Slice", "chosen_sizes one all zero", "none"),
        node("Shape", "chosen", "lots"),
        node("Gather", "lots one", "rows_chosen", axis=0),
        node("Concat", "rows_chosen four", "target", axis=0),
        node("Expand", "row target", "expanded"),
        node("Reshape", "expanded all", "values"),
        node("ScatterND", "x places values", "y"),
    ],
    "a row for whole rows": [
        *VECTOR,
        *places("vector"),
        node("Concat", "count four", "target", axis=0),
        node("Expand", "row target", "values"),
        node("ScatterND", "x places values", "y"),
    ],
    "a single row for whole rows": [
        *VECTOR,
        *places("vector"),
        node("Concat", "count four", "target", axis=0),
        node("Expand", "single target", "values"),
        node("ScatterND", "x places values", "y"),
    ],
    "numbers in order": [
        *places("m"),
        node("Slice", "many zero count zero", "values"),
        node("ScatterND", "x places values", "y", reduction="none"),
    ],
    "rows in order": [
        *VECTOR,
        *places("vector"),
        node("Slice", "table zero count", "values"),
        node("ScatterND", "x places values", "y"),
    ],
    "numbers made of those there": [
        *places("m"),
        node("Exp", "x", "e"),
        node("GatherND", "x places", "there"),
        node("GatherND", "e places", "grown"),
        node("Mul", "there scalar", "half"),
        node("Add", "half grown", "values"),
        node("ScatterND", "x places values", "y"),
    ],
    "rows made of those there": [
        *VECTOR,
        *places("vector"),
        node("GatherND", "x places", "there"),
        node("Mul", "scalar there", "parts"),
        node("ScatterND", "x places parts", "y"),
    ],
    "two at once": [
        *places("m"),
        node("Slice", "many zero count zero", "values"),
        node("ScatterND", "x places values", "z"),
        node("Expand", "scalar count", "halves"),
        node("ScatterND", "z places halves", "w"),
        node("Sub", "w x", "y"),
    ],
}


def model_of(nodes: list[Any]) -> bytes:
    kinds = {"x": np.float32, "m": np.bool_, "rows": np.bool_}
    read = {name for each in nodes for name in each.input}
    inputs = {name: (kind, SIZES[name]) for name, kind in kinds.items() if name in read}
    return onnx_nodes.model_of(nodes, inputs, ["y"], CONSTANTS, opset=18)


def feeds_of(model: bytes, n: int, share: float) -> Mapping[str, np.ndarray]:
    random = np.random.default_rng(n)
    sizes = {"x": (n, 4), "m": (n, 4), "rows": (n, 1)}
    return {
        each.name: random.standard_normal((n, 4)).astype(np.float32)
        if each.name == "x"
        else random.random(sizes[each.name]) < share
        for each in onnx.load_from_string(model).graph.input
    }


@pytest.mark.parametrize("name", FORMS)
def test_places_of_a_mask_are_written(name: str) -> None:
    model = model_of(FORMS[name])
    exe = aicf.compile(model, dims={"n": "1..9"}, threads=1)
    for n, share in ((1, 0.5), (5, 0.5), (9, 0.2), (4, 0.0), (6, 1.0)):
        feeds = feeds_of(model, n, share)
        (mine,), (theirs,) = ours(exe, feeds), peer(model, feeds)
        np.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "nodes",
    [
        [*places("m"), node("GatherND", "x places", "y")],
        [
            *places("m"),
            node("GatherND", "x places", "there"),
            node("CumSum", "there zero", "values"),
            node("ScatterND", "x places values", "y"),
        ],
        [
            *places("m"),
            node("Expand", "scalar count", "v"),
            node("ScatterND", "x places v", "y", reduction="add"),
        ],
        [
            *places("m"),
            node("Slice", "many one count zero", "values"),
            node("ScatterND", "x places values", "y"),
        ],
    ],
)
def test_other_uses_of_places_are_refused(nodes: list[Any]) -> None:
    with pytest.raises(aicf.UserError, match=r"NonZero .*depends on data"):
        aicf.compile(model_of(nodes), dims={"n": "1..9"})


def test_values_that_are_no_row_are_refused() -> None:
    nodes = [*places("m"), node("Expand", "row count", "values"), node("ScatterND", "x places values", "y")]
    # Rows element by element, of a mask that may say another thing for each.
    flat = [
        *places("m"),
        node("Expand", "row count", "wide"),
        node("Reshape", "wide all", "values"),
        node("ScatterND", "x places values", "y"),
    ]
    for form in (nodes, flat):
        with pytest.raises(aicf.UserError, match="neither one for all nor a row"):
            aicf.compile(model_of(form), dims={"n": 4})
