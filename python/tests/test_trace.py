"""Tracing: SymTensors behave as numpy arrays do, and what needs elements is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import aicf
import numpy as np
import pytest
from aicf import TensorSpec, ops

A = np.random.default_rng(3).standard_normal((3, 4, 6)).astype("f")
I = np.arange(-6, 6, dtype=np.int64).reshape(3, 4)  # noqa: E741

FLOAT_CASES: dict[str, Callable[[Any], Any]] = {
    "scalars on both sides": lambda x: 1 - x * 2.5 + x / 3,
    "array on the left": lambda x: np.arange(6, dtype="f") * x,
    "negative slice": lambda x: x[:, 1:-1, ::-1],
    "steps": lambda x: x[::2, 3:0:-2],
    "new axes and ints": lambda x: x[-1, None, ..., 2],
    "empty slice": lambda x: x[:, 2:2],
    "index array": lambda x: x[:, np.array([2, 0, -1])],
    "reshape": lambda x: x.reshape(-1, 12),
    "transpose": lambda x: x.transpose(2, 0, 1),
    "reductions": lambda x: x.max(1) + x.min(1) - x.sum(axis=1) * x.mean(1),
    "keepdims": lambda x: x - x.mean((0, 2), keepdims=True),
    "all axes": lambda x: x.sum(),
    "variance": lambda x: x.var(1) + x.std(),
    "how many": lambda x: (x > 0).sum(1) + x.astype("int8").sum() * (x > 1).prod(),
    "any and all": lambda x: (x > 1).any(1) & (x < 2).all(1),
    "matmul": lambda x: x @ x.transpose(0, 2, 1),
    "matmul by a vector": lambda x: x @ np.ones(6, "f"),
    "floor division": lambda x: x // 0.5 + x % 0.5,
    "argmax": lambda x: x.argmax(2),
    "numbers of numpy": lambda x: x.sum(np.int64(1)).reshape(np.int64(-1), 2)[np.int64(1) : np.int64(-1)],
    "no sign changed": lambda x: +x,
    "comparison": lambda x: (x > 0) & (x < 1),
}


@pytest.mark.parametrize("name", FLOAT_CASES)
def test_as_numpy(name: str) -> None:
    fn = FLOAT_CASES[name]
    exe = aicf.compile(fn, A, threads=1)
    got, expected = np.asarray(exe(A)), fn(A)
    assert got.shape == np.shape(expected)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_integers_as_numpy() -> None:
    fn = lambda x: (x // 4 + x % 4, (x & 3) | 8, ~x, x << 1, abs(x))  # noqa: E731
    exe = aicf.compile(aicf.trace(fn, [TensorSpec(I.shape, "int64")]), threads=1)
    for got, expected in zip(exe(I), fn(I), strict=True):
        assert np.array_equal(got, expected)


@pytest.mark.parametrize("dtype", ["i1", "i2", "i4", "i8", "u1", "f2", "f4", "f8"])
def test_division_at_the_limits_as_numpy(dtype: str) -> None:
    if dtype[0] == "f":
        ends = np.finfo(dtype)
        values = np.array(
            [np.nan, np.inf, -np.inf, 0, 1, -1, 0.5, -2.5, 0.1, 7.3, ends.max, ends.tiny], dtype
        )
    else:
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        values = np.array([low, low + 1, 0, 1, 3, 7, high - 1, high] + [-7, -1] * (low < 0), dtype)
    x, y = (side.ravel() for side in np.meshgrid(values, values))
    if dtype[0] != "f":
        x, y = x[y != 0], y[y != 0]
    with np.errstate(all="ignore"):
        expected = x // y
    np.testing.assert_array_equal(np.asarray(aicf.compile(lambda x, y: x // y, [x, y])(x, y)), expected)


def test_numbers_are_shifted_by_arrays() -> None:
    x = np.arange(4)
    for got, expected in zip(
        aicf.compile(lambda x: (2 << x, 200 >> x), x)(x), (2 << x, 200 >> x), strict=True
    ):
        np.testing.assert_array_equal(got, expected)


def test_symbolic_sizes() -> None:
    def fn(x: Any) -> Any:
        return {"mean": x.sum(0) / x.shape[0], "tail": [x[-1], x[1:], x.reshape(-1)]}

    program = aicf.trace(fn, [TensorSpec(("n", 5))], dims={"n": (2, 7)})
    exe = aicf.compile(program, threads=1)
    x = np.random.default_rng(0).standard_normal((4, 5)).astype("f")
    got = exe(x)
    assert isinstance(got["tail"], list)
    np.testing.assert_allclose(got["mean"], x.mean(0), rtol=1e-5, atol=1e-6)
    for a, b in zip(got["tail"], [x[-1], x[1:], x.reshape(-1)], strict=True):
        assert np.array_equal(a, b)


def test_a_list_of_sizes_is_compiled_as_buckets() -> None:
    fn = lambda x: ops.softmax(x, axis=0) * x.shape[0]  # noqa: E731
    traced = [aicf.trace(fn, [TensorSpec(("n", 5))], dims={"n": sizes}) for sizes in ("1..7", "1,3,7")]
    assert "size n in 1..7 buckets [1, 3, 7]" in str(traced[1])
    whole, parts = (aicf.compile(program, threads=1) for program in traced)
    for n in range(1, 8):
        x = np.random.default_rng(n).standard_normal((n, 5)).astype("f")
        assert np.array_equal(whole(x), parts(x))
    fixed = aicf.compile(traced[1], dims={"n": (2, 4)}, threads=1)
    assert np.array_equal(fixed(x[:4]), whole(x[:4]))


def test_two_traces_print_the_same_text() -> None:
    module = aicf.nn.Sequential(aicf.nn.Linear(4, 8), aicf.nn.GELU(), aicf.nn.LayerNorm(8))
    texts = {str(aicf.trace(module, [TensorSpec(("n", 4))], dims={"n": "1..4"})) for _ in range(3)}
    assert len(texts) == 1
    assert '"0.W"' in texts.pop()


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: np.sin(x),
        lambda x: np.asarray(x),
        lambda x: x if x else -x,
        lambda x: list(x),
        lambda x: len(x),
        lambda x: float(x),
        lambda x: x + object(),
        lambda x: [1, 2, 3][x],
    ],
)
def test_elements_are_refused(fn: Callable[[Any], Any]) -> None:
    with pytest.raises(aicf.UserError) as caught:
        aicf.trace(fn, [TensorSpec(("n",))], dims={"n": "1..3"})
    assert caught.value.name == "array_in_trace" and caught.value.code == "AICF-U0108"


@pytest.mark.parametrize(
    ("name", "fn"),
    [
        ("bad_dtype", lambda x: x.astype("i64") + 1.5),
        ("bad_dtype", lambda x: x + np.ones(3)),
        ("bad_shape", lambda x: x @ np.ones((4, 2), "f")),
        ("bad_attribute", lambda x: ops.softmax(x, axis="last")),  # type: ignore[arg-type]
        ("bad_option", lambda x: x[True]),
        ("bad_attribute", lambda x: x[:1].squeeze(2)),
        ("bad_attribute", lambda x: x.expand_dims(4)),
        ("bad_attribute", lambda x: x.swapaxes(0, 2)),
        ("bad_attribute", lambda x: x.transpose(-3, 0)),
        ("bad_attribute", lambda x: x.sum(1.0)),
        ("bad_dtype", lambda x: x.astype("u8") + 300),
        ("bad_dtype", lambda x: x.astype("i32") * 2**40),
        ("bad_dtype", lambda x: x.astype("i64") - 2**70),
    ],
)
def test_mistakes(name: str, fn: Callable[[Any], Any]) -> None:
    with pytest.raises(aicf.UserError) as caught:
        aicf.trace(fn, [TensorSpec((2, 3))])
    assert caught.value.name == name


def test_every_size_of_a_range_must_fit() -> None:
    with pytest.raises(aicf.UserError) as caught:
        aicf.compile(lambda x: x[4] * 2, TensorSpec(("n",)), dims={"n": "1..10"})
    assert (caught.value.name, caught.value.value, caught.value.expected) == ("bad_shape", "n=1", "5 <= n")
    exe = aicf.compile(lambda x: x[4] * 2, TensorSpec(("n",)), dims={"n": "5..10"})
    assert float(np.asarray(exe(np.arange(6, dtype="f")))) == 8


def test_sizes_need_ranges_and_names() -> None:
    for dims, name in (({}, "unset_size"), ({"n": "1..3", "m": 2}, "bad_option")):
        with pytest.raises(aicf.UserError) as caught:
            aicf.trace(lambda x: x * 2, [TensorSpec(("n",))], dims=dims)
        assert caught.value.name == name


def test_arguments_need_specs() -> None:
    with pytest.raises(aicf.UserError, match="neither a TensorSpec nor a default"):
        aicf.compile(aicf.nn.Linear(2, 3))
    with pytest.raises(aicf.UserError, match="dtype and shape are not known"):
        aicf.compile(lambda x: x, ["f32"])


def test_names_of_other_libraries() -> None:
    for name, ours in (("where", "select"), ("topk", "top_k"), ("sofmax", "softmax")):
        with pytest.raises(AttributeError, match=f"did you mean '{ours}'"):
            getattr(ops, name)


def test_ops_need_a_trace() -> None:
    with pytest.raises(aicf.UserError, match="no trace is active"):
        ops.relu(A)


def test_a_graph_by_hand() -> None:
    graph = aicf.Graph()
    with aicf.tracing(graph):
        x = graph.input("x", (2, 3))
        graph.output(
            ops.iota(shape=[2, 3], axis=1, dtype="f32") + x * graph.param("w", np.full(3, 2, "f")), "y"
        )
    exe = aicf.compile(graph.program())
    assert np.array_equal(exe(np.ones((2, 3), "f")), np.tile([2, 3, 4], (2, 1)))


def test_every_op_has_a_function() -> None:
    rows = [row for row in aicf._aicf.op_table() if "has_body" not in row["traits"]]
    assert sorted(ops.__all__) == sorted(row["name"] for row in rows)
    assert all(getattr(ops, row["name"]).__doc__ for row in rows)


def test_an_index_out_of_range_has_a_code_and_ends_loops() -> None:
    def read(x: aicf.SymTensor) -> aicf.SymTensor:
        with pytest.raises(IndexError) as caught:
            x[5]
        assert isinstance(caught.value, aicf.UserError) and caught.value.name == "index_out_of_range"
        assert caught.value.expected == "-4 <= index < 4"
        return sum(row for row in x)  # type: ignore[return-value]

    exe = aicf.compile(read, [aicf.TensorSpec((4, 3))])
    assert np.asarray(exe(np.ones((4, 3), np.float32))).tolist() == [4.0, 4.0, 4.0]
