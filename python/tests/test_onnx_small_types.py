"""Integers that AICF carries in wider types (4 and 2 bits, u16, u32, u64) and floats of 8 and 4 bits, against
onnxruntime, numpy and the reference of ONNX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import aicf
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

ort = pytest.importorskip("onnxruntime")

Arrays = Mapping[str, np.ndarray]


def real(*sizes: int) -> np.ndarray:
    return np.random.default_rng(sizes).standard_normal(sizes).astype(np.float32)


def whole(low: int, high: int, dtype: Any, *sizes: int) -> np.ndarray:
    return np.random.default_rng(sizes).integers(low, high, sizes, endpoint=True).astype(dtype)


def packed(array: np.ndarray, kind: int) -> TensorProto:
    """A tensor of a type that numpy lacks."""
    return helper.make_tensor("", kind, array.shape, array.reshape(-1).tolist())


def named(tensor: TensorProto, name: str) -> TensorProto:
    tensor.name = name
    return tensor


def model_of(
    nodes: Sequence[Any],
    inputs: Mapping[str, tuple[int, Sequence[Any]]],
    outputs: Mapping[str, int],
    constants: Mapping[str, Any] = {},  # noqa: B006
    opset: int = 23,
) -> bytes:
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(name, kind, list(sizes)) for name, (kind, sizes) in inputs.items()],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()],
        [
            named(c, name) if isinstance(c, TensorProto) else numpy_helper.from_array(c, name)
            for name, c in constants.items()
        ],
    )
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports)
    model.ir_version = 10
    return model.SerializeToString()


def peer(model: bytes, feeds: Arrays) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"]).run(None, dict(feeds))


def ours(model: bytes, feeds: Arrays, dims: Mapping[str, Any] = {}) -> list[np.ndarray]:  # noqa: B006
    results = aicf.compile(model, dims=dims)(**feeds)
    return [np.asarray(r) for r in (results if isinstance(results, tuple) else (results,))]


def check(model: bytes, feeds: Arrays, dims: Mapping[str, Any] = {}, limit: float = 1e-5) -> None:  # noqa: B006
    for mine, theirs in zip(ours(model, feeds, dims), peer(model, feeds), strict=True):
        assert mine.shape == theirs.shape
        assert mine.dtype == theirs.dtype
        np.testing.assert_allclose(mine, theirs, rtol=limit, atol=limit)


FLOAT, UINT16, UINT32, UINT4, INT4 = (
    TensorProto.FLOAT,
    TensorProto.UINT16,
    TensorProto.UINT32,
    TensorProto.UINT4,
    TensorProto.INT4,
)
RANGES = {UINT4: (0, 15), INT4: (-8, 7), UINT16: (0, 65535), UINT32: (0, 2**32 - 1)}


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


SMALL_FLOATS = [
    TensorProto.FLOAT8E4M3FN,
    TensorProto.FLOAT8E4M3FNUZ,
    TensorProto.FLOAT8E5M2,
    TensorProto.FLOAT8E5M2FNUZ,
    TensorProto.FLOAT4E2M1,
]


def bits_of_all(kind: int) -> np.ndarray:
    return np.arange(16 if kind == TensorProto.FLOAT4E2M1 else 256, dtype=np.uint8)


def values_of_all(kind: int) -> np.ndarray:
    return bits_of_all(kind).view(helper.tensor_dtype_to_np_dtype(kind)).astype(np.float32)


@pytest.mark.parametrize("kind", SMALL_FLOATS)
@pytest.mark.parametrize("saturate", [0, 1])
def test_small_floats_round_as_the_standard_says(kind: int, saturate: int) -> None:
    """At each number of the type, at the middles between two, and one step beside; of NaN any."""
    known = values_of_all(kind)
    sorted_ = np.unique(known[np.isfinite(known)])
    middles = (sorted_[1:] + sorted_[:-1]) / 2
    beside = [np.nextafter(middles, np.float32(end)) for end in (np.inf, -np.inf)]
    far = np.array([np.inf, -np.inf, 464, 465, 480, 61439, 61440, 1e30, -1e30, 1e-40], np.float32)
    x = np.concatenate([known, middles, *beside, far, real(500) * np.exp2(real(500) * 8)]).astype(np.float32)
    nodes = [
        helper.make_node("Cast", ["x"], ["c"], to=kind, saturate=saturate),
        helper.make_node("Cast", ["c"], ["y"], to=FLOAT),
    ]
    model = model_of(nodes, {"x": (FLOAT, ["n"])}, {"c": kind, "y": FLOAT})
    bits, mine = ours(model, {"x": x}, {"n": "1..4000"})
    theirs_bits, theirs = ReferenceEvaluator(onnx.load_from_string(model)).run(None, {"x": x})
    np.testing.assert_array_equal(mine, theirs)
    number = ~np.isnan(theirs)
    np.testing.assert_array_equal(bits[number], np.asarray(theirs_bits).view(np.uint8)[number])


@pytest.mark.parametrize("kind", [*SMALL_FLOATS, TensorProto.FLOAT8E8M0])
def test_small_floats_as_weights_and_as_inputs(kind: int) -> None:
    bits, known = bits_of_all(kind), values_of_all(kind)
    tensor = TensorProto(dims=bits.shape, data_type=kind)
    tensor.raw_data = bits.tobytes() if bits.size > 16 else (bits[::2] | bits[1::2] << 4).tobytes()
    nodes = [
        helper.make_node("Transpose", ["w"], ["t"]),
        helper.make_node("DequantizeLinear", ["t", "scale"], ["y"]),
        helper.make_node("Cast", ["x"], ["z"], to=FLOAT),
    ]
    constants = {"w": tensor, "scale": np.array(0.5, np.float32)}
    model = model_of(nodes, {"x": (kind, bits.shape)}, {"y": FLOAT, "z": FLOAT}, constants)
    y, z = ours(model, {"x": bits})
    np.testing.assert_array_equal(y, known * np.float32(0.5))
    np.testing.assert_array_equal(z, known)


def test_activations_through_f8() -> None:
    zero = TensorProto(dims=[], data_type=TensorProto.FLOAT8E4M3FN, raw_data=b"\0")
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["y"]),
    ]
    constants = {"scale": np.array(0.125, np.float32), "zero": zero}
    check(
        model_of(nodes, {"x": (FLOAT, ["n"])}, {"y": FLOAT}, constants, 19),
        {"x": real(300) * 40},
        {"n": "1..512"},
    )


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


# --- ops


def gather_cases() -> list[Any]:
    table, blocks = (6, 64), (6, 2)
    cases: list[Any] = []
    for zero in (False, True):
        for kind in (UINT4, INT4):
            low, high = RANGES[kind]
            z = packed(whole(low, high, int, *blocks), kind)
            cases.append(
                (packed(whole(low, high, int, *table), kind), blocks, z if zero else None, {"bits": 4})
            )
        z8 = whole(0, 255, np.uint8, 6, 1)
        cases.append((whole(0, 255, np.uint8, 6, 32), blocks, z8 if zero else None, {"bits": 4}))
        z8 = whole(0, 255, np.uint8, *blocks)
        cases.append((whole(0, 255, np.uint8, *table), blocks, z8 if zero else None, {"bits": 8}))
    low, high = RANGES[INT4]
    deep = packed(whole(low, high, int, 3, 40, 2), INT4)
    cases.append((deep, (3, 3, 2), None, {"block_size": 16, "gather_axis": 2}))
    cases.append((deep, (3, 3, 2), None, {"block_size": 16, "gather_axis": 0}))
    return cases


@pytest.mark.parametrize("case", gather_cases())
@pytest.mark.parametrize("shape", [(4,), (2, 3)])
def test_rows_of_a_quantised_table(case: Any, shape: tuple[int, ...]) -> None:
    data, blocks, zero, attributes = case
    constants = {"w": data, "s": np.abs(real(*blocks)) + 0.1} | ({} if zero is None else {"z": zero})
    attributes = {"block_size": 32, "quantize_axis": 1, "gather_axis": 0} | attributes
    names = ["w", "i", "s", *(["z"] if zero is not None else [])]
    node = helper.make_node("GatherBlockQuantized", names, ["y"], domain="com.microsoft", **attributes)
    kinds = {"i": (TensorProto.INT64, ["n", *shape[1:]])}
    model = model_of([node], kinds, {"y": FLOAT}, constants)
    rows = 2 if attributes["gather_axis"] == 2 else 3 if len(blocks) == 3 else 6
    check(model, {"i": whole(0, rows - 1, np.int64, *shape)}, {"n": "1..5"})


@pytest.mark.parametrize("per_column", [False, True])
@pytest.mark.parametrize("past", [False, True])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_quantised_attention(per_column: bool, past: bool, dtype: Any) -> None:
    heads, size, columns = 2, 4, 24
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    count = (columns,) if per_column else ()
    constants: dict[str, Any] = {
        "w": whole(low, high, dtype, 8, columns),
        "b": real(columns),
        "xs": np.array(0.02, np.float32),
        "ws": np.asarray(np.abs(real(*count, 1)[..., 0]) * 0.02 + 0.001, np.float32),
        "xz": np.array(120, np.uint8),
        "wz": np.asarray(np.full(count, low + 125), dtype),
    }
    inputs: dict[str, Any] = {"x": (TensorProto.UINT8, ["n", 5, 8])}
    feeds: dict[str, np.ndarray] = {"x": whole(0, 255, np.uint8, 2, 5, 8)}
    if past:
        inputs["p"] = (FLOAT, [2, "n", heads, "t", size])
        feeds["p"] = real(2, 2, heads, 3, size)
    else:
        inputs["m"] = (TensorProto.INT32, ["n"])
        feeds["m"] = np.array([3, 5], np.int32)
    names = ["x", "w", "b", "xs", "ws", "" if past else "m", "xz", "wz", *(["p"] if past else [])]
    node = helper.make_node(
        "QAttention",
        names,
        ["y", *(["q"] if past else [])],
        domain="com.microsoft",
        num_heads=heads,
        unidirectional=int(past),
    )
    model = model_of([node], inputs, {"y": FLOAT, **({"q": FLOAT} if past else {})}, constants)
    dims = {"n": "1..4"} | ({"t": "1..8"} if past else {})
    check(model, feeds, dims, 1e-4)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_quantised_lstm(direction: str, per_channel: bool, dtype: Any) -> None:
    """One sequence: onnxruntime quantises the states of several by rows that its threads decide."""
    d, i, h = (2 if direction == "bidirectional" else 1), 6, 5
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    count = (d, 4 * h) if per_channel else (d,)
    constants = {
        "w": whole(low, high, dtype, d, i, 4 * h),
        "r": whole(low, high, dtype, d, h, 4 * h),
        "b": real(d, 8 * h),
        "h": real(d, 1, h),
        "c": real(d, 1, h),
        "ws": np.abs(real(*count)) * 0.01 + 0.001,
        "wz": np.full(count, low + 128 if dtype == np.uint8 else 0).astype(dtype),
        "rs": np.abs(real(*count)) * 0.01 + 0.002,
        "rz": np.full(count, low + 128 if dtype == np.uint8 else 0).astype(dtype),
    }
    names = ["x", "w", "r", "b", "", "h", "c", "", "ws", "wz", "rs", "rz"]
    node = helper.make_node(
        "DynamicQuantizeLSTM",
        names,
        ["y", "yh", "yc"],
        domain="com.microsoft",
        hidden_size=h,
        direction=direction,
    )
    model = model_of([node], {"x": (FLOAT, ["t", 1, i])}, {"y": FLOAT, "yh": FLOAT, "yc": FLOAT}, constants)
    for steps in (1, 7):
        check(model, {"x": real(steps, 1, i)}, {"t": "1..9"}, 2e-4)
        check(model, {"x": real(steps, 1, i)}, {"t": steps}, 2e-4)
