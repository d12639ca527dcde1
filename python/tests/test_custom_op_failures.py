"""Custom ops that fail, whose operands are halves, or that keep what they were given."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aicf
import numpy as np
import onnx.parser
import pytest

HEADERS = Path(__file__).resolve().parents[2] / "include"
COMPILER = shutil.which("cc") or shutil.which("gcc")

_numbers = itertools.count()


class Switch:
    """An op of one operand that copies it, or raises what `error` holds."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self.calls = 0
        self.name = f"fails::op{next(_numbers)}"
        self.op = aicf.register_op(self.name, results=lambda x: x, cpu=self.copy)

    def copy(self, x: np.ndarray, y: np.ndarray) -> None:
        self.calls += 1
        if self.error is not None:
            raise self.error
        y[...] = x


class Stranger(BaseException):
    """Not even an Exception."""


ERRORS = [
    ValueError("no"),
    KeyboardInterrupt(),
    SystemExit(3),
    Stranger("odd"),
    StopIteration(),
    MemoryError(),
    RecursionError("deep"),
    aicf.errors.make_error("index_out_of_range", "mine"),
]
HEADER = '<ir_version: 8, opset_import: ["" : 17, "fails" : 1]>\n'
PLAIN = "g (float[n, 3] x) => (float[n, 3] y) {{ h = Relu (x)  k = fails.{op} (h)  y = Add (k, h) }}"
BRANCH = """
g (float[n, 3] x, bool c) => (float[n, 3] y)
{{
  y = If (c) <then_branch = t () => (float[n, 3] a) {{ r = Relu (x)  a = fails.{op} (r) }},
              else_branch = e () => (float[n, 3] b) {{ b = Neg (x) }}>
}}
"""
LOOP = """
g (float[n, 3] x, float limit) => (float[n, 3] y)
<bool go = {{1}}>
{{
  y = Loop (, go, x) <body = b (int64 i, bool c, float[n, 3] a) => (bool c2, float[n, 3] a2)
  {{ k = fails.{op} (a)  a2 = Add (k, k)  s = ReduceSum <keepdims = 0> (a2)  c2 = Less (s, limit) }}>
}}
"""
SCAN = """
g (float[3] h0, float[n, 3] x) => (float[3] last, float[n, 3] ys)
{{
  last, ys = Scan <num_scan_inputs = 1,
    body = cell (float[3] h, float[3] at) => (float[3] next, float[3] o)
    {{ k = fails.{op} (at)  next = Add (h, k)  o = Neg (next) }}> (h0, x)
}}
"""
X = np.array([[1, -2, 3], [4, 5, -6]], "f")
FORMS: dict[str, tuple[str, dict[str, np.ndarray]]] = {
    "plain": (PLAIN, {"x": X}),
    "branch": (BRANCH, {"x": X, "c": np.array(True)}),
    "loop": (LOOP, {"x": abs(X), "limit": np.array(1000, "f")}),
    "scan": (SCAN, {"h0": X[0], "x": X}),
}


def arrays(results: Any) -> list[np.ndarray]:
    return [np.array(r) for r in (results if isinstance(results, tuple) else (results,))]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("form", FORMS)
def test_what_an_op_raises_is_what_the_call_raises(form: str, threads: int) -> None:
    switch = Switch()
    text, inputs = FORMS[form]
    model = onnx.parser.parse_model(HEADER + text.format(op=switch.name.split("::")[1]))
    exe = aicf.compile(model.SerializeToString(), dims={"n": "1..4"}, threads=threads)
    right = arrays(exe(**inputs))
    assert switch.calls > 0
    for one in (exe, exe.clone()):
        for error in ERRORS:
            switch.error = error
            with pytest.raises(BaseException) as caught:
                one(**inputs)
            assert caught.value is error
            frames = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
            assert "copy" in frames
            error.__traceback__ = None
            outputs = [np.full_like(array, 7) for array in right]
            with pytest.raises(BaseException) as caught:
                one.run_into([inputs[i.name] for i in one.inputs], outputs)
            assert caught.value is error
            error.__traceback__ = None
            switch.error = None
            assert all(map(np.array_equal, arrays(one(**inputs)), right))


