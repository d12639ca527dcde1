"""Loop, Scan and If that stay control flow when running, against onnxruntime."""

from __future__ import annotations

from typing import Any

import aicf
import numpy as np
import onnx.parser
import pytest

ort = pytest.importorskip("onnxruntime")

HEADER = '<ir_version: 8, opset_import: ["" : 17]>\n'
W = "float[3] w = {0.5, 0.25, -0.5}"

LOOP_ON_DATA = """
g (float[n, 3] x, float limit, bool go) => (float[n, 3] y)
{
  y = Loop (, go, x) <body = b (int64 i, bool c, float[n, 3] a) => (bool c2, float[n, 3] a2)
  { a2 = Add (a, a)  s = ReduceSum <keepdims = 0> (a2)  c2 = Less (s, limit) }>
}
"""
LONG_LOOP = f"""
g (float[n, 3] x) => (float[n, 3] y, float[k, n, 3] ys) <int64 m = {{300}}, {W}>
{{
  y, ys = Loop (m, , x) <body = b (int64 i, bool c, float[n, 3] a) => (bool c2, float[n, 3] a2, float[n, 3] r)
  {{ c2 = Identity (c)  f = Cast <to = 1> (i)  p = Mul (a, w)  a2 = Add (p, f)  r = Relu (a2) }}>
}}
"""
LOOP_OF_A_SIZE = f"""
g (float[n, 3] x) => (float[n, 3] y, float[n, n, 3] ys) <int64 zero = {{0}}, bool yes = {{1}}, {W}>
{{
  shape = Shape (x)  m = Gather (shape, zero)
  y, ys = Loop (m, yes, x)
  <body = b (int64 i, bool c, float[n, 3] a) => (bool c2, float[n, 3] a2, float[n, 3] r)
  {{ c2 = Identity (c)  p = Mul (a, w)  a2 = Add (p, x)  r = Relu (a2) }}>
}}
"""
LOOP_OF_AN_INPUT = f"""
g (float[n, 3] x, int64 m) => (float[n, 3] y) <bool yes = {{1}}, {W}>
{{
  y = Loop (m, yes, x) <body = b (int64 i, bool c, float[n, 3] a) => (bool c2, float[n, 3] a2)
  {{ c2 = Identity (c)  a2 = Mul (a, w) }}>
}}
"""
LOOP_THAT_COUNTS = """
g (float[n, 3] x) => (float[n, 3] ys, int32 last)
<int64 zero = {0}, int64[1] rows = {0}, int32 first = {0}, int32 one = {1}>
{
  shape = Shape (x)  m = Gather (shape, zero)  size = Cast <to = 6> (m)  begins = Less (first, size)
  last, same, ys = Loop (m, begins, first, size)
  <body = b (int64 t, bool c, int32 i, int32 limit) => (bool c2, int32 i2, int32 limit2, float[3] y)
  {
    limit2 = Identity (limit)  i2 = Add (i, one)  row = Gather (x, i)  y = Add (row, row)
    fi = Cast <to = 1> (i2)  fl = Cast <to = 1> (limit)  short = Less (fi, fl)
    ft = Cast <to = 1> (t)  fn = Cast <to = 1> (size)  begun = Less (ft, fn)  c2 = And (short, begun)
  }>
}
"""
LOOP_IN_LOOP = """
g (float[n, 3] x, float limit) => (float[n, 3] y) <int64 five = {5}, int64 seven = {7}, float half = {0.5}>
{
  y = Loop (seven, , x) <body = outer (int64 i, bool c, float[n, 3] a) => (bool c2, float[n, 3] a2)
  {
    a1 = Loop (five, c, a) <body = inner (int64 j, bool d, float[n, 3] q) => (bool d2, float[n, 3] q2)
    { q2 = Add (q, x)  s = ReduceSum <keepdims = 0> (q2)  d2 = Less (s, limit) }>
    a2 = Mul (a1, half)  t = ReduceMax <keepdims = 0> (a2)  c2 = Less (t, limit)
  }>
}
"""
SCAN = """
g (float[b, n, 4] x, float[b, 4] h0) => (float[b, 4] last, float[b, n, 4] hs, float[b, 4, n] os)
<float[4, 4] w = {1, 0.5, 0, 0.1, -0.5, 0.2, 0.3, 0, 0, 0, 1, 1, -1, 0.4, 0.4, 0.2}>
{
  last, hs, os = Scan <num_scan_inputs = 2, scan_input_axes = [1, 1], scan_input_directions = [0, 1],
    scan_output_axes = [1, 2], scan_output_directions = [0, 1],
    body = cell (float[b, 4] h, float[b, 4] at, float[b, 4] back)
      => (float[b, 4] next, float[b, 4] copy, float[b, 4] o)
    {
      p = MatMul (h, w)  z = Add (p, at)  next = Tanh (z)
      copy = Identity (next)  o = Mul (next, back)
    }> (h0, x, x)
}
"""
IF_WITH_AN_INDEX = """
g (float[n, 3] x, bool c, int64 at) => (float[n] y)
{
  y = If (c) <then_branch = t () => (float[n] r) { r = Gather <axis = 1> (x, at) },
              else_branch = e () => (float[n] r) { r = ReduceMax <axes = [1], keepdims = 0> (x) }>
}
"""


