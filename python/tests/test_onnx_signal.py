"""Spectra, determinants and moved taps over sizes that only running tells, against onnxruntime."""

from __future__ import annotations

from typing import Any

import aicf
import numpy as np
import pytest
from onnx import helper
from onnx_nodes import check_sizes, draw, model_of, ours, peer

F32 = np.float32


@pytest.mark.parametrize("window", [False, True])
@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize(("length", "step"), [(8, 4), (9, 5), (1, 1)])
def test_spectra_of_frames(window: bool, onesided: int, parts: int, length: int, step: int) -> None:
    constants: dict[str, Any] = {"step": np.array(step, np.int64), "length": np.array(length, np.int64)}
    if window:
        constants["w"] = np.abs(draw(length))
    names = ["x", "step", "w" if window else "", "length"]
    node = helper.make_node("STFT", names, ["y"], onesided=onesided)
    model = model_of([node], {"x": (F32, ["n", "t", parts])}, ["y"], constants)
    if parts == 2 and onesided:
        with pytest.raises(aicf.Error, match="onesided"):
            aicf.compile(model, dims={"n": 1, "t": 20})
        return
    check_sizes(
        model,
        {"n": "1..2", "t": "9..40"},
        [({"n": n, "t": t}, {"x": draw(n, t, parts)}) for n, t in ((1, 9), (2, 23), (1, 40))],
    )


def test_a_signal_shorter_than_a_frame_is_refused() -> None:
    constants = {"step": np.array(4, np.int64), "length": np.array(8, np.int64)}
    node = helper.make_node("STFT", ["x", "step", "", "length"], ["y"])
    model = model_of([node], {"x": (F32, [1, "t", 1])}, ["y"], constants)
    with pytest.raises(aicf.Error, match="does not fit every size"):
        aicf.compile(model, dims={"t": "7..40"})


@pytest.mark.parametrize("sizes", [[1, 20], [1, 20, 1, 1]])
def test_a_signal_has_three_axes(sizes: list[int]) -> None:
    constants = {"step": np.array(4, np.int64), "length": np.array(8, np.int64)}
    node = helper.make_node("STFT", ["x", "step", "", "length"], ["y"])
    with pytest.raises(aicf.UserError, match="the rank of input 0") as caught:
        aicf.compile(model_of([node], {"x": (F32, sizes)}, ["y"], constants))
    assert caught.value.op == "STFT"


@pytest.mark.parametrize(("length", "told"), [(1 << 13, "1 or 2 parts"), ((1 << 13) + 1, "of length 8193")])
def test_the_longest_frame(length: int, told: str) -> None:
    """Of a signal that is refused for another reason, so that no matrix of it is made."""
    constants = {"step": np.array(4, np.int64), "length": np.array(length, np.int64)}
    node = helper.make_node("STFT", ["x", "step", "", "length"], ["y"])
    with pytest.raises(aicf.UserError, match=told):
        aicf.compile(model_of([node], {"x": (F32, [1, 20, 3])}, ["y"], constants))


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("length", [5, 4, 8])
def test_signals_from_a_whole_spectrum(parts: int, length: int) -> None:
    constants = {"length": np.array(length, np.int64), "axis": np.array(1, np.int64)}
    node = helper.make_node("DFT", ["x", "length", "axis"], ["y"], inverse=1)
    x = draw(2, 5, parts)
    model = model_of([node], {"x": (F32, x.shape)}, ["y"], constants, opset=20)
    (mine,) = ours(aicf.compile(model), {"x": x})
    wanted = np.fft.ifft(x[..., 0] + (1j * x[..., 1] if parts == 2 else 0), length, axis=1)
    np.testing.assert_allclose(mine[..., 0] + 1j * mine[..., 1], wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("length", [None, 6, 7, 12, 1])
def test_real_signals_from_half_a_spectrum(length: int | None) -> None:
    constants = {} if length is None else {"length": np.array(length, np.int64)}
    node = helper.make_node("DFT", ["x", *constants], ["y"], inverse=1, onesided=1)
    model = model_of([node], {"x": (F32, [2, 5, 2])}, ["y"], constants, opset=20)
    x = draw(2, 5, 2)
    mine = np.asarray(aicf.compile(model)(x))
    spectrum = x[..., 0] + 1j * x[..., 1]
    np.testing.assert_allclose(mine[..., 0], np.fft.irfft(spectrum, length, axis=1), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 17])
def test_determinants(rows: int) -> None:
    model = model_of([helper.make_node("Det", ["x"], ["y"])], {"x": (F32, ["n", 3, rows, rows])}, ["y"])
    exe = aicf.compile(model, dims={"n": "1..4"})
    for n in (1, 4):
        x = draw(n, 3, rows, rows)
        x[0, 0, 0, 0] = 0  # needs another pivot
        x[0, 1] = 0
        x[0, 2, -1] = x[0, 2, 0] if rows > 1 else 0
        mine, wanted = np.asarray(exe(x)), np.linalg.det(x.astype(np.float64))
        limit = 1e-6 * max(1.0, float(np.abs(wanted).max()))
        np.testing.assert_allclose(mine, wanted, rtol=2e-3, atol=limit)
        np.testing.assert_allclose(mine, peer(model, {"x": x})[0], rtol=2e-3, atol=limit)


def test_determinants_of_other_shapes_are_refused() -> None:
    for shape in ([3, 4], [3], [65, 65]):
        model = model_of([helper.make_node("Det", ["x"], ["y"])], {"x": (F32, shape)}, ["y"])
        with pytest.raises(aicf.Error, match="Det"):
            aicf.compile(model)