def test_no_step_runs_after_the_one_that_failed() -> None:
    first, second = Switch(), Switch()
    exe = aicf.compile(lambda x: second.op(aicf.ops.relu(first.op(x)) + 1.0), np.zeros(3, "f"), threads=2)
    first.error = ValueError("first")
    with pytest.raises(ValueError, match="first"):
        exe(np.ones(3, "f"))
    assert (first.calls, second.calls) == (1, 0)


class Counters(aicf.nn.Module):
    """A state that is written before the op runs, one that the op's result goes into, and one after."""

    def __init__(self, op: Callable[..., Any]) -> None:
        self.before = aicf.nn.State(shape=(3,))
        self.through = aicf.nn.State(shape=(3,))
        self.after = aicf.nn.State(shape=(3,))
        self._op = op

    def forward(self, x: aicf.SymTensor) -> aicf.SymTensor:
        h = self.before + x
        self.before.update(h)
        k = self._op(h * 2.0)
        self.through.update(self._op(self.through + k))
        self.after.update(self.after + self._op(k + 1.0))
        return k - x


@pytest.mark.parametrize("opt", [0, 2])
def test_states_are_as_before_a_failed_run(opt: int) -> None:
    switch = Switch()
    calls = 0

    def maybe(x: np.ndarray, y: np.ndarray) -> None:
        nonlocal calls
        calls += 1
        if calls == fail_at:
            y[...] = 99
            raise ValueError("half-way")
        y[...] = x

    op = aicf.register_op(f"{switch.name}_states", results=lambda x: x, cpu=maybe)
    exe = aicf.compile(Counters(op), [aicf.TensorSpec((3,))], options={"opt": opt}, threads=1)
    alone = exe.clone()
    one = np.array([1, 2, 3], "f")
    fail_at = 0
    for at in (1, 2, 3, 1, 2, 3):
        fail_at, calls = at, 0
        before = {name: np.array(value) for name, value in exe.state_dict().items()}
        with pytest.raises(ValueError, match="half-way"):
            exe(one)
        for name, value in exe.state_dict().items():
            assert np.array_equal(value, before[name]), (at, name)
        fail_at = 0
        assert np.array_equal(exe(one), alone(one))
        for name, value in alone.state_dict().items():
            assert np.array_equal(exe.state_dict()[name], value), (at, name)