def values(sizes: dict[str, int], name: str, dims: list[Any], seed: int) -> np.ndarray:
    shape = [sizes.get(d, d) if isinstance(d, str) else d for d in dims]
    return np.random.default_rng([seed, len(name)]).standard_normal(shape).astype("f")


def scalar(value: Any, dtype: str) -> np.ndarray:
    return np.array(value, dtype)


CASES = {
    "a condition on data": (LOOP_ON_DATA, {"limit": scalar(9, "f"), "go": scalar(True, "?")}),
    "a condition that is false at once": (LOOP_ON_DATA, {"limit": scalar(9, "f"), "go": scalar(False, "?")}),
    "many iterations": (LONG_LOOP, {}),
    "as many as an axis has": (LOOP_OF_A_SIZE, {}),
    "as many as a counter says": (LOOP_THAT_COUNTS, {}),
    "as many as an input says": (LOOP_OF_AN_INPUT, {"m": scalar(3, "i8")}),
    "a loop in a loop": (LOOP_IN_LOOP, {"limit": scalar(20, "f")}),
    "a scan over a dynamic axis": (SCAN, {}),
    "the branch with a legal index": (IF_WITH_AN_INDEX, {"c": scalar(True, "?"), "at": scalar(2, "i8")}),
    "the branch without the illegal one": (
        IF_WITH_AN_INDEX,
        {"c": scalar(False, "?"), "at": scalar(9, "i8")},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_equals_onnxruntime(case: str) -> None:
    text, given = CASES[case]
    model = onnx.parser.parse_model(HEADER + text)
    onnx.checker.check_model(model)
    exe = aicf.compile(
        model.SerializeToString(), dims={"n": "1..6", **({"b": "1..3"} if text == SCAN else {})}
    )
    session = ort.InferenceSession(model.SerializeToString())
    for seed, n in enumerate((1, 4, 6)):
        sizes = {"n": n, "b": 2}
        inputs = {
            i.name: given[i.name] if i.name in given else values(sizes, i.name, i.shape, seed)
            for i in session.get_inputs()
        }
        ours = exe(**inputs)
        for got, want in zip(
            ours if isinstance(ours, tuple) else (ours,), session.run(None, inputs), strict=True
        ):
            np.testing.assert_allclose(np.asarray(got), want, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("i2 = Add (i, one)", "two = Add (one, one)  i2 = Add (i, two)"),  # ends half-way
        ("begins = Less (first, size)", "begins = Less (size, first)"),  # does not begin
        ("begun = Less (ft, fn)", "s = ReduceSum <keepdims = 0> (y)  begun = Less (s, ft)"),  # as data says
    ],
)
def test_a_counter_that_ends_a_loop_early_does_not_say_its_length(ours: str, theirs: str) -> None:
    text = LOOP_THAT_COUNTS.replace(ours, theirs)
    assert text != LOOP_THAT_COUNTS
    with pytest.raises(aicf.UserError, match="length depends on data"):
        aicf.compile(onnx.parser.parse_model(HEADER + text).SerializeToString(), dims={"n": "1..6"})


def test_per_step_results_of_a_loop_on_data_are_refused() -> None:
    text = LOOP_ON_DATA.replace("=> (float[n, 3] y)", "=> (float[n, 3] y, float[k, n, 3] ys)")
    text = text.replace("  y = Loop", "  y, ys = Loop").replace(
        "float[n, 3] a2)\n", "float[n, 3] a2, float[n, 3] r)\n"
    )
    text = text.replace("c2 = Less", "r = Relu (a2)  c2 = Less")
    with pytest.raises(aicf.UserError, match="length depends on data") as error:
        aicf.compile(onnx.parser.parse_model(HEADER + text).SerializeToString(), dims={"n": 2})
    assert error.value.code == "AICF-U0301"
