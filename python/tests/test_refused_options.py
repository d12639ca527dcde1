"""No option is accepted and ignored: unknown names, values without effect and wrong types are refused."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aicf
import numpy as np
import pytest
from aicf import nn, optim
from onnx import TensorProto, helper

SPEC = [aicf.TensorSpec(("n", 8))]
DIMS = {"n": "1..8"}
ROWS = np.ones((2, 8), "f")
PAIR = [aicf.TensorSpec((4, 3)), aicf.TensorSpec((4, 3))]


class Net(nn.Module):
    def __init__(self) -> None:
        self.l = nn.Linear(3, 3)

    def forward(self, x: Any) -> Any:
        return self.l(x)


def plus(x: Any) -> Any:
    return x + 1


def constant() -> Any:
    return aicf.ops.iota(shape=(3,), axis=0, dtype="f32")


def onnx_model() -> Any:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def compile_onnx(**given: Any) -> Any:
    return aicf.compile(
        onnx_model().SerializeToString(), given.pop("inputs", None), **{"dims": {"batch": 2}} | given
    )


def compile_function(**given: Any) -> Any:
    return aicf.compile(plus, SPEC, **{"dims": DIMS} | given)


def train(model: Any = None, **given: Any) -> Any:
    optimizer = given.pop("optimizer", optim.SGD(0.1))
    return aicf.compile_train_step(model or Net(), nn.MSELoss(), optimizer, PAIR, **given)


def loss_program() -> Any:
    return aicf.trace(lambda x: (x * x).sum(), [aicf.TensorSpec((3,))])


def grouped(*groups: optim.Group) -> Any:
    return train(optimizer=optim.SGD(0.1, groups=list(groups)))


def onnx_backend(*inputs: Any, run: dict[str, Any] | None = None, **given: Any) -> Any:
    from aicf.onnx import backend

    return backend.prepare(onnx_model(), **given).run([np.ones((2, 4), "f"), *inputs], **run or {})


def saved() -> Path:
    path = Path(tempfile.mkdtemp()) / "m.aicf"
    compile_function().save(path)
    return path


def register(**given: Any) -> Any:
    parts = {"name": "refused::op", "results": lambda x: (x.dtype, x.shape), "cpu": lambda x, y: None}
    return aicf.register_op(**parts | given)


def llama(**given: Any) -> Any:
    sizes = {
        "vocabulary": 9, "features": 8, "layers": 1, "heads": 2, "kv_heads": 1, "hidden": 8, "cache": 4,
    }  # fmt: skip
    return nn.Llama(nn.LlamaConfig(**sizes | given))


Case = tuple[Callable[[], Any], str]
CASES: dict[str, Case] = {
    "option": (lambda: compile_function(options={"opts": 1}), "opts"),
    "options of no mapping": (lambda: compile_function(options=["opt"]), "options"),
    "opt": (lambda: compile_function(options={"opt": 7}), "7"),
    "pass": (lambda: compile_function(options={"skip_passes": ["nothing"]}), "nothing"),
    "isa": (lambda: compile_function(options={"isa": "mmx"}), "mmx"),
    "target": (lambda: compile_function(options={"target": "sm_1"}), "sm_1"),
    "states of a function": (lambda: compile_function(options={"states": [("a", "b")]}), "states"),
    "results of a function": (lambda: compile_function(options={"results": ["a"]}), "results"),
    "precision": (lambda: compile_function(precision="f8"), "f8"),
    "device": (lambda: compile_function(device="tpu"), "tpu"),
    "ordinal of the CPU": (lambda: compile_function(device="cpu:1"), "cpu:1"),
    "threads": (lambda: compile_function(threads=-1), "-1"),
    "dims of no mapping": (lambda: compile_function(dims=["n"]), "dims"),
    "dims": (lambda: compile_function(dims=DIMS | {"m": 3}), "m"),
    "dims of a trace": (lambda: aicf.trace(plus, SPEC, dims=DIMS | {"m": 3}), "m"),
    "dims of a Program": (lambda: aicf.compile(aicf.trace(plus, SPEC, dims=DIMS), dims={"m": 3}), "m"),
    "inputs of a Program": (lambda: aicf.compile(loss_program(), [np.ones(3)]), "inputs"),
    "dims of ONNX": (lambda: compile_onnx(dims={"batch": 2, "m": 3}), "m"),
    "inputs of ONNX": (lambda: compile_onnx(inputs={"m": np.ones(3)}), "m"),
    "states of ONNX": (lambda: compile_onnx(options={"states": [("a", "b")]}), "a"),
    "results of ONNX": (lambda: compile_onnx(options={"results": ["a"]}), "a"),
    "input of a call": (lambda: compile_function()(x=np.ones((2, 8), "f"), z=np.ones(1)), "z"),
    "entry": (lambda: compile_function().run_entry("zero"), "zero"),
    "train option": (lambda: train(options={"opts": 1}), "opts"),
    "states of a step": (lambda: train(options={"states": [("a", "b")]}), "states"),
    "train dims": (lambda: train(dims={"m": 3}), "m"),
    "train precision": (lambda: train(precision="f8"), "f8"),
    "accumulate": (lambda: train(accumulate=0), "accumulate"),
    "clip_norm": (lambda: train(clip_norm=-1.0), "clip_norm"),
    "eval_inputs of a Program": (
        lambda: aicf.compile_train_step(loss_program(), None, optim.SGD(1.0), eval_inputs=PAIR), "eval_inputs"
    ),
    "dims of a trained Program": (
        lambda: aicf.compile_train_step(loss_program(), None, optim.SGD(1.0), dims=DIMS), "dims"
    ),
    "seed of a trained Program": (
        lambda: aicf.compile_train_step(loss_program(), None, optim.SGD(1.0), seed=3), "seed"
    ),
    "pattern": (lambda: grouped(optim.Group(["l.*", "m.*"])), "m.*"),
    "group behind another": (lambda: grouped(optim.Group(["*"]), optim.Group(["l.W"])), "l.W"),
    "group of nothing": (lambda: optim.Group([]), "[]"),
    "trainable": (lambda: optim.Group(["*"], trainable="no"), "trainable"),  # type: ignore[arg-type]
    "nesterov": (lambda: optim.SGD(0.1, momentum=0.9, nesterov="no"), "nesterov"),  # type: ignore[arg-type]
    "nesterov alone": (lambda: optim.SGD(0.1, nesterov=True), "nesterov"),
    "dynamic": (lambda: optim.LossScale(dynamic="no"), "dynamic"),  # type: ignore[arg-type]
    "growth of a fixed scale": (lambda: optim.LossScale(dynamic=False, growth=4.0), "growth"),
    "bias of a linear": (lambda: nn.Linear(3, 3, bias="no"), "bias"),  # type: ignore[arg-type]
    "bias of a norm": (lambda: nn.LayerNorm(3, bias=0), "bias"),  # type: ignore[arg-type]
    "bias of a convolution": (lambda: nn.Conv2d(3, 3, 3, bias="no"), "bias"),  # type: ignore[arg-type]
    "causal": (lambda: nn.MultiheadAttention(8, 2, causal="no"), "causal"),  # type: ignore[arg-type]
    "reduction": (lambda: nn.MSELoss(reduction="none"), "none"),
    "smoothing": (lambda: nn.CrossEntropyLoss(label_smoothing=3.0), "3.0"),
    "name of an op": (lambda: register(name="plus"), "plus"),
    "results of an op": (lambda: register(results=3), "results"),
    "attributes of an op": (lambda: register(attributes={"k": "x"}), "k"),
    "kernel of an op": (lambda: register(cuda="kernel.cu"), "cuda"),
    "function of an op": (lambda: register(cpu="function"), "cpu"),
    "threads of a GPU": (lambda: compile_function(device="cuda", threads=2), "threads=2"),
    "instructions of a GPU": (lambda: compile_function(device="cuda", options={"isa": "avx2"}), 'isa="avx2"'),
    "threads of a load on a GPU": (lambda: aicf.load(saved(), device="cuda:1", threads=2), "threads=2"),
    "threads of a step on a GPU": (lambda: train(device="cuda", threads=2), "threads=2"),
    "pure halves without halves": (lambda: train(precision="bf16-pure"), "bf16-pure"),
    "memory of the CPU": (lambda: aicf.load(saved(), device_memory_limit=1 << 20), "cpu"),
    "seed beside inputs": (lambda: compile_function().verify(2, inputs={"x": ROWS}, seed=0), "seed"),
    "sizes beside inputs": (lambda: compile_function().verify(2, inputs={"x": ROWS}, dims={"n": 2}), "dims"),
    "seed without inputs": (lambda: aicf.compile(constant).verify(2, seed=1), "seed"),
    "inputs of no mapping": (lambda: compile_function().verify(2, inputs=[]), "inputs"),
    "stream of the CPU": (lambda: compile_function().use_stream(7), "cpu"),
    "stream of a run on the CPU": (lambda: compile_function().run_into([ROWS], [ROWS * 0], stream=7), "cpu"),
    "heads of a decoder": (lambda: llama(heads=5, kv_heads=2), "5"),
    "windows of a decoder": (lambda: llama(windows=(3, 3)), "windows"),
    "dtype of a decoder": (lambda: llama(dtype="i64"), "i64"),
    "option of ONNX's backend": (lambda: onnx_backend(precision="f32"), "precision"),
    "option of its run": (lambda: onnx_backend(run={"threads": 1}), "threads"),
    "inputs of its run": (lambda: onnx_backend(np.ones(3)), "2"),
}  # fmt: skip


def assert_refused(case: Case) -> None:
    call, said = case
    with pytest.raises(aicf.Error) as refused:
        call()
    error = refused.value
    assert error.code.startswith("AICF-U")
    assert said in " ".join([error.op, error.value, error.actual])


@pytest.mark.parametrize("name", CASES)
def test_refused(name: str) -> None:
    assert_refused(CASES[name])


def _torch_cases() -> dict[str, Case]:
    torch = pytest.importorskip("torch")
    import aicf.torch as door

    model, x = torch.nn.Linear(3, 3), torch.ones(2, 3)

    def compiled(**given: Any) -> Any:
        return aicf.compile(model, (x,), **given)

    def backend(**given: Any) -> Any:
        try:
            return torch.compile(model, backend="aicf", **given)(x)
        except Exception as error:  # torch's own class around ours
            raise error.__cause__ or getattr(error, "inner_exception", error) from None

    exported = torch.export.export(model, (x,))
    return {
        "dims without an axis": (lambda: compiled(dims={"batch": "1..8"}), "batch"),
        "dims of another argument": (lambda: compiled(dims={"y": {0: "b=1..8"}}), "y"),
        "dims of more axes": (lambda: compiled(dims={"input": ["b=1..8", None, None]}), "3"),
        "dims of a number": (
            lambda: aicf.compile(lambda a, k: a * k, (x, 3), dims={"k": {0: "b=1..8"}}), "3"
        ),
        "dims of no mapping": (lambda: compiled(dims=["b"]), "dims"),
        "dims of an exported program": (lambda: aicf.compile(exported, dims={"b": "1..8"}), "b"),
        "dims of an imported one": (lambda: door.import_program(exported, dims={"b": "1..8"}), "b"),
        "inputs of an exported program": (lambda: aicf.compile(exported, (x,)), "inputs"),
        "states": (lambda: compiled(options={"states": [("a", "b")]}), "states"),
        "precision of a report": (lambda: door.precision_report(model, (x,), "f8"), "f8"),
        "option of the backend": (lambda: backend(options={"opts": 1}), "opts"),
        "fallback": (lambda: backend(options={"fallback": "torch"}), "torch"),
        "mode of torch.compile": (lambda: backend(mode="max-autotune"), "max-autotune"),
        "pattern": (
            lambda: train(torch.nn.Linear(3, 3), optimizer=optim.SGD(1.0, groups=[optim.Group(["m"])])), "m"
        ),
        "option of a decoder": (
            lambda: door.compile_causal_lm(model, max_length=8, options={"opts": 1}), "opts"
        ),
        "batch of a decoder": (lambda: door.compile_causal_lm(model, max_length=8, batch=0), "batch"),
        "option of a translator": (
            lambda: door.compile_seq2seq_lm(model, x, max_length=8, options={"opts": 1}), "opts"
        ),
    }  # fmt: skip


_TORCH = (
    "dims without an axis", "dims of another argument", "dims of more axes", "dims of a number",
    "dims of no mapping", "dims of an exported program", "dims of an imported one",
    "inputs of an exported program", "states", "precision of a report", "option of the backend", "fallback",
    "mode of torch.compile", "pattern", "option of a decoder", "batch of a decoder", "option of a translator",
)  # fmt: skip


@pytest.mark.parametrize("name", _TORCH)
def test_refused_by_the_torch_door(name: str) -> None:
    cases = _torch_cases()
    assert list(cases) == list(_TORCH)
    assert_refused(cases[name])


def test_support_says_it_too() -> None:
    torch = pytest.importorskip("torch")
    found = aicf.support(torch.nn.Linear(3, 3), (torch.ones(2, 3),), dims={"batch": "1..8"})
    assert not found and "no axis has" in str(found)


def test_a_size_of_one_value_is_fixed() -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(3, 3)
    exe = aicf.compile(model, (torch.ones(2, 3),), dims={"input": {0: "batch"}, "batch": 5})
    assert [tuple(info.shape) for info in exe.inputs] == [(5, 3)]


@pytest.mark.parametrize(
    ("temperature", "top_k", "said"), [(0.0, 5, "top_k"), (-1.0, None, "-1"), (1.0, 0, "0")]
)
def test_choices_of_tokens(temperature: float, top_k: int | None, said: str) -> None:
    pytest.importorskip("torch")
    from aicf.torch.generation import chooser

    with pytest.raises(aicf.UserError) as refused:
        chooser(temperature, top_k, None)
    assert said in refused.value.value + refused.value.actual


_VARIABLES = (
    "AICF_NUM_THREADS", "AICF_MAX_MEMORY", "AICF_MAX_SECONDS", "AICF_WARMUP", "AICF_LOG_LEVEL", "AICF_DEBUG",
    "AICF_JIT", "AICF_VENDOR_LIBRARIES",
)  # fmt: skip


@pytest.mark.parametrize("name", _VARIABLES)
def test_environment_variables(name: str) -> None:
    code = "import aicf, numpy as np\nx = np.ones(8)\naicf.compile(lambda x: x + 1, [x])(x)"
    environment = os.environ | {name: "nonsense"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.returncode and "AICF-U0001" in done.stderr and name in done.stderr