@pytest.mark.parametrize(
    ("mels", "length", "rate", "low", "high"), [(8, 256, 16000, 0, 8000), (3, 33, 8000, 20, 3900)]
)
def test_mel_weights(mels: int, length: int, rate: int, low: float, high: float) -> None:
    constants = {
        "m": np.array(mels, np.int64),
        "l": np.array(length, np.int64),
        "r": np.array(rate, np.int64),
        "a": np.array(low, F32),
        "b": np.array(high, F32),
    }
    node = helper.make_node("MelWeightMatrix", list(constants), ["y"])
    model = model_of([node], {}, ["y"], constants)
    np.testing.assert_allclose(np.asarray(aicf.compile(model)()), peer(model, {})[0], rtol=1e-5, atol=1e-6)
    constants["b"] = np.array(rate, F32)
    with pytest.raises(aicf.Error, match="upper_edge_hertz"):
        aicf.compile(model_of([node], {}, ["y"], constants))


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"strides": [2, 1], "pads": [1, 0, 2, 1]},
        {"dilations": [1, 2], "group": 2, "offset_group": 2, "pads": [1, 1, 1, 1]},
        {"group": 4, "offset_group": 4},
    ],
)
@pytest.mark.parametrize("extra", ["", "bias", "mask"])
def test_convolutions_with_moved_taps(attributes: dict[str, Any], extra: str) -> None:
    kernel = (3, 2)
    group, owners = attributes.get("group", 1), attributes.get("offset_group", 1)
    strides, dilations = attributes.get("strides", [1, 1]), attributes.get("dilations", [1, 1])
    pads = attributes.get("pads", [0, 0, 0, 0])

    def places(axis: int, size: int) -> int:
        room = size + pads[axis] + pads[2 + axis] - (kernel[axis] - 1) * dilations[axis] - 1
        return room // strides[axis] + 1

    def feeds(n: int, h: int, w: int) -> dict[str, np.ndarray]:
        oh, ow = places(0, h), places(1, w)
        given = {"x": draw(n, 4, h, w), "o": draw(n, owners * 12, oh, ow) * 2}
        return given | ({"m": np.abs(draw(n, owners * 6, oh, ow))} if extra == "mask" else {})

    inputs: dict[str, Any] = {
        "x": (F32, ["n", 4, "h", "w"]),
        "o": (F32, ["n", owners * 12, "oh", "ow"]),
    }
    if extra == "mask":
        inputs["m"] = (F32, ["n", owners * 6, "oh", "ow"])
    constants = {"f": draw(8, 4 // group, *kernel)} | ({"b": draw(8)} if extra else {})
    names = ["x", "f", "o", *(["b"] if extra else []), *(["m"] if extra == "mask" else [])]
    node = helper.make_node("DeformConv", names, ["y"], **attributes)
    model = model_of([node], inputs, ["y"], constants)
    for n, h, w in ((1, 6, 7), (2, 9, 5)):
        sizes = {"n": n, "h": h, "w": w, "oh": places(0, h), "ow": places(1, w)}
        check_sizes(model, sizes, [(sizes, feeds(n, h, w))])
    if not attributes:
        ranges = {"n": "1..3", "h": "3..9", "w": "2..8", "oh": "h-2", "ow": "w-1"}
        cases = [
            ({"n": n, "h": h, "w": w, "oh": h - 2, "ow": w - 1}, feeds(n, h, w))
            for n, h, w in ((1, 3, 2), (3, 9, 8))
        ]
        check_sizes(model, ranges, cases)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"group": 3}, "channels"),
        ({"offset_group": 2}, "reshape"),
        ({"strides": [0, 1]}, "strides"),
        ({"kernel_shape": [3, 3]}, "kernel_shape"),
    ],
)
def test_moved_taps_that_do_not_fit_are_named(change: dict[str, Any], text: str) -> None:
    inputs: dict[str, Any] = {"x": (F32, [1, 4, 6, 6]), "o": (F32, [1, 12, 4, 5])}
    node = helper.make_node("DeformConv", ["x", "f", "o"], ["y"], **change)
    with pytest.raises(aicf.Error, match=text):
        aicf.compile(model_of([node], inputs, ["y"], {"f": draw(8, 4, 3, 2)}))


def test_taps_beyond_number_are_refused() -> None:
    size = 1 << 16  # positions of its taps would fill 16 GiB
    shapes = {"x": [1, 1, size, size], "f": [1, 1, size, size], "o": [1, 2 * size * size, 1, 1]}
    node = helper.make_node("DeformConv", list(shapes), ["y"])
    model = model_of([node], {name: (F32, shape) for name, shape in shapes.items()}, ["y"])
    with pytest.raises(aicf.UserError, match="a generated constant of size"):
        aicf.compile(model)


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool", "Conv", "ConvTranspose"])
def test_a_window_must_fit_into_every_size(op: str) -> None:
    """Where it does not, the result would have no places, or fewer than none."""
    kernel: dict[str, Any] = {} if op.startswith("Conv") else {"kernel_shape": [4]}
    constants = {"f": draw(2, 2, 4)} if op.startswith("Conv") else {}
    transposed = op == "ConvTranspose"
    node = helper.make_node(op, ["x", *constants], ["y"], pads=[2, 3] if transposed else [0, 1], **kernel)
    model = model_of([node], {"x": (F32, [1, 2, "w"])}, ["y"], constants)
    check_sizes(model, {"w": "3..9"}, [({"w": w}, {"x": draw(1, 2, w)}) for w in (3, 9)])
    with pytest.raises(aicf.Error, match="does not fit every size") as caught:
        aicf.compile(model, dims={"w": "1..9"})
    assert "w=1" in str(caught.value)
    assert ("0 <= w-2" if transposed else "4 <= w+1") in str(caught.value)
