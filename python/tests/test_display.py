"""What `repr` and a notebook show."""

from __future__ import annotations

import aicf
import numpy as np
import pytest
from aicf import nn, ops, optim
from onnx import TensorProto, helper


def executable() -> aicf.Executable:
    spec = aicf.TensorSpec(("n", 8), "f32", "<x>")
    return aicf.compile(lambda x: ops.relu(x), [spec], dims={"n": "1..4"})


def test_an_executable_shows_its_signature() -> None:
    text = repr(executable())
    assert text.startswith("<aicf.Executable ") and "f32[n, 8] -> " in text and "kernels>" in text


def test_a_plan_shows_its_numbers_and_not_its_tables() -> None:
    plan = executable().plan
    assert f"kernels={plan.kernels}" in repr(plan) and len(repr(plan)) < 120 < len(str(plan))


def test_a_train_step_shows_how_far_it_is() -> None:
    step = aicf.compile_train_step(
        nn.Linear(4, 2),
        loss=nn.CrossEntropyLoss(),
        optimizer=optim.SGD(0.1),
        inputs=[aicf.TensorSpec((3, 4)), aicf.TensorSpec((3,), "i64", "labels")],
    )
    assert repr(step).endswith(" 0 steps done>")
    step(np.ones((3, 4), np.float32), np.zeros(3, np.int64))
    assert repr(step).endswith(" 1 steps done>") and "labels: i64[3]" in repr(step)
    assert "<caption>TrainStep</caption>" in step._repr_html_()


@pytest.mark.parametrize("what", ["executable", "plan"])
def test_a_notebook_escapes_names(what: str) -> None:
    exe = executable()
    html = exe._repr_html_() if what == "executable" else exe.plan._repr_html_()
    assert "<x>" not in html and html.startswith("<table><caption>")
    assert what == "plan" or "&lt;x&gt;" in html


def test_names_that_a_terminal_would_obey_are_escaped() -> None:
    evil = "a\x1b[31m\nb"
    value = helper.make_tensor_value_info
    x, y = (value(name + evil, TensorProto.FLOAT, ["n" + evil, 3]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", [x.name], [y.name])], "g" + evil, [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    exe = aicf.compile(model.SerializeToString(), dims={f"n{evil}": "1..4"})
    specs = [aicf.TensorSpec((2,), "f32", "x" + evil)]
    for text in (repr(exe), exe._repr_html_(), repr(exe.inputs), repr(aicf.compile(ops.relu, specs))):
        assert "\x1b" not in text and "\nb" not in text, text


def test_a_program_shows_its_entries() -> None:
    program = aicf.trace(lambda x: ops.relu(x), [aicf.TensorSpec((2, 8))])
    assert repr(program) == "<aicf.Program main: 1 ops>"
    assert program._repr_html_().startswith("<details><summary>&lt;aicf.Program main")
