"""Windows, grids and regions over sizes that only running tells, against onnxruntime."""

from __future__ import annotations

from typing import Any

import aicf
import numpy as np
import pytest
from onnx import helper
from onnx_nodes import check_sizes, draw, model_of, ours, peer

IMAGES: dict[str, Any] = {"x": (np.float32, ["n", 4, "h", "w"])}
RANGES = {"n": "1..3", "h": "1..19", "w": "3..24"}
SIZES = [(1, 1, 3), (2, 9, 12), (3, 19, 24), (1, 4, 7), (2, 10, 3)]


def cases(extra: Any = None) -> list[Any]:
    return [
        ({"n": n, "h": h, "w": w}, {"x": draw(n, 4, h, w), **(extra(n) if extra else {})})
        for n, h, w in SIZES
    ]


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("strides", [[2, 2], [1, 3]])
@pytest.mark.parametrize(
    ("op", "kernel", "attributes"),
    [
        ("Conv", [3, 3], {}),
        ("Conv", [2, 5], {"group": 2}),
        ("Conv", [1, 1], {}),
        ("MaxPool", [3, 3], {}),
        ("AveragePool", [3, 4], {}),
        ("LpPool", [3, 3], {"p": 2}),
        ("AveragePool", [2, 4], {"count_include_pad": 1}),
    ],
)
def test_same_padding_with_strides(
    mode: str, strides: list[int], op: str, kernel: list[int], attributes: dict[str, Any]
) -> None:
    conv = op == "Conv"
    constants = {"w": draw(6, 4 // attributes.get("group", 1), *kernel), "b": draw(6)} if conv else {}
    node = helper.make_node(
        op, ["x", *constants], ["y"], auto_pad=mode, strides=strides, kernel_shape=kernel, **attributes
    )
    check_sizes(model_of([node], IMAGES, ["y"], constants), RANGES, cases())


def test_blocks_of_same_padding_join() -> None:
    """A residual block as TensorFlow's converters write it: both branches halve the image."""
    constants = {"a": draw(4, 4, 3, 3), "c": draw(4, 4, 1, 1)}
    same = {"auto_pad": "SAME_UPPER", "strides": [2, 2]}
    nodes = [
        helper.make_node("Conv", ["x", "a"], ["p"], **same),
        helper.make_node("Conv", ["x", "c"], ["q"], **same),
        helper.make_node("Add", ["p", "q"], ["s"]),
        helper.make_node("MaxPool", ["s"], ["m"], kernel_shape=[3, 3], **same),
        helper.make_node("Conv", ["m", "a"], ["y"], **same),
    ]
    check_sizes(model_of(nodes, IMAGES, ["y"], constants), RANGES, cases())


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
def test_a_transposed_convolution_with_same_padding(mode: str) -> None:
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], auto_pad=mode, strides=[2, 3])
    model = model_of([node], IMAGES, ["y"], {"w": draw(4, 2, 3, 4)})
    exe = aicf.compile(model, dims=RANGES, threads=1)
    for _, feeds in cases():
        # onnxruntime needs the sizes of the result to be a multiple of the strides spelt out.
        (mine,) = ours(exe, feeds)
        n, _, h, w = feeds["x"].shape
        assert mine.shape == (n, 2, 2 * h, 3 * w)
        fixed = helper.make_node(
            "ConvTranspose", ["x", "w"], ["y"], auto_pad=mode, strides=[2, 3], output_shape=[2 * h, 3 * w]
        )
        (theirs,) = peer(model_of([fixed], IMAGES, ["y"], {"w": draw(4, 2, 3, 4)}), feeds)
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", ["NOTSET", "SAME_LOWER", "SAME_UPPER"])
def test_a_transposed_convolution_longer_than_its_windows_reach(mode: str) -> None:
    def model(height: int) -> Any:
        node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], auto_pad=mode, output_shape=[height, 6])
        return model_of([node], {"x": (np.float32, [1, 4, 5, 5])}, ["y"], {"w": draw(4, 2, 3, 3)})

    feeds = {"x": draw(1, 4, 5, 5)}
    for height in (6, 7):  # the windows reach 7 rows
        (mine,) = ours(aicf.compile(model(height), threads=1), feeds)
        (theirs,) = peer(model(height), feeds)
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)
    if mode != "SAME_UPPER":  # one more lies behind the result
        (mine,) = ours(aicf.compile(model(8), threads=1), feeds)
        np.testing.assert_array_equal(mine[:, :, 7], 0)
        np.testing.assert_array_equal(mine[:, :, :7], ours(aicf.compile(model(7), threads=1), feeds)[0])
    with pytest.raises(aicf.UserError, match="beyond the 7 elements that the windows reach"):
        aicf.compile(model(8 if mode == "SAME_UPPER" else 9), threads=1)


