"""Integers that AICF carries in wider types (4 and 2 bits, u16, u32, u64), against onnxruntime, numpy and the
reference of ONNX."""

from __future__ import annotations

from typing import Any

import aicf
import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx_kinds import (
    FLOAT,
    INT4,
    RANGES,
    UINT4,
    UINT16,
    UINT32,
    check,
    model_of,
    ours,
    packed,
    real,
    whole,
)


@pytest.mark.parametrize("kind", [UINT4, INT4])
@pytest.mark.parametrize("zero", [False, True])
def test_weights_of_four_bits_in_blocks(kind: int, zero: bool) -> None:
    """As onnxruntime's quantiser writes them, in front of a product. 70 rows are no whole blocks."""
    low, high = RANGES[kind]
    constants: dict[str, Any] = {
        "w": packed(whole(low, high, int, 70, 9), kind),
        "s": np.abs(real(3, 9)) + 0.01,
    }
    if zero:
        constants["z"] = packed(whole(low, high, int, 3, 9), kind)
    nodes = [
        helper.make_node("DequantizeLinear", list(constants), ["d"], axis=0, block_size=32),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
    ]
    model = model_of(nodes, {"x": (FLOAT, ["n", 70])}, {"y": FLOAT}, constants)
    for rows in (1, 5):
        check(model, {"x": real(rows, 70)}, {"n": "1..8"}, 1e-4)


@pytest.mark.parametrize("kind", [UINT4, INT4, UINT16])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_quantised_and_back(kind: int, axis: int | None) -> None:
    """What lies outside saturates, for one scale and for one per row or column."""
    low, high = RANGES[kind]
    count = () if axis is None else ((4, 6)[axis],)
    zero = np.full(count, (low + high) // 2 + 1)
    constants = {
        "s": np.asarray(np.abs(real(*count, 1)[..., 0]) * 20 / high + 1e-4, np.float32),
        "z": zero.astype(np.uint16) if kind == UINT16 else packed(zero, kind),
    }
    where = {} if axis is None else {"axis": axis}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], **where),
        helper.make_node("Transpose", ["q"], ["t"]),
        helper.make_node("Transpose", ["t"], ["u"]),
        helper.make_node("DequantizeLinear", ["u", "s", "z"], ["y"], **where),
    ]
    model = model_of(nodes, {"x": (FLOAT, [4, "n"])}, {"y": FLOAT}, constants)
    check(model, {"x": real(4, 6) * 15}, {"n": 6})


@pytest.mark.parametrize(
    ("op", "attributes"),
    [("Add", {}), ("Sub", {}), ("Mul", {}), ("Div", {}), ("Mod", {}), ("BitwiseXor", {}), ("BitwiseNot", {})],
)
@pytest.mark.parametrize(("kind", "dtype"), [(UINT16, np.uint16), (UINT32, np.uint32)])
def test_unsigned_arithmetic_wraps(op: str, attributes: dict[str, Any], kind: int, dtype: Any) -> None:
    low, high = RANGES[kind]
    a, b = whole(low, high, dtype, 50), whole(low + 1, high, dtype, 2, 50)
    names = ["a"] if op == "BitwiseNot" else ["a", "b"]
    nodes = [
        helper.make_node("Cast", ["i"], ["c"], to=kind),
        helper.make_node(op, ["c", *names[1:]], ["r"], **attributes),
        helper.make_node("Cast", ["r"], ["y"], to=TensorProto.INT64),
    ]
    model = model_of(nodes, {"i": (TensorProto.INT64, ["n"])}, {"y": TensorProto.INT64}, {"b": b})
    wanted = (
        ~a
        if op == "BitwiseNot"
        else getattr(
            np,
            {"Sub": "subtract", "Mul": "multiply", "Div": "floor_divide", "BitwiseXor": "bitwise_xor"}.get(
                op, op.lower()
            ),
        )(a, b)
    )
    (mine,) = ours(model, {"i": a.astype(np.int64) - (high + 1)}, {"n": 50})
    np.testing.assert_array_equal(mine, wanted.astype(np.int64))


