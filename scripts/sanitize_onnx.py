"""Models of a few nodes for sanitize_models.py, as ONNX files: each function gives what writes one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, save

F16, BF16, F32 = TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.FLOAT


Sizes = tuple[int, ...]
Nodes = list[tuple[str, list[str], dict[str, Any]]]


def nodes(element: int, inputs: dict[str, Sizes], ops: Nodes) -> Callable[[Path], None]:
    """A model of these ops, the i-th of which gives "i", and the last the output."""

    def write(path: Path) -> None:
        made = [helper.make_node(kind, args, [str(i)], **attrs) for i, (kind, args, attrs) in enumerate(ops)]
        infos = [helper.make_tensor_value_info(n, element, s) for n, s in inputs.items()]
        result = helper.make_empty_tensor_value_info(str(len(ops) - 1))
        graph = helper.make_graph(made, path.stem, infos, [result])
        save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11), path)

    return write


def linear(rows: int, inner: int, outer: int, element: int = BF16) -> Callable[[Path], None]:
    sizes = {"x": (rows, inner), "w": (inner, outer), "b": (outer,), "r": (rows, outer)}
    ops: Nodes = [
        ("MatMul", ["x", "w"], {}),
        ("Add", ["0", "b"], {}),
        ("Gelu", ["1"], {"approximate": "tanh"}),
        ("Add", ["2", "r"], {}),
    ]
    return nodes(element, sizes, ops)


def gate(rows: int, inner: int, outer: int, element: int) -> Callable[[Path], None]:
    """Two products of one x, which meet."""
    ops: Nodes = [
        ("MatMul", ["x", "w"], {}),
        ("MatMul", ["x", "v"], {}),
        ("Gelu", ["0"], {"approximate": "tanh"}),
        ("Mul", ["2", "1"], {}),
    ]
    return nodes(element, {"x": (rows, inner), "w": (inner, outer), "v": (inner, outer)}, ops)


def trip(rows: int, width: int) -> tuple[list[Any], Any, list[Any], list[Any]]:
    """A product and what says whether to go on: nodes, the constant they read, operands and results."""
    value = helper.make_tensor_value_info
    made = [
        helper.make_node("MatMul", ["y", "w"], ["product"]),
        helper.make_node("Tanh", ["product"], ["next"]),
        helper.make_node("ReduceMax", ["next"], ["top"], keepdims=0),
        helper.make_node("Less", ["top", "limit"], ["again"]),
    ]
    operands = [value("y", F32, (rows, width)), value("w", F32, (width, width))]
    results = [value("again", TensorProto.BOOL, []), value("next", F32, (rows, width))]
    return made, helper.make_tensor("limit", F32, [], [2.0]), operands, results


def loop(rows: int, width: int, trips: int) -> Callable[[Path], None]:
    """Products in a loop that its data could end before its last trip."""

    def write(path: Path) -> None:
        value = helper.make_tensor_value_info
        made, limit, (y, w), results = trip(rows, width)
        given = [value("trip", TensorProto.INT64, []), value("go", TensorProto.BOOL, []), y]
        body = helper.make_graph(made, "body", given, results, [limit])
        steps = helper.make_tensor("steps", TensorProto.INT64, [], [trips])
        node = helper.make_node("Loop", ["steps", "", "x"], ["0"], body=body)
        infos = [value("x", F32, (rows, width)), w]
        graph = helper.make_graph([node], path.stem, infos, [value("0", F32, (rows, width))], [steps])
        save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11), path)

    return write


def loop_body(rows: int, width: int) -> Callable[[Path], None]:
    """What loop() does in one trip, without the loop."""

    def write(path: Path) -> None:
        made, limit, operands, results = trip(rows, width)
        graph = helper.make_graph(made, path.stem, operands, results, [limit])
        save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11), path)

    return write


def early_linears(rows: int, width: int = 1024) -> Callable[[Path], None]:
    """Products with constant weights: the second reads its x, too, before the first has ended."""

    def write(path: Path) -> None:
        rng = np.random.default_rng(0)
        weights = {f"w{i}": rng.standard_normal((width, width)) / 32 for i in range(2)}
        made = [helper.make_node("MatMul", [f"x{i}", f"w{i}"], [str(i)]) for i in range(2)]
        infos = [helper.make_tensor_value_info(f"x{i}", F16, (rows, width)) for i in range(2)]
        results = [helper.make_empty_tensor_value_info(str(i)) for i in range(2)]
        constants = [
            helper.make_tensor(name, F16, w.shape, w.astype(np.float16).tobytes(), raw=True)
            for name, w in weights.items()
        ]
        graph = helper.make_graph(made, path.stem, infos, results, constants)
        save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11), path)

    return write


def attention(length: int, depth: int, heads: int = 4) -> Callable[[Path], None]:
    shared = (1, heads // 2, length, depth)
    sizes = {"q": (1, heads, length, depth), "k": shared, "v": shared}
    return nodes(F16, sizes, [("Attention", ["q", "k", "v"], {"is_causal": 1})])


def convolutions(element: int) -> Callable[[Path], None]:
    sizes = {
        "x": (2, 8, 30, 30), "stem": (64, 8, 7, 7), "reduce": (32, 64, 1, 1), "middle": (64, 32, 3, 3),
        "bias": (64,), "depth": (64, 1, 3, 3), "up": (64, 16, 2, 2),
    }  # fmt: skip
    same = {"pads": [1] * 4, "kernel_shape": [3, 3]}
    ops: Nodes = [
        ("Conv", ["x", "stem"], {"pads": [3] * 4, "strides": [2, 2]}),
        ("MaxPool", ["0"], {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4}),
        ("Conv", ["1", "reduce"], {}),
        ("Conv", ["2", "middle", "bias"], same),
        ("Add", ["3", "1"], {}),
        ("Relu", ["4"], {}),
        ("Conv", ["5", "depth"], same | {"group": 64}),
        ("ConvTranspose", ["6", "up"], {"strides": [2, 2]}),
        ("GlobalAveragePool", ["7"], {}),
    ]
    return nodes(element, sizes, ops)


def residual_block(element: int) -> Callable[[Path], None]:
    sizes = {
        "x": (4, 64, 28, 28),
        "reduce": (64, 64, 1, 1),
        "middle": (64, 64, 3, 3),
        "expand": (64, 64, 1, 1),
        "bias": (64,),
    }
    ops: Nodes = [
        ("Conv", ["x", "reduce", "bias"], {}),
        ("Relu", ["0"], {}),
        ("Conv", ["1", "middle", "bias"], {"pads": [1] * 4}),
        ("Relu", ["2"], {}),
        ("Conv", ["3", "expand", "bias"], {}),
        ("Add", ["4", "x"], {}),
        ("Relu", ["5"], {}),
    ]
    return nodes(element, sizes, ops)


def tables() -> Callable[[Path], None]:
    """Rows that pass through registers, a block and a cluster, and the ops that have kernels of their own."""
    ops: Nodes = [
        ("Softmax", ["x"], {"axis": -1}),
        ("Softmax", ["long"], {"axis": -1}),
        ("ReduceSum", ["x"], {"keepdims": 0}),
        ("ArgMax", ["long"], {"axis": 1}),
        ("TopK", ["x", "count"], {}),
        ("CumSum", ["x", "axis"], {}),
        ("Gather", ["x", "rows"], {}),
        ("ScatterElements", ["x", "places", "updates"], {"axis": 1, "reduction": "add"}),
        ("Concat", ["x", "7"], {"axis": 1}),
        ("Resize", ["image", "", "scales"], {"mode": "linear"}),
    ]
    sizes = {
        "x": (37, 300), "long": (3, 70000), "count": (1,), "axis": (), "rows": (11,), "places": (37, 50),
        "updates": (37, 50), "image": (1, 3, 9, 9), "scales": (4,),
    }  # fmt: skip

    def write(path: Path) -> None:
        made = [
            helper.make_node(kind, args, [str(i), "indices"] if kind == "TopK" else [str(i)], **attrs)
            for i, (kind, args, attrs) in enumerate(ops)
        ]
        values = {
            "count": np.array([5]), "axis": np.array(1), "scales": np.array([1, 1, 2, 2], np.float32),
            "rows": np.arange(11) * 3, "places": np.arange(37 * 50).reshape(37, 50) % 7,
        }  # fmt: skip
        constants = [
            helper.make_tensor(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape, v)
            for n, v in values.items()
        ]
        infos = [helper.make_tensor_value_info(n, F32, s) for n, s in sizes.items() if n not in values]
        results = [helper.make_empty_tensor_value_info(str(i)) for i in range(len(ops))]
        graph = helper.make_graph(made, path.stem, infos, results, constants)
        save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)

    return write


def equal_products() -> Callable[[Path], None]:
    """Small calls of one function side by side in a launch, and what reads their results after them."""
    names = [f"x{i}" for i in range(6)]
    ops: Nodes = [("MatMul", [name, "w"], {}) for name in names]
    ops.append(("Concat", [str(i) for i in range(len(names))], {"axis": 0}))
    ops.append(("Softmax", [str(len(names))], {"axis": -1}))
    return nodes(F32, {"w": (24, 20), **dict.fromkeys(names, (12, 24))}, ops)