class Script:
    """An op that fails at a drawn one of its calls, after it has written its result."""

    def __init__(self) -> None:
        self.fail_at = self.calls = 0
        name = f"fails::script{next(_numbers)}"
        self.op = aicf.register_op(name, results=lambda x: x, cpu=self.grow)
        self.node = name.split("::")[1]

    def grow(self, x: np.ndarray, y: np.ndarray) -> None:
        self.calls += 1
        y[...] = x * np.float32(0.5) + 1
        if self.calls == self.fail_at:
            raise Stranger("at a drawn call")

    def check(
        self, exe: aicf.Executable, inputs: dict[str, np.ndarray], fails: list[int] | None = None
    ) -> None:
        """A failing run changes no state, and the next run gives the bits of one that never failed."""
        alone = exe.clone()
        self.fail_at = self.calls = 0
        alone(**inputs), exe(**inputs)
        for at in fails or range(1, self.calls // 2 + 1):
            before = {name: np.array(value) for name, value in exe.state_dict().items()}
            self.fail_at, self.calls = at, 0
            with pytest.raises(Stranger):
                exe(**inputs)
            self.fail_at = 0
            assert all(np.array_equal(value, before[name]) for name, value in exe.state_dict().items()), at
            assert all(map(np.array_equal, arrays(exe(**inputs)), arrays(alone(**inputs)))), at
            states = alone.state_dict()
            assert all(np.array_equal(value, states[name]) for name, value in exe.state_dict().items()), at


STATES_IN_BODIES = """
g (float[3] x, float[3] past, float[4, 3] rows, bool c, float[4, 3] kept, float[3] other)
  => (float[3] present, float[4, 3] ys, float[3] branch, float[3] z)
{{
  present, ys = Scan <num_scan_inputs = 1,
    body = cell (float[3] h, float[3] at) => (float[3] next, float[3] o)
    {{ k = fails.{op} (at)  next = Add (h, k)  o = Identity (next) }}> (past, rows)
  z = Add (present, x)
  branch = If (c) <then_branch = t () => (float[3] a) {{ r = Relu (z)  a = fails.{op} (r) }},
                   else_branch = e () => (float[3] b) {{ b = Neg (z) }}>
}}
"""


def test_states_that_bodies_write_are_as_before() -> None:
    script = Script()
    model = onnx.parser.parse_model(HEADER + STATES_IN_BODIES.format(op=script.node))
    states = {"past": "present", "kept": "ys", "other": "branch"}
    exe = aicf.compile(model.SerializeToString(), options={"states": states}, threads=2)
    rows = np.arange(12, dtype="f").reshape(4, 3)
    script.check(exe, {"x": X[0], "rows": rows, "c": np.array(True)})
    script.check(exe, {"x": X[0], "rows": rows, "c": np.array(False)}, [4])


@pytest.mark.parametrize("seed", range(200 if os.environ.get("AICF_SOAK") == "1" else 12))
def test_random_programs_with_states(seed: int) -> None:
    script, rng = Script(), random.Random(seed)

    class Model(aicf.nn.Module):
        def __init__(self) -> None:
            for i in range(3):
                setattr(self, f"s{i}", aicf.nn.State(shape=(64,)))

        def forward(self, x: aicf.SymTensor) -> aicf.SymTensor:
            values, left = [x, self.s0, self.s1, self.s2], [0, 1, 2]
            for _ in range(rng.randint(4, 12)):
                a, b = rng.choice(values) + 0.0, rng.choice(values)
                kind = rng.randint(0, 3)
                values.append((a * 0.5 + b, aicf.ops.tanh(a), a.sum() * 0.1 + b, script.op(a))[kind])
                if left and rng.random() < 0.5:
                    getattr(self, f"s{left.pop()}").update(values[-1])
            for i in left:
                state = getattr(self, f"s{i}")
                state.update(state * 0.5 + values[-1])
            return script.op(values[-1] + 0.0)

    options = {"opt": rng.choice([0, 1, 2])}
    exe = aicf.compile(Model(), [aicf.TensorSpec((64,), "f32", "x")], options=options, threads=seed % 2 + 1)
    script.check(exe, {"x": np.random.default_rng(seed).standard_normal(64).astype("f")})


def test_a_train_step_that_failed_can_be_made_again() -> None:
    switch = Switch()

    class Net(aicf.nn.Module):
        def __init__(self) -> None:
            aicf.nn.seed(1)
            self.norm = aicf.nn.BatchNorm2d(4)
            self.linear = aicf.nn.Linear(4, 2)

        def forward(self, x: aicf.SymTensor, noise: aicf.SymTensor) -> aicf.SymTensor:
            h = self.norm(x.reshape([8, 4, 1, 1])).reshape([8, 4])
            return self.linear(h) + switch.op(noise)

    class Loss(aicf.nn.Module):
        def __init__(self) -> None:
            self.net = Net()

        def forward(self, x: aicf.SymTensor, noise: aicf.SymTensor, y: aicf.SymTensor) -> aicf.SymTensor:
            return aicf.nn.MSELoss()(self.net(x, noise), y)

    specs = [
        aicf.TensorSpec(shape, "f32", name) for name, shape in (("x", (8, 4)), ("n", (8, 2)), ("y", (8, 2)))
    ]
    rng = np.random.default_rng(0)
    batches = [tuple(rng.standard_normal(s.shape).astype("f") for s in specs) for _ in range(4)]

    def make() -> aicf.TrainStep:
        return aicf.compile_train_step(
            Loss(), optimizer=aicf.optim.AdamW(0.1), inputs=specs, accumulate=2, threads=2
        )

    step, alone = make(), make()
    for i in range(12):
        batch = batches[i % 4]
        if i % 3 == 0:
            switch.error, before = ERRORS[i % 4], step.hash()
            with pytest.raises(BaseException) as caught:
                step(*batch)
            assert caught.value is switch.error and step.hash() == before
            switch.error.__traceback__, switch.error = None, None
        assert np.array_equal(step(*batch), alone(*batch))
        assert step.hash() == alone.hash()
    switch.error, before = KeyboardInterrupt(), step.hash()
    with pytest.raises(KeyboardInterrupt):
        step.verify(4, inputs=batches)
    assert step.hash() == before


def test_warm_up_and_verify_raise_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    switch = Switch()
    exe = aicf.compile(Counters(switch.op), [aicf.TensorSpec((3,))], threads=1)
    monkeypatch.setenv("AICF_WARMUP", "2")
    switch.error = ValueError("warm")
    with pytest.raises(ValueError, match="warm"):
        exe(np.ones(3, "f"))
    with pytest.raises(ValueError, match="warm"):
        exe.verify(2)
    assert not any(np.asarray(value).any() for value in exe.state_dict().values())


# A body goes on after an index that is out of range: the op after it may fail, too.
GATHERING_LOOP = """
g (float[4] x, int64[2] i, float limit) => (float[2] y)
<bool go = {{1}}, float[2] zero = {{0.0, 0.0}}>
{{
  y = Loop (, go, zero) <body = b (int64 n, bool c, float[2] a) => (bool c2, float[2] a2)
  {{ r = Gather (x, i)  k = fails.{op} (r)  a2 = Add (a, k)
     s = ReduceSum <keepdims = 0> (a2)  c2 = Less (s, limit) }}>
}}
"""


def test_an_error_in_data_does_not_outlive_the_run_that_met_it() -> None:
    """Of a run that it stopped before a custom op, and of one that a custom op stopped after it."""
    switch = Switch()

    def model(x: Any, i: Any) -> Any:
        return switch.op(aicf.ops.gather(x, i, axis=0))

    exe = aicf.compile(model, (np.zeros(4, "f"), np.zeros(2, "l")), threads=1)
    x, good, bad = np.arange(4, dtype="f"), np.array([1, 2]), np.array([1, 9])
    exe(x, good)
    switch.error = ValueError("no")
    with pytest.raises(aicf.UserError, match="AICF-U0405"):
        exe(x, bad)
    switch.error = None
    assert np.array_equal(exe(x, good), [1, 2])

    text = HEADER + GATHERING_LOOP.format(op=switch.name.split("::")[1])
    exe = aicf.compile(onnx.parser.parse_model(text).SerializeToString(), threads=1)
    limit = np.array(5, "f")
    assert np.array_equal(exe(x, good, limit), [2, 4])
    with pytest.raises(aicf.UserError, match="AICF-U0405"):
        exe(x, bad, np.array(-100, "f"))
    switch.error = ValueError("no")
    with pytest.raises(ValueError):
        exe(x, bad, limit)
    switch.error = None
    assert np.array_equal(exe(x, good, limit), [2, 4])


# --- operands


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u8", "bool"])
def test_operands_of_every_dtype(dtype: str) -> None:
    seen: list[np.ndarray] = []

    def twice(x: np.ndarray, y: np.ndarray) -> None:
        seen.append(x)
        assert not x.flags.writeable and x.flags.aligned and x.flags.c_contiguous
        y[...] = x if x.dtype == bool else x + x

    op = aicf.register_op(f"fails::twice_{dtype}", results=lambda x: x, cpu=twice)
    program = aicf.trace(
        lambda x: op(x.astype(dtype)).astype("f32"), [aicf.TensorSpec(("n", 3))], dims={"n": "0..4"}
    )
    exe = aicf.compile(program, threads=1)
    factor = 1 if dtype == "bool" else 2
    for rows in (1, 4):
        x = (np.arange(3 * rows).reshape(rows, 3) % 2).astype("f")
        assert np.array_equal(exe(x), factor * x)
        name = {"bf16": "bfloat16", "bool": "bool"}.get(
            dtype, dtype.replace("f", "float").replace("i", "int")
        )
        assert seen[-1].dtype.name == name.replace("u8", "uint8") and seen[-1].shape == (rows, 3)
    assert np.asarray(exe(np.zeros((0, 3), "f"))).shape == (0, 3)


def test_bfloat16_without_ml_dtypes_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    switch = Switch()
    exe = aicf.compile(lambda x: switch.op(x.astype("bf16")).astype("f32"), np.zeros(3, "f"), threads=1)
    assert np.array_equal(exe(np.ones(3, "f")), np.ones(3))
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(aicf.EnvError, match="pip install ml_dtypes") as caught:
        exe(np.ones(3, "f"))
    assert caught.value.name == "tool_missing" and switch.name in str(caught.value.op)


def test_scalars_and_attributes_reach_the_function() -> None:
    def scale(x: np.ndarray, y: np.ndarray, *, shift: int, alpha: float, more: int) -> None:
        assert type(shift) is int and type(alpha) is float
        y[...] = alpha * x + shift + more

    op = aicf.register_op(
        "fails::scalars",
        results=lambda x, **_: x,
        attributes={"shift": 1, "alpha": 0.5, "more": -3},
        cpu=scale,
    )
    exe = aicf.compile(lambda x: op(x, shift=2**40), np.zeros((), "d"), threads=1)
    assert float(np.asarray(exe(np.array(4.0)))) == 2 + 2**40 - 3


def values_of(kept: Any) -> np.ndarray:
    if isinstance(kept, np.flatiter):
        return kept.copy()
    return np.array(kept.numpy() if hasattr(kept, "numpy") else kept)


@pytest.mark.parametrize("how", ["array", "view", "memoryview", "bytes", "torch", "flat", "frame"])
def test_what_a_function_keeps_stays_its_own(how: str) -> None:
    kept: list[tuple[Any, Any]] = []

    def keep(array: np.ndarray) -> Any:
        if how == "view":
            return array[1:].reshape(-1)[::2][1:]
        if how == "memoryview":
            return memoryview(array)
        if how == "bytes":
            return np.frombuffer(array, "u1")
        if how == "torch":
            torch = pytest.importorskip("torch")
            return torch.from_numpy(array.copy() if not array.flags.writeable else array)
        if how == "flat":
            return array.flat
        return array

    def copy(x: np.ndarray, y: np.ndarray) -> None:
        y[...] = x + 1
        kept.append((keep(x), keep(y)))
        if how == "frame":
            raise ValueError("its frame holds both")

    op = aicf.register_op(f"fails::keeps_{how}", results=lambda x: x, cpu=copy)
    exe = aicf.compile(lambda x: op(aicf.ops.relu(x)) * 2.0, np.zeros((64, 64), "f"), threads=2)
    values = []
    for i in range(3):
        x = np.full((64, 64), i + 1, "f")
        if how == "frame":
            with pytest.raises(ValueError):
                exe(x)
        else:
            assert np.array_equal(exe(x), 2 * x + 2)
        values.append([values_of(part) for part in kept[-1]])
    del exe, x
    for pair, before in zip(kept, values, strict=True):
        for part, value in zip(pair, before, strict=True):
            assert np.array_equal(values_of(part), value)


def test_what_is_written_to_a_kept_output_later_is_not_seen() -> None:
    kept: list[np.ndarray] = []

    def copy(x: np.ndarray, y: np.ndarray) -> None:
        y[...] = x
        kept.append(y)

    op = aicf.register_op("fails::writes_later", results=lambda x: x, cpu=copy)
    exe = aicf.compile(lambda x: op(x), np.zeros(1000, "f"), threads=1)
    first = exe(np.ones(1000, "f"))
    kept[0][...] = 5
    assert np.array_equal(first, np.ones(1000))


def test_mistakes_in_functions_are_named() -> None:
    op = aicf.register_op("fails::returns", results=lambda x: x, cpu=lambda x, y: x * 2)
    exe = aicf.compile(lambda x: op(x), np.zeros(3, "f"), threads=1)
    with pytest.raises(aicf.UserError, match="array of its own") as caught:
        exe(np.ones(3, "f"))
    assert caught.value.op == "fails::returns" and "y[...]" in caught.value.remedy
    op = aicf.register_op("fails::out", results=lambda x: x, cpu=lambda x, y: np.multiply(x, 2, out=y))
    assert np.array_equal(aicf.compile(lambda x: op(x), np.zeros(3, "f"))(np.ones(3, "f")), [2, 2, 2])
    op = aicf.register_op("fails::arguments", results=lambda x: x, cpu=lambda x: None)
    with pytest.raises(TypeError, match="positional"):
        aicf.compile(lambda x: op(x), np.zeros(3, "f"))(np.ones(3, "f"))
    op = aicf.register_op("fails::writes", results=lambda x: x, cpu=lambda x, y: np.copyto(x, y))
    with pytest.raises(ValueError, match="read-only"):
        aicf.compile(lambda x: op(x), np.zeros(3, "f"))(np.ones(3, "f"))
    with pytest.raises(aicf.UserError, match="fails by raising"):
        aicf.register_op("fails::checked", results=lambda x: x, cpu=lambda x, y: None, checked=True)


def test_memory_of_operands_cannot_be_resized() -> None:
    def clear(x: np.ndarray, y: np.ndarray) -> None:
        for array in (x, y):
            owner = array
            while not isinstance(owner, bytearray):
                owner = owner.obj if isinstance(owner, memoryview) else owner.base
            with pytest.raises(BufferError):
                owner.clear()
        y[...] = x

    op = aicf.register_op("fails::clears", results=lambda x: x, cpu=clear)
    assert np.array_equal(aicf.compile(lambda x: op(x), np.zeros(3, "f"))(np.ones(3, "f")), [1, 1, 1])


def test_a_function_that_does_not_run_is_refused() -> None:
    async def later(x: np.ndarray, y: np.ndarray) -> None:
        y[...] = x

    def bit_by_bit(x: np.ndarray, y: np.ndarray) -> Any:
        yield 0

    for function in (later, bit_by_bit):
        op = aicf.register_op(f"fails::{function.__name__}", results=lambda x: x, cpu=function)
        exe = aicf.compile(lambda x, op=op: op(x), np.zeros(3, "f"))
        with warnings.catch_warnings(), pytest.raises(aicf.UserError, match="coroutine"):
            warnings.simplefilter("ignore")  # Python's, of what was never awaited
            exe(np.ones(3, "f"))


@pytest.mark.parametrize(
    "types", [None, 3, "f32", [], ("f32", 4), [("f32", (4,)), ("f32",)], {"f32": 4}, (np.float32, 4.0)]
)
def test_a_rule_that_gives_no_types_is_refused(types: Any) -> None:
    op = aicf.register_op(f"fails::types{next(_numbers)}", results=lambda x: types, cpu=lambda x, y: None)
    with pytest.raises(aicf.UserError, match="gives no types") as caught:
        aicf.compile(lambda x: op(x), np.zeros(4, "f"))
    assert caught.value.op == op.name


def test_a_rule_may_give_dtypes_of_numpy() -> None:
    op = aicf.register_op(
        "fails::rounds",
        results=lambda x: (np.dtype("i4"), x.shape),
        cpu=lambda x, y: np.rint(x, out=y, casting="unsafe"),
    )
    assert np.array_equal(aicf.compile(lambda x: op(x), np.zeros(2, "f"))(np.array([1.2, 2.8], "f")), [1, 3])


def test_a_rule_that_raises_is_heard_from_every_way_in() -> None:
    error = KeyError("rule")

    def rule(x: Any) -> Any:
        raise error

    op = aicf.register_op("fails::rule", results=rule, cpu=lambda x, y: None)
    with pytest.raises(KeyError) as caught:
        aicf.compile(lambda x: op(x), np.zeros(3, "f"))
    assert caught.value is error
    model = onnx.parser.parse_model(HEADER + PLAIN.format(op="rule")).SerializeToString()
    with pytest.raises(KeyError) as caught:
        aicf.compile(model, dims={"n": 2})
    assert caught.value is error


def test_an_array_whose_protocol_raises_is_heard() -> None:
    exe = aicf.compile(lambda x: x + 1.0, np.zeros(3, "f"), threads=1)

    class Array:
        error: BaseException = KeyboardInterrupt()

        def __dlpack__(self, **_: Any) -> Any:
            raise self.error

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

    with pytest.raises(KeyboardInterrupt):
        exe(Array())
    assert np.array_equal(exe(np.ones(3, "f")), [2, 2, 2])


# --- functions of C and C++

CHECKED = """
#include "aicf/custom_op.h"
#include <stdio.h>
#include <string.h>
static aicf_status halve(const aicf_custom_tensor* in, int32_t n, const aicf_custom_tensor* out, int32_t m,
                         const int64_t* params, const double* fparams, void* user, char* message,
                         int32_t message_size) {
  const float* x = in[0].data;
  float* y = out[0].data;
  for (int64_t i = 0; i < in[0].sizes[0]; ++i) {
    if (x[i] < 0) {
      if (x[i] < -1) snprintf(message, message_size, "element %d is negative", (int)i);
      if (x[i] < -2) memset(message, 'x', message_size);
      return x[i] < -1 ? AICF_USER_ERROR : 77;
    }
    y[i] = x[i] / 2;
  }
  return AICF_OK;
}
aicf_checked_function exported = halve;
aicf_status checked_halve(const aicf_custom_tensor* in, int32_t n, const aicf_custom_tensor* out, int32_t m,
                          const int64_t* p, const double* f, void* user, char* message, int32_t size) {
  return halve(in, n, out, m, p, f, user, message, size);
}
void aicf_register_checked_ops(aicf_add_checked_op add) { add("fails::halve", halve, NULL); }
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if COMPILER is None or not HEADERS.exists():
        pytest.skip("needs a C compiler and the headers")
    folder = tmp_path_factory.mktemp("ops")
    (folder / "ops.c").write_text(CHECKED)
    made = folder / "libops.so"
    words = [COMPILER, "-shared", "-fPIC", "-std=gnu99", "-Wall", "-Werror", f"-I{HEADERS}"]
    subprocess.run([*words, folder / "ops.c", "-o", made], check=True)
    return made


def test_a_status_of_c_fails_the_run(library: Path) -> None:
    op = aicf.register_op(
        "fails::checked_c", results=lambda x: x, cpu=(library, "checked_halve"), checked=True
    )
    exe = aicf.compile(lambda x: op(aicf.ops.relu(x) + x), np.zeros(3, "f"), threads=2)
    assert np.array_equal(exe(np.ones(3, "f")), [1, 1, 1])
    for value, said in (
        (-0.5, "status 77"),
        (-1.5, "status 2: element 1 is negative"),
        (-3.0, "status 2: xxx"),
    ):
        with pytest.raises(aicf.UserError) as caught:
            exe(np.array([1, value, 1], "f"))
        assert caught.value.name == "custom_op_failed" and caught.value.code == "AICF-U0408"
        assert caught.value.actual.startswith(said)
        assert caught.value.value == "fails::checked_c" and caught.value.op
    assert np.array_equal(exe(np.ones(3, "f")), [1, 1, 1])


def test_the_command_line_says_that_an_op_failed(library: Path, cli: str, tmp_path: Path) -> None:
    aicf.register_op("fails::halve", results=lambda x: x)
    environment = {**os.environ, "AICF_CUSTOM_OPS": str(library)}
    script = (
        "import aicf, numpy as np\n"
        "op = aicf.register_op('fails::halve', results=lambda x: x)\n"
        "aicf.compile(lambda x: op(x), np.zeros(3, 'f')).save('m.aicf')\n"
        "np.save('good.npy', np.ones(3, 'f')); np.save('bad.npy', -2 * np.ones(3, 'f'))\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=tmp_path, env=environment)
    for name, code in (("good", 0), ("bad", 2)):
        words = [cli, "run", "m.aicf", "--input", f"x={name}.npy"]
        done = subprocess.run(
            words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == code, done.stderr
        assert ("AICF-U0408" in done.stderr) == (code == 2)
        assert ("element 0 is negative" in done.stderr) == (code == 2)