@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
def test_shifts_as_torch_writes_them(direction: str) -> None:
    """`x << n` of i64 by way of u64, whose highest bit is no sign."""
    nodes = [
        helper.make_node("Cast", ["x"], ["u"], to=TensorProto.UINT64),
        helper.make_node("BitShift", ["u", "n"], ["v"], direction=direction),
        helper.make_node("Add", ["v", "big"], ["w"]),
        helper.make_node("Cast", ["w"], ["y"], to=TensorProto.INT64),
    ]
    constants = {"n": np.array([0, 1, 40, 63], np.uint64), "big": np.array(2**63 + 5, np.uint64)}
    model = model_of(nodes, {"x": (TensorProto.INT64, [5, 4])}, {"y": TensorProto.INT64}, constants)
    x = whole(-(2**62), 2**62, np.int64, 5, 4)
    check(model, {"x": x}, limit=0)


WIDE = np.array(
    [0, 1, 2, 3, 7, 2**32, 2**63 - 1, 2**63, 2**63 + 1, 2**63 + 1024, 2**64 - 2, 2**64 - 1], np.uint64
)


@pytest.mark.parametrize(
    ("op", "function"),
    [
        ("Div", lambda x, y: x // y),
        ("Mod", lambda x, y: x % y),
        ("Max", np.maximum),
        ("Min", np.minimum),
        ("Greater", np.greater),
        ("GreaterOrEqual", np.greater_equal),
        ("Less", np.less),
        ("LessOrEqual", np.less_equal),
        ("Equal", np.equal),
        ("Pow", lambda x, y: np.power(x, y % 7)),
    ],
)
def test_u64_by_pairs(op: str, function: Any) -> None:
    """i64 carries the bits; above 2^63 they would read as numbers below zero."""
    x, y = (m.reshape(-1) for m in np.meshgrid(WIDE, WIDE[1:]))
    feeds = {"x": x, "y": y % 7 if op == "Pow" else y}
    wanted = function(x, y)
    kind = TensorProto.BOOL if wanted.dtype == np.bool_ else TensorProto.UINT64
    ends = {name: (TensorProto.UINT64, ["n"]) for name in feeds}
    (mine,) = ours(
        model_of([helper.make_node(op, ["x", "y"], ["z"])], ends, {"z": kind}),
        {name: a.view(np.int64) for name, a in feeds.items()},
        {"n": "1..200"},
    )
    np.testing.assert_array_equal(mine.view(wanted.dtype), wanted)


def test_u64_by_order() -> None:
    x = np.random.default_rng(0).permutation(np.tile(WIDE, 3)).reshape(4, 9)
    nodes = [
        helper.make_node("ReduceMax", ["x", "axes"], ["high"], keepdims=0),
        helper.make_node("ReduceMin", ["x", "axes"], ["low"], keepdims=0),
        helper.make_node("Clip", ["x", "from", "to"], ["clipped"]),
        helper.make_node("TopK", ["x", "k"], ["top", "at"]),
        helper.make_node("ArgMax", ["x"], ["where"], axis=1, keepdims=0),
    ]
    kinds = dict.fromkeys(["high", "low", "clipped", "top"], TensorProto.UINT64) | dict.fromkeys(
        ["at", "where"], TensorProto.INT64
    )
    limits = {"from": np.array(2, np.uint64), "to": np.array(2**63 + 7, np.uint64)}
    model = model_of(
        nodes,
        {"x": (TensorProto.UINT64, x.shape)},
        kinds,
        {"axes": np.array([1]), "k": np.array([3]), **limits},
    )
    high, low, clipped, top, at, where = ours(model, {"x": x.view(np.int64)})
    np.testing.assert_array_equal(high.view(np.uint64), x.max(1))
    np.testing.assert_array_equal(low.view(np.uint64), x.min(1))
    np.testing.assert_array_equal(clipped.view(np.uint64), np.clip(x, limits["from"], limits["to"]))
    np.testing.assert_array_equal(top.view(np.uint64), np.sort(x, 1)[:, :-4:-1])
    np.testing.assert_array_equal(np.take_along_axis(x, at, 1), top.view(np.uint64))
    np.testing.assert_array_equal(where, x.argmax(1))


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_u64_from_and_to_floats(kind: Any) -> None:
    to = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    nodes = [
        helper.make_node("Cast", ["x"], ["f"], to=to),
        helper.make_node("Cast", ["g"], ["u"], to=TensorProto.UINT64),
        helper.make_node("Pow", ["two", "small"], ["p"]),
    ]
    numbers = np.array([0, 1.75, 2**11, 2.0**63, 2.0**63 + 2.0**12, 2.0**64 - 2.0**41], np.float64)
    numbers = np.minimum(numbers, float(np.finfo(kind).max)).astype(kind)
    model = model_of(
        nodes,
        {"x": (TensorProto.UINT64, WIDE.shape), "g": (to, numbers.shape)},
        {"f": to, "u": TensorProto.UINT64, "p": to},
        {"two": np.array(2, kind), "small": np.array([3, 2**63 + 4], np.uint64)},
    )
    f, u, p = ours(model, {"x": WIDE.view(np.int64), "g": numbers})
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(f, WIDE.astype(kind))
    np.testing.assert_array_equal(u.view(np.uint64), numbers.astype(np.uint64))
    np.testing.assert_array_equal(p, np.array([8, np.inf], kind))


def test_they_are_bound_in_the_type_that_carries_them() -> None:
    model = model_of(
        [helper.make_node("Add", ["x", "x"], ["y"])], {"x": (UINT16, ["n"])}, {"y": UINT16}, opset=19
    )
    exe = aicf.compile(model, dims={"n": "1..4"})
    assert [info.dtype for info in (*exe.inputs, *exe.outputs)] == ["i32", "i32"]
    assert np.asarray(exe(np.array([1, 40000], np.int32))).tolist() == [2, 14464]


@pytest.mark.parametrize(
    ("nodes", "text"),
    [
        ([helper.make_node("CumSum", ["w", "i"], ["y"])], "CumSum .*data type UINT16"),
        ([helper.make_node("Add", ["w", "v"], ["y"])], "one data type"),
        (
            [
                helper.make_node("Cast", ["v"], ["e"], to=TensorProto.FLOAT8E5M2),
                helper.make_node("Add", ["e", "e"], ["y"]),
            ],
            "Add .*data type FLOAT8E5M2",
        ),
        ([helper.make_node("Cast", ["v"], ["y"], to=TensorProto.FLOAT8E8M0)], "numbers as FLOAT8E8M0"),
        ([helper.make_node("Cast", ["w"], ["y"], to=TensorProto.STRING)], "data type STRING"),
        ([helper.make_node("Abs", ["l"], ["y"])], "Abs .*data type UINT64"),
        ([helper.make_node("Pow", ["l", "h"], ["y"])], "UINT64 to a power that is no integer"),
    ],
)
def test_what_is_refused(nodes: list[Any], text: str) -> None:
    constants = {
        "w": np.arange(4, dtype=np.uint16),
        "v": np.arange(4, dtype=np.int32),
        "i": np.array(0, np.int64),
        "l": np.arange(4, dtype=np.uint64),
        "h": np.array(0.5, np.float32),
    }
    nodes = [*nodes, helper.make_node("Cast", ["y"], ["z"], to=FLOAT)]
    with pytest.raises(aicf.Error, match=text):
        aicf.compile(model_of(nodes, {}, {"z": FLOAT}, constants))


def test_packed_data_of_another_length_is_refused() -> None:
    tensor = packed(whole(0, 15, int, 5), UINT4)
    raw = TensorProto()
    raw.CopyFrom(tensor)
    raw.ClearField("int32_data")
    raw.raw_data = b"\0\0"
    nodes = [helper.make_node("Cast", ["w"], ["y"], to=FLOAT)]
    with pytest.raises(aicf.Error, match="has 2 data bytes where its shape needs 3"):
        aicf.compile(model_of(nodes, {}, {"y": FLOAT}, {"w": raw}))
    raw.raw_data = bytes([0x21, 0x43, 0x05])
    (mine,) = ours(model_of(nodes, {}, {"y": FLOAT}, {"w": raw}), {})
    assert mine.tolist() == [1, 2, 3, 4, 5]
