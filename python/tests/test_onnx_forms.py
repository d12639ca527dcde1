"""ONNX nodes against onnxruntime, in forms that other tools write and over ranges of sizes.

Every size of a range gives the bits of the model compiled at exactly that size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import aicf
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

ort = pytest.importorskip("onnxruntime")

Arrays = Mapping[str, np.ndarray]


def draw(*sizes: int) -> np.ndarray:
    return np.random.default_rng(sizes).standard_normal(sizes).astype(np.float32)


def model_of(
    nodes: Sequence[Any],
    inputs: Mapping[str, tuple[Any, Sequence[int | str]]],
    outputs: Sequence[str],
    constants: Arrays = {},  # noqa: B006
    opset: int = 19,
) -> bytes:
    """`inputs`: dtype and sizes by name; outputs are f32 unless `name:type` says another."""
    named = [output.split(":") for output in outputs]
    graph = helper.make_graph(
        nodes,
        "graph",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), list(sizes))
            for name, (dtype, sizes) in inputs.items()
        ],
        [
            helper.make_tensor_value_info(
                name, getattr(TensorProto, kind[0]) if kind else TensorProto.FLOAT, None
            )
            for name, *kind in named
        ],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports)
    model.ir_version = 9
    return model.SerializeToString()


def peer(model: bytes, feeds: Arrays) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    return ort.InferenceSession(model, options).run(None, dict(feeds))


def ours(exe: aicf.Executable, feeds: Arrays) -> list[np.ndarray]:
    results = exe(**feeds)
    return [np.asarray(r) for r in (results if isinstance(results, tuple) else (results,))]


def check_sizes(
    model: bytes, dims: Mapping[str, str], cases: Sequence[tuple[Mapping[str, int], Arrays]]
) -> None:
    exe = aicf.compile(model, dims=dims, threads=1)
    for sizes, feeds in cases:
        got = ours(exe, feeds)
        for mine, exact, theirs in zip(
            got, ours(aicf.compile(model, dims=sizes, threads=1), feeds), peer(model, feeds), strict=True
        ):
            assert mine.tobytes() == exact.tobytes(), sizes
            np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "attributes",
    [
        {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
        {"mode": "nearest", "nearest_mode": "round_prefer_ceil"},
        {"mode": "nearest", "coordinate_transformation_mode": "half_pixel_symmetric", "nearest_mode": "ceil"},
        {"mode": "linear"},
        {"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"},
        {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
        {"mode": "cubic", "coordinate_transformation_mode": "half_pixel"},
        {"mode": "cubic", "exclude_outside": 1, "cubic_coeff_a": -0.5},
    ],
)
@pytest.mark.parametrize("scale", [2.0, 1.5, 0.5, None])
def test_resize_of_unknown_sizes(attributes: dict[str, Any], scale: float | None) -> None:
    """By scales, or (None) to the sizes of another input."""
    inputs: dict[str, Any] = {"x": (np.float32, [1, 2, "h", "w"])}
    if attributes.get("coordinate_transformation_mode") == "align_corners" and scale in (1.5, 0.5):
        pytest.skip("the operator list leaves the rounding of the length open, onnxruntime rounds it")
    if scale is None:
        inputs["like"] = (np.float32, [1, 2, "oh", "ow"])
        nodes = [
            helper.make_node("Shape", ["like"], ["sizes"]),
            helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], **attributes),
        ]
        constants: Arrays = {}
    else:
        nodes = [helper.make_node("Resize", ["x", "", "scales"], ["y"], **attributes)]
        constants = {"scales": np.array([1, 1, scale, scale], np.float32)}
    cases = []
    for h, w, oh, ow in ((4, 6, 8, 5), (7, 5, 3, 11), (12, 12, 12, 24)):
        sizes, feeds = {"h": h, "w": w}, {"x": draw(1, 2, h, w)}
        if scale is None:
            sizes |= {"oh": oh, "ow": ow}
            feeds["like"] = draw(1, 2, oh, ow)
        cases.append((sizes, feeds))
    dims = {"h": "2..16", "w": "2..16"} | ({"oh": "2..32", "ow": "2..32"} if scale is None else {})
    check_sizes(model_of(nodes, inputs, ["y"], constants), dims, cases)


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_recurrent_of_unknown_length(op: str, direction: str) -> None:
    gates, directions = {"LSTM": 4, "GRU": 3, "RNN": 1}[op], 2 if direction == "bidirectional" else 1
    constants = {
        "w": draw(directions, gates * 5, 3),
        "r": draw(directions, gates * 5, 5),
        "b": draw(directions, gates * 10),
    }
    outputs = ["y", "yh"] + (["yc"] if op == "LSTM" else [])
    node = helper.make_node(op, ["x", "w", "r", "b", "ends"], outputs, hidden_size=5, direction=direction)
    model = model_of(
        [node], {"x": (np.float32, ["t", "n", 3]), "ends": (np.int32, ["n"])}, outputs, constants
    )
    cases = []
    for t, n in ((1, 1), (9, 3), (30, 2)):
        ends = np.random.default_rng(t).integers(1, t + 1, n).astype(np.int32)
        cases.append(({"t": t, "n": n}, {"x": draw(t, n, 3), "ends": ends}))
    check_sizes(model, {"t": "1..40", "n": "1..4"}, cases)


@pytest.mark.parametrize("scale", [0.5, 0.7, 1.1, 2.2])
def test_a_resized_length_is_rounded_as_f32(scale: float) -> None:
    """40 times the f32 nearest to 0.7 is below 28, and rounds to it."""
    node = helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="linear")
    constants = {"scales": np.array([1, 1, 1, scale], np.float32)}
    model = model_of([node], {"x": (np.float32, [1, 1, 2, "w"])}, ["y"], constants)
    check_sizes(model, {"w": "1..200"}, [({"w": w}, {"x": draw(1, 1, 2, w)}) for w in (10, 40, 70)])


def test_a_length_that_f32_rounds_unevenly_is_refused() -> None:
    """70 times the f32 nearest to 1.3 rounds to 91, 90 times it to less than 117: no fraction gives both."""
    node = helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="linear")
    constants = {"scales": np.array([1, 1, 1, 1.3], np.float32)}
    model = model_of([node], {"x": (np.float32, [1, 1, 2, "w"])}, ["y"], constants)
    with pytest.raises(aicf.UserError, match="rounds unevenly"):
        aicf.compile(model, dims={"w": "1..200"})
    check_sizes(model, {"w": "5..60"}, [({"w": w}, {"x": draw(1, 1, 2, w)}) for w in (5, 60)])


@pytest.mark.parametrize("scale", [0.6, 0.5, 1.5])
def test_nearest_of_opset_10_rounds_up_where_it_shrinks(scale: float) -> None:
    constants = {"scales": np.array([1, 1, scale, 2], np.float32)}
    node = helper.make_node("Resize", ["x", "scales"], ["y"], mode="nearest")
    model = model_of([node], {"x": (np.float32, [1, 1, "h", 3])}, ["y"], constants, opset=10)
    check_sizes(model, {"h": "2..9"}, [({"h": h}, {"x": draw(1, 1, h, 3)}) for h in (2, 4, 5, 9)])


def test_a_cubic_resize_to_one_row_takes_the_first() -> None:
    node = helper.make_node(
        "Resize",
        ["x", "", "scales"],
        ["y"],
        mode="cubic",
        coordinate_transformation_mode="pytorch_half_pixel",
    )
    constants = {"scales": np.array([1, 1, 0.5, 1], np.float32)}
    model = model_of([node], {"x": (np.float32, [1, 1, "h", 3])}, ["y"], constants)
    check_sizes(model, {"h": "2..9"}, [({"h": h}, {"x": draw(1, 1, h, 3)}) for h in (2, 3, 8)])


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_the_only_window_may_hang_over(op: str) -> None:
    node = helper.make_node(op, ["x"], ["y"], kernel_shape=[3, 3], strides=[2, 3], ceil_mode=1)
    model = model_of([node], {"x": (np.float32, [1, 2, "h", "w"])}, ["y"])
    sizes = [(2, 1), (2, 2), (3, 4), (9, 8)]
    check_sizes(
        model, {"h": "2..9", "w": "1..9"}, [({"h": h, "w": w}, {"x": draw(1, 2, h, w)}) for h, w in sizes]
    )


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


def test_a_sequence_too_long_to_unroll() -> None:
    node = helper.make_node("GRU", ["x", "w", "r"], ["y", "yh"], hidden_size=4)
    constants = {"w": draw(1, 12, 2), "r": draw(1, 12, 4)}
    model = model_of([node], {"x": (np.float32, [600, 1, 2])}, ["y", "yh"], constants)
    feeds = {"x": draw(600, 1, 2)}
    exe = aicf.compile(model, threads=1)
    assert "scan" in str(exe.plan)
    for mine, theirs in zip(ours(exe, feeds), peer(model, feeds), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


def test_sizes_as_arithmetic_on_others() -> None:
    """A U-Net joins what it halved and doubled again: that fits for even sizes only."""
    nodes = [
        helper.make_node("MaxPool", ["x"], ["half"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("ConvTranspose", ["half", "w"], ["whole"], strides=[2, 2]),
        helper.make_node("Concat", ["whole", "x"], ["y"], axis=1),
    ]
    model = model_of(nodes, {"x": (np.float32, ["n", 2, "h", "w_"])}, ["y"], {"w": draw(2, 3, 2, 2)})
    exe = aicf.compile(model, dims={"n": 1, "h": "2*a", "w_": "2*b+2", "a": "1..8", "b": "1..8"}, threads=1)
    for h, w in ((2, 4), (8, 6), (16, 18)):
        feeds = {"x": draw(1, 2, h, w)}
        np.testing.assert_allclose(ours(exe, feeds)[0], peer(model, feeds)[0], rtol=1e-4, atol=1e-5)
    with pytest.raises(aicf.UserError):
        exe(x=draw(1, 2, 7, 6))
    with pytest.raises(aicf.UserError) as caught:
        aicf.compile(model, dims={"n": 1, "h": "-3", "w_": 4})
    assert caught.value.name == "bad_option" and caught.value.value == "-3"


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


def test_the_mask_of_an_old_dropout_has_the_type_of_its_input() -> None:
    model = model_of([helper.make_node("Dropout", ["x"], ["y", "mask"])], {"x": X}, ["y", "mask"], opset=7)
    x = draw(2, 4, 6, 7)
    y, mask = ours(aicf.compile(model, threads=1), {"x": x})
    assert mask.dtype == np.float32 and np.array_equal(y, x)


def test_same_padding_of_unknown_sizes() -> None:
    node = helper.make_node("Conv", ["x", "w"], ["y"], auto_pad="SAME_UPPER")
    model = model_of([node], {"x": (np.float32, [1, 2, "h", 9])}, ["y"], {"w": draw(3, 2, 4, 3)})
    check_sizes(model, {"h": "1..20"}, [({"h": h}, {"x": draw(1, 2, h, 9)}) for h in (1, 5, 20)])


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
