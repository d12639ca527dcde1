"""Slice over all its clamping, against the text of the operator, numpy and onnxruntime."""

from __future__ import annotations

import itertools

import aicf
import numpy as np
import pytest
from onnx import helper
from onnx_nodes import Arrays, model_of, ours, peer

FAR = (2**31 - 1, -(2**31), 2**63 - 1, -(2**63), -(2**63) + 1)
ENDS = (*range(-6, 7), *FAR)
STEPS = (1, 2, 3, -1, -2, -3, 2**63 - 1, -(2**63) + 1)


def places(size: int, start: int, end: int, step: int) -> range:
    """The effective start and end, as the operator's text has them."""
    start, end = (n + size if n < 0 else n for n in (start, end))
    last = size if step > 0 else size - 1
    start = min(max(start, 0), last)
    end = max(min(end, last), 0 if step > 0 else -1)
    return range(start, end, step)


def sliced(step: int, size: int | str, cases: list[tuple[int, int]]) -> bytes:
    """y0, y1, … are the slices of x [size] by each (start, end)."""
    nodes, constants = [], {"axes": np.array([0]), "step": np.array([step])}
    for i, (start, end) in enumerate(cases):
        constants |= {f"s{i}": np.array([start]), f"e{i}": np.array([end])}
        nodes.append(helper.make_node("Slice", ["x", f"s{i}", f"e{i}", "axes", "step"], [f"y{i}"]))
    outputs = [f"y{i}" for i in range(len(cases))]
    return model_of(nodes, {"x": (np.float32, [size])}, outputs, constants)


CASES = list(itertools.product(ENDS, ENDS))


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("size", [0, 1, 4])
def test_every_start_and_end(size: int, step: int) -> None:
    x = np.arange(size, dtype=np.float32)
    model = sliced(step, size, CASES)
    for (start, end), y in zip(CASES, ours(aicf.compile(model, threads=1), {"x": x}), strict=True):
        wanted = places(size, start, end, step)
        assert y.tolist() == list(wanted), (start, end)
        # Python finds nothing where it goes down from in front of all elements; ONNX begins at the first.
        if step > 0 or start >= -size:
            assert y.tolist() == x[start:end:step].tolist()


@pytest.mark.parametrize("step", STEPS)
def test_as_onnxruntime(step: int) -> None:
    """Which reads the largest numbers as "all of it" also where it goes down."""
    cases = [(s, e) for s, e in CASES if step > 0 or e not in (2**31 - 1, 2**63 - 1)]
    x = np.arange(4, dtype=np.float32)
    for (start, end), y in zip(cases, peer(sliced(step, 4, cases), {"x": x}, optimised=False), strict=True):
        assert y.tolist() == list(places(4, start, end, step)), (start, end)


@pytest.mark.parametrize("step", [1, 2, -1, -3])
def test_over_a_range_of_sizes(step: int) -> None:
    exe = aicf.compile(sliced(step, "n", CASES), dims={"n": "0..5"}, threads=1)
    for size in range(6):
        x = np.arange(size, dtype=np.float32)
        for (start, end), y in zip(CASES, ours(exe, {"x": x}), strict=True):
            assert y.tolist() == list(places(size, start, end, step)), (size, start, end)


@pytest.mark.parametrize("step", [1, 3, -1, -2])
def test_of_sizes_as_values(step: int) -> None:
    """The slices are of a shape, which never becomes an array."""
    nodes, constants = [helper.make_node("Shape", ["x"], ["s"])], {"axes": np.array([0])}
    constants["step"] = np.array([step])
    for i, (start, end) in enumerate(CASES):
        constants |= {f"s{i}": np.array([start]), f"e{i}": np.array([end])}
        nodes.append(helper.make_node("Slice", ["s", f"s{i}", f"e{i}", "axes", "step"], [f"y{i}"]))
    outputs = {f"y{i}": 7 for i in range(len(CASES))}
    model = model_of(nodes, {"x": (np.float32, [3, "n", 5])}, outputs, constants)
    exe = aicf.compile(model, dims={"n": "1..4"}, threads=1)
    shape = [3, 2, 5]
    for (start, end), y in zip(CASES, ours(exe, {"x": np.zeros(shape, np.float32)}), strict=True):
        assert y.tolist() == [shape[k] for k in places(3, start, end, step)], (start, end)


def test_a_start_that_is_below_0_for_some_sizes() -> None:
    """A size less 3 counts from the end where it is below 0."""
    nodes = [
        helper.make_node("Shape", ["x"], ["n"]),
        helper.make_node("Sub", ["n", "three"], ["start"]),
        helper.make_node("Slice", ["z", "start", "n"], ["tail"]),
        helper.make_node("Slice", ["z", "zero", "start"], ["head"]),
    ]
    constants: Arrays = {"three": np.array([3]), "zero": np.array([0])}
    model = model_of(nodes, {"x": (np.float32, ["n"]), "z": (np.float32, [6])}, ["tail", "head"], constants)
    exe = aicf.compile(model, dims={"n": "1..8"}, threads=1)
    z = np.arange(6, dtype=np.float32)
    for n in range(1, 9):
        tail, head = ours(exe, {"x": np.zeros(n, np.float32), "z": z})
        assert (tail.tolist(), head.tolist()) == (z[n - 3 : n].tolist(), z[: n - 3].tolist()), n
