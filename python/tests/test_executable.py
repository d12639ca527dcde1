"""Compile, run, save, load, clone, verify; memory in and out."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import aicf
import numpy as np
import onnx.parser
import onnxruntime
import pytest


@pytest.fixture(scope="module")
def exe(mlp: bytes) -> aicf.Executable:
    return aicf.compile(mlp, dims={"batch": "0..8"}, threads=1)


def sample(batch: int) -> np.ndarray:
    return np.random.default_rng(batch).standard_normal((batch, 16)).astype("f")


@pytest.mark.parametrize("batch", [1, 3, 8])
def test_equals_onnxruntime(exe: aicf.Executable, mlp: bytes, batch: int) -> None:
    session = onnxruntime.InferenceSession(mlp, providers=["CPUExecutionProvider"])
    x = sample(batch)
    np.testing.assert_allclose(exe(x), session.run(None, {"x": x})[0], rtol=1e-5, atol=1e-6)


def test_an_empty_batch_runs(exe: aicf.Executable) -> None:
    assert np.asarray(exe(sample(0))).shape == (0, 8)


def test_strided_inputs_give_the_same_bits(exe: aicf.Executable) -> None:
    x = sample(4)
    wide = np.zeros((8, 32), "f")
    wide[::2, ::2] = x
    assert np.array_equal(exe(wide[::2, ::2]), exe(x))
    assert np.array_equal(exe(np.asfortranarray(x)), exe(x))


def test_inputs_may_be_read_only_and_are_not_changed(exe: aicf.Executable) -> None:
    x = sample(2)
    x.flags.writeable = False
    before = x.copy()
    exe(x)
    assert np.array_equal(x, before)


def test_results_share_their_memory_and_own_it(exe: aicf.Executable) -> None:
    first = exe(sample(2))
    addresses = [np.asarray(first).ctypes.data, first.numpy().ctypes.data, np.from_dlpack(first).ctypes.data]
    assert len(set(addresses)) == 1
    array = np.asarray(first)
    kept = array.copy()
    del first
    exe(sample(3))
    assert np.array_equal(array, kept)
    assert np.asarray(exe(sample(2))).ctypes.data != array.ctypes.data


def test_a_result_is_an_input(exe: aicf.Executable) -> None:
    identity = aicf.compile(aicf.trace(lambda x: x + 0.0, [aicf.TensorSpec((2, 8))]))
    y = exe(sample(2))
    assert np.array_equal(identity(y), y)
    assert np.array_equal(identity(memoryview(y.numpy())), y)


def test_run_into_writes_the_callers_memory(exe: aicf.Executable) -> None:
    x, y = sample(3), np.zeros((3, 8), "f")
    exe.run_into([x], [y])
    assert np.array_equal(y, exe(x))
    exe.run_into({"x": x}, {"y": np.zeros((3, 16), "f")[:, ::2]})
    with pytest.raises(aicf.UserError, match="output 'y'"):
        exe.run_into([x], [np.zeros((2, 8), "f")])
    y.flags.writeable = False
    with pytest.raises(aicf.UserError):
        exe.run_into([x], [y])


def test_memory_of_a_gpu_is_refused_on_the_cpu(exe: aicf.Executable) -> None:
    class OnlyTheInterface:
        __cuda_array_interface__ = {"data": (64, False), "shape": (3, 16), "typestr": "<f4", "version": 3}

    with pytest.raises(aicf.UserError, match="another device"):
        exe(OnlyTheInterface())


def test_save_and_load_give_the_same_bits(exe: aicf.Executable, tmp_path: Path) -> None:
    exe.save(tmp_path / "mlp.aicf")
    loaded = aicf.load(tmp_path / "mlp.aicf", threads=2)
    assert np.array_equal(loaded(x=sample(5)), exe(sample(5)))
    assert loaded.plan.kernels == exe.plan.kernels
    assert [(i.name, i.dtype, i.shape) for i in loaded.inputs] == [("x", "f32", ("batch", 16))]


def test_verify_finds_one_hash(exe: aicf.Executable) -> None:
    result = exe.verify(5, dims={"batch": 3})
    assert result.passed and result.replays == 5 and len(result.hash) == 32
    assert exe.verify(2, dims={"batch": 3}).hash == result.hash


@pytest.mark.usefixtures("interruptible")
def test_verify_leaves_states_as_they_were_and_can_be_interrupted() -> None:
    counter = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 19]>
        sums (float[2] x, float[2] past) => (float[2] present) { present = Add (past, x) }
    """)
    exe = aicf.compile(counter.SerializeToString(), options={"states": {"past": "present"}}, threads=1)
    for _ in range(3):
        exe(x=np.ones(2, np.float32))
    exe.verify(4)
    assert np.asarray(exe.state_dict()["past"]).tolist() == [3, 3]
    threading.Timer(0.5, signal.raise_signal, [signal.SIGINT]).start()
    with pytest.raises(KeyboardInterrupt):
        exe.verify(2**40)
    assert np.asarray(exe.state_dict()["past"]).tolist() == [3, 3]