@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_a_grid_over_an_image_of_any_size(mode: str, padding: str, align: int) -> None:
    inputs = {**IMAGES, "grid": (np.float32, ["n", 3, 5, 2])}
    node = helper.make_node(
        "GridSample", ["x", "grid"], ["y"], mode=mode, padding_mode=padding, align_corners=align
    )
    model = model_of([node], inputs, ["y"], opset=17)
    check_sizes(model, RANGES, cases(lambda n: {"grid": draw(n, 3, 5, 2)}))


@pytest.mark.parametrize("opset", [10, 16])
@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("samples", [1, 2, 3])
def test_regions(opset: int, mode: str, samples: int) -> None:
    inputs = {**IMAGES, "rois": (np.float32, ["r", 4]), "batch": (np.int64, ["r"])}
    node = helper.make_node(
        "RoiAlign",
        ["x", "rois", "batch"],
        ["y"],
        mode=mode,
        output_height=2,
        output_width=3,
        sampling_ratio=samples,
        spatial_scale=0.5,
    )
    model = model_of([node], inputs, ["y"], opset=opset)
    runs = []
    for (sizes, feeds), count in zip(cases(), (1, 4, 2, 3, 4), strict=True):
        low = np.abs(draw(count, 2)) * 9 - 2
        rois = np.concatenate([low, low + np.abs(draw(count, 2)) * 20], axis=1)
        batch = np.arange(count) % sizes["n"]
        runs.append((sizes | {"r": count}, feeds | {"rois": rois, "batch": batch}))
    check_sizes(model, RANGES | {"r": "1..4"}, runs)


def test_regions_sampled_by_their_size_are_refused() -> None:
    inputs = {"x": (np.float32, [1, 4, 8, 8]), "rois": (np.float32, [2, 4]), "batch": (np.int64, [2])}
    node = helper.make_node("RoiAlign", ["x", "rois", "batch"], ["y"])
    with pytest.raises(aicf.UserError, match="sampling_ratio=0") as caught:
        aicf.compile(model_of([node], inputs, ["y"], opset=16))
    assert caught.value.name == "unsupported_op"


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize(
    ("op", "dtype", "attributes"),
    [
        ("MaxPool", np.float64, {}),
        ("MaxPool", np.uint8, {}),
        ("AveragePool", np.float32, {}),
        ("AveragePool", np.float32, {"count_include_pad": 1}),
        ("LpPool", np.float32, {}),
        ("LpPool", np.float32, {"p": 1}),
    ],
)
def test_same_padding_cuts_what_no_window_reaches(
    op: str, dtype: Any, attributes: dict[str, Any], mode: str
) -> None:
    """Strides of the kernel and more: the pads that the text gives are below 0. onnxruntime does not do that
    for f32 in MaxPool."""
    for kernel, stride in ((1, 3), (1, 4), (2, 5), (2, 7), (3, 5), (1, 6), (3, 2)):
        node = helper.make_node(
            op, ["x"], ["y"], kernel_shape=[kernel], strides=[stride], auto_pad=mode, **attributes
        )
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        model = model_of([node], {"x": (dtype, [1, 2, "n"])}, {"y": kind})
        exe = aicf.compile(model, dims={"n": "1..20"}, threads=1)
        for n in range(1, 21):
            feeds = {"x": (draw(1, 2, n) * 9 + 50).astype(dtype)}
            (theirs,) = peer(model, feeds)
            for mine in (ours(exe, feeds)[0], ours(aicf.compile(model, dims={"n": n}, threads=1), feeds)[0]):
                np.testing.assert_allclose(mine, theirs, rtol=1e-5, err_msg=f"{kernel} {stride} {n}")


def test_indices_into_what_same_padding_cuts_are_refused() -> None:
    node = helper.make_node(
        "MaxPool", ["x"], ["y", "i"], kernel_shape=[1], strides=[4], auto_pad="SAME_UPPER"
    )
    model = model_of([node], {"x": (np.float32, [1, 1, 8])}, {"y": 1, "i": 7})
    with pytest.raises(aicf.UserError, match="auto_pad=SAME that cuts"):
        aicf.compile(model)
