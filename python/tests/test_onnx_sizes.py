"""ONNX nodes over ranges of sizes, against onnxruntime.

Every size of a range gives the bits of the model compiled at exactly that size.
"""

from __future__ import annotations

from typing import Any

import aicf
import numpy as np
import pytest
from onnx import helper
from onnx_nodes import Arrays, check_sizes, draw, model_of, ours, peer


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


@pytest.mark.parametrize("rounding", ["round_prefer_ceil", "round_prefer_floor"])
def test_halves_between_two_elements_are_halves(rounding: str) -> None:
    """Element 1 of 2 lies at 3.5 of 7: the scale in f32 would put it below. At a size and over a range."""
    node = helper.make_node(
        "Resize",
        ["x", "", "", "sizes"],
        ["y"],
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode=rounding,
    )
    for out, widths in ((2, (3, 5, 7, 9, 11)), (4, (7, 10, 13))):
        constants = {"sizes": np.array([1, 1, 1, out], np.int64)}
        model = model_of([node], {"x": (np.float32, [1, 1, 1, "w"])}, ["y"], constants)
        for w in widths:
            feeds = {"x": draw(1, 1, 1, w)}
            (theirs,) = peer(model, feeds)
            for dims in ({"w": w}, {"w": "2..16"}):
                (mine,) = ours(aicf.compile(model, dims=dims, threads=1), feeds)
                np.testing.assert_array_equal(mine, theirs, err_msg=f"{w} to {out}, {dims}")


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


def test_same_padding_of_unknown_sizes() -> None:
    node = helper.make_node("Conv", ["x", "w"], ["y"], auto_pad="SAME_UPPER")
    model = model_of([node], {"x": (np.float32, [1, 2, "h", 9])}, ["y"], {"w": draw(3, 2, 4, 3)})
    check_sizes(model, {"h": "1..20"}, [({"h": h}, {"x": draw(1, 2, h, 9)}) for h in (1, 5, 20)])


@pytest.mark.parametrize("op", ["ScatterElements", "GatherElements"])
def test_indices_that_address_one_row(op: str) -> None:
    """Indices [1, 1] fit every x [n, 4] with a row; that of several sizes must fit each of them."""
    nodes = [helper.make_node(op, ["x", "i", *(["u"] if op[0] == "S" else [])], ["y"], axis=1)]
    inputs: dict[str, Any] = {"x": (np.float32, ["n", 4]), "i": (np.int64, ["k", 1])}
    if op[0] == "S":
        inputs["u"] = (np.float32, ["k", 1])
    model = model_of(nodes, inputs, ["y"])

    def feeds(n: int, k: int) -> Arrays:
        made = {"x": draw(n, 4), "i": np.full((k, 1), 2), "u": draw(k, 1)}
        return {name: made[name] for name in inputs}

    check_sizes(model, {"n": "1..8", "k": "1"}, [({"n": n, "k": 1}, feeds(n, 1)) for n in (1, 3, 8)])
    check_sizes(model, {"n": "4..8", "k": "1..4"}, [({"n": 4, "k": k}, feeds(4, k)) for k in (1, 4)])
    for dims in ({"n": "0..8", "k": 1}, {"n": "1..8", "k": "1..4"}):
        with pytest.raises(aicf.UserError, match="does not fit every size"):
            aicf.compile(model, dims=dims)


def test_groups_divide_every_size_of_the_channels() -> None:
    nodes = [helper.make_node("GroupNormalization", ["x", "c", "c"], ["y"], num_groups=3)]
    model = model_of(nodes, {"x": (np.float32, [1, "n", "n"]), "c": (np.float32, ["n"])}, ["y"])
    with pytest.raises(aicf.UserError, match="does not fit every size"):
        aicf.compile(model, dims={"n": "2..4"})
    aicf.compile(model, dims={"n": 3})