def test_plan_and_explain_say_what_runs(exe: aicf.Executable) -> None:
    plan = exe.plan
    assert 0 <= plan.regions <= plan.kernels and plan.kernels > 0 and plan.arena_bytes > 0
    assert str(plan) in exe.explain() and "decompose_composites" in exe.explain()


def test_weights_cannot_be_written(exe: aicf.Executable, tmp_path: Path) -> None:
    exe.save(tmp_path / "mlp.aicf")
    aicf.save_safetensors(tmp_path / "w", exe.weights())
    for weights in (
        exe.weights(),
        aicf.load(tmp_path / "mlp.aicf").weights(),
        aicf.load_safetensors(tmp_path / "w"),
    ):
        for tensor in weights.values():
            for array in (np.asarray(tensor), tensor.numpy(), np.from_dlpack(tensor)):
                with pytest.raises(ValueError, match="read-only"):
                    array[...] = 0
    assert np.asarray(exe(sample(2))).flags.writeable


def test_a_state_dict_is_taken_whole_or_not_at_all() -> None:
    class Model(aicf.nn.Module):
        def __init__(self) -> None:
            self.w = aicf.nn.Parameter(np.ones(3, "f"))
            self.total = aicf.nn.State(shape=(3,))

        def forward(self, x: aicf.SymTensor) -> aicf.SymTensor:
            self.total.update(self.total + x)
            return self.total * self.w

    exe = aicf.compile(Model(), [aicf.TensorSpec((3,))])
    one = np.ones(3, "f")
    exe(one)
    for wrong in ({"w": 5 * one, "total": np.ones(4, "f")}, {"total": 5 * one, "w": np.ones(4, "f")}):
        with pytest.raises(aicf.UserError):
            exe.load_state_dict(wrong)
        assert np.array_equal(exe.state_dict()["total"], one) and np.array_equal(exe.weights()["w"], one)
    exe.load_state_dict({"w": 5 * one, "total": 2 * one})
    assert np.array_equal(exe(one), 15 * one) and np.array_equal(exe.state_dict()["total"], 3 * one)


def test_weights_may_be_loaded_beside_calls() -> None:
    w = np.eye(256, dtype="f")
    exe = aicf.compile(
        aicf.nn.Sequential(*(aicf.nn.Linear(256, 256) for _ in range(4))), [aicf.TensorSpec((64, 256))]
    )
    exe.load_state_dict({name: w if name.endswith("W") else 0 * w[0] for name in exe.weights()})
    x = np.random.default_rng(0).standard_normal((64, 256)).astype("f")
    done = threading.Event()
    wrong: list[str] = []

    def call() -> None:
        while not done.is_set():
            time.sleep(0.0005)  # else a run is always in flight
            try:
                if not np.array_equal(exe(x), x):
                    wrong.append("other bits")
            except aicf.UserError as error:
                if error.name != "busy":
                    wrong.append(str(error))

    threads = [threading.Thread(target=call) for _ in range(2)]
    for thread in threads:
        thread.start()
    loads = 0
    while loads < 100 and not wrong:
        try:
            exe.load_state_dict({"0.W": w})
            loads += 1
        except aicf.UserError as error:
            if error.name != "busy":
                wrong.append(str(error))
    done.set()
    for thread in threads:
        thread.join()
    assert not wrong


def test_clones_have_states_of_their_own() -> None:
    class Counter(aicf.nn.Module):
        def __init__(self) -> None:
            self.total = aicf.nn.State(shape=(3,))

        def forward(self, x: aicf.SymTensor) -> aicf.SymTensor:
            self.total.update(self.total + x)
            return self.total * 1.0

    exe = aicf.compile(Counter(), [aicf.TensorSpec((3,))])
    one = np.ones(3, "f")
    exe(one)
    other = exe.clone()
    assert np.array_equal(exe(one), 2 * one)
    assert np.array_equal(exe(one), 3 * one)
    assert np.array_equal(other(one), 2 * one)
    other.load_state_dict({"total": 10 * one})
    assert np.array_equal(other(one), 11 * one) and np.array_equal(exe.state_dict()["total"], 3 * one)
    exe.reset()
    assert np.array_equal(exe(one), one)


