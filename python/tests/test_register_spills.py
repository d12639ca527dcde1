"""Convolutions on Hopper's matrix units whose epilogues read several tensors keep all they hold in registers:
a thread that puts some into memory takes up to four times as long."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path

import aicf
import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

FRAME_SIZE = 0x11  # EIATTR_FRAME_SIZE of .nv.info: a function's symbol, bytes of local memory of a thread
HAS_SIZE = 0x04  # the form of an attribute whose value has a size of its own


def sections(cubin: bytes) -> Iterator[tuple[str, bytes, int]]:
    """Name, contents and linked section of each section of a 64-bit ELF file."""
    (start,) = struct.unpack_from("<Q", cubin, 40)
    size, count, names_at = struct.unpack_from("<HHH", cubin, 58)
    rows = [struct.unpack_from("<IIQQQQIIQQ", cubin, start + i * size) for i in range(count)]
    names = cubin[rows[names_at][4] :]
    for row in rows:
        yield names[row[0] : names.index(b"\0", row[0])].decode(), cubin[row[4] : row[4] + row[5]], row[6]


def frame_sizes(cubin: bytes) -> dict[str, int]:
    found = {name: (contents, link) for name, contents, link in sections(cubin)}
    symbols, link = found[".symtab"]
    strings = list(sections(cubin))[link][1]
    info, sizes, at = found[".nv.info"][0], {}, 0
    while at + 4 <= len(info):
        form, attribute, length = struct.unpack_from("<BBH", info, at)
        if form == HAS_SIZE and attribute == FRAME_SIZE:
            symbol, frame = struct.unpack_from("<II", info, at + 4)
            (name,) = struct.unpack_from("<I", symbols, symbol * 24)
            sizes[strings[name : strings.index(b"\0", name)].decode()] = frame
        at += 4 + (length if form == HAS_SIZE else 0)
    return sizes


def kernels(path: Path) -> dict[str, int]:
    """Bytes of local memory by kernel, of a file's code for sm_90."""
    raw = path.read_bytes()
    (length,) = struct.unpack_from("<Q", raw)
    sizes: dict[str, int] = {}
    for name, row in json.loads(raw[8 : 8 + length]).items():
        if name.startswith("aicf.code.sm_90"):
            first, end = row["data_offsets"]
            sizes |= frame_sizes(raw[8 + length + first : 8 + length + end])
    return sizes


def blocks(channels: int, side: int, dtype: type[np.floating]) -> ModelProto:
    """Convolutions with batch norm and one residual, two, and one with a norm of the result beside it."""
    rng, values = np.random.default_rng(7), []

    def weight(name: str, *sizes: int) -> str:
        values.append(numpy_helper.from_array((0.5 + rng.random(sizes)).astype(dtype), name))
        return name

    nodes = [helper.make_node("Conv", ["x", weight("w0", channels, channels, 1, 1)], ["h0"])]

    def node(op: str, inputs: list[str], output: str, **attributes: list[int]) -> str:
        nodes.append(helper.make_node(op, inputs, [output], **attributes))
        return output

    def norm(x: str, name: str) -> str:
        return node("BatchNormalization", [x, *(weight(name + k, channels) for k in "sbmv")], name)

    def conv(x: str, name: str) -> str:
        taps = weight(name + "w", channels, channels, 3, 3)
        return norm(node("Conv", [x, taps], name + "c", pads=[1] * 4), name)

    one = node("Relu", [node("Add", [conv("h0", "a"), "h0"], "a1")], "h1")
    two = node("Relu", [node("Add", [node("Add", [conv(one, "b"), "h0"], "b1"), one], "b2")], "h2")
    both = node("Relu", [node("Add", [conv(two, "c"), one], "c1")], "h3")
    node("Conv", [both, weight("w1", channels, channels, 3, 3)], "h4", pads=[1] * 4)
    node("GlobalAveragePool", [node("Add", ["h4", norm(both, "d")], "h5")], "y")
    element = TensorProto.FLOAT16 if dtype == np.float16 else TensorProto.FLOAT
    x = helper.make_tensor_value_info("x", element, [32, channels, side, side])
    y = helper.make_tensor_value_info("y", element, [32, channels, 1, 1])
    graph = helper.make_graph(nodes, "blocks", [x], [y], values)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.usefixtures("nvrtc")
@pytest.mark.parametrize(
    ("dtype", "channels", "side"), [(np.float16, 64, 56), (np.float16, 256, 28), (np.float32, 64, 56)]
)
def test_epilogues_that_read_several_tensors_find_registers(
    tmp_path: Path, dtype: type[np.floating], channels: int, side: int
) -> None:
    precision = "tf32" if dtype == np.float32 else "f32"
    model = blocks(channels, side, dtype).SerializeToString()
    path = tmp_path / "blocks.aicf"
    aicf.compile(model, precision=precision, options={"target": "cpu,sm_90"}).save(path)
    spilled = {name: size for name, size in kernels(path).items() if name.startswith("conv_")}
    assert len(spilled) >= 3
    assert set(spilled.values()) == {0}, spilled