def test_results_have_the_models_structure(tmp_path: Path) -> None:
    exe = aicf.compile(lambda x: {"a": [x + 1, None], "b": (x,)}, np.zeros(2, "f"), threads=1)
    exe.save(tmp_path / "model.aicf")
    for one in (exe, aicf.load(tmp_path / "model.aicf")):
        result = one(np.ones(2, "f"))
        assert result["a"][1] is None and isinstance(result["b"], tuple)
        assert np.array_equal(result["a"][0], [2, 2]) and np.array_equal(result["b"][0], [1, 1])


@pytest.mark.parametrize("text", ["", "2", "[]", '{"tuple": [0, 7]}', '{"a": 1, "b": 2}', "[" * 100_000])
def test_a_strangers_structure_is_refused(text: str) -> None:
    program = aicf.trace(lambda x: (x + 1, x), np.zeros(2, "f"))
    program.metadata = {"aicf.python.outputs": text}
    with pytest.raises(aicf.UserError) as caught:
        aicf.compile(program)
    assert caught.value.name == "bad_artifact"


@pytest.mark.parametrize(
    ("precision", "unit"), [("tf32", 2.0**-11), ("bf16-mixed", 2.0**-8), ("f16-mixed", 2.0**-11)]
)
def test_precision_rounds_operands_only(precision: str, unit: float) -> None:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((5, 64)).astype("f"), rng.standard_normal((64, 7)).astype("f")
    got = np.asarray(aicf.compile(lambda x, w: x @ w, (x, w), precision=precision, threads=1)(x, w))
    error = np.abs(got - x.astype("d") @ w)
    assert got.dtype == np.float32 and (error <= 2.5 * unit * (abs(x) @ abs(w))).all()
    assert error.max() > 1e-6


def test_a_size_may_be_an_integer_of_numpy(mlp: bytes) -> None:
    for dims in ({"batch": np.int64(3)}, {"batch": (np.int32(1), np.int64(3))}):
        assert np.asarray(aicf.compile(mlp, dims=dims)(np.zeros((3, 16), "f"))).shape == (3, 8)
    for wrong in (True, np.bool_(True), np.float32(3), np.array([3])):
        with pytest.raises(aicf.UserError, match="does not give a size"):
            aicf.compile(mlp, dims={"batch": wrong})


COMMA = """comment_char %
escape_char /
LC_NUMERIC
decimal_point ","
thousands_sep "."
grouping 3;3
END LC_NUMERIC
"""

COMPILED = """
import locale, sys
locale.setlocale(locale.LC_NUMERIC, sys.argv[1])
assert locale.format_string("%.1f", 0.5) == sys.argv[2]
import aicf
aicf.compile("mlp.onnx", dims={"batch": "1..8"}).save("mlp.aicf")
"""


def test_a_locale_with_another_decimal_point_gives_the_same_file(mlp: bytes, tmp_path: Path) -> None:
    (tmp_path / "mlp.onnx").write_bytes(mlp)
    (tmp_path / "source").write_text(COMMA)
    made = tmp_path / "comma"
    try:
        subprocess.run(["localedef", "-c", "-i", "source", str(made)], cwd=tmp_path, capture_output=True)
    except OSError:
        pytest.skip("this machine makes no locales")
    if not (made / "LC_NUMERIC").exists():
        pytest.skip("this machine cannot make a locale")
    environment = {**os.environ, "LOCPATH": str(tmp_path), "AICF_MAX_SECONDS": "12.5"}
    files = []
    for name, half in (("C", "0.5"), ("comma", "0,5")):
        words = [sys.executable, "-c", COMPILED, name, half]
        subprocess.run(words, cwd=tmp_path, env=environment, check=True)
        files.append((tmp_path / "mlp.aicf").read_bytes())
    assert files[0] == files[1]


@pytest.mark.parametrize("part", ["onnx", "torch"])
def test_parts_are_imported_when_they_are_named(part: str) -> None:
    """Not by `import aicf`, nor by a star."""
    pytest.importorskip(part)
    code = f"""
import sys
import aicf
from aicf import *
assert "{part}" not in sys.modules and "{part}" in dir(aicf)
assert aicf.{part}.__all__ and "aicf.{part}" in sys.modules
assert not hasattr(aicf, "nothing")
"""
    subprocess.run([sys.executable, "-c", code], check=True)
