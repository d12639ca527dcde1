"""A stranger's names may hold anything; a terminal is shown none of it raw."""

from __future__ import annotations

import json
import re
from pathlib import Path

import aicf
import numpy as np
import onnx
import pytest
from cli_program import Cli
from onnx import TensorProto, helper, numpy_helper

EVIL = "a\x1b[31m\x07\nerror[AICF-U0000]: forged\r\u202ex\u009b2J"
# What moves a cursor, colours, or turns the writing; line breaks are ours.
ACTS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def shown_well(text: str) -> None:
    assert not ACTS.search(text), repr(text)
    assert "\nerror[AICF-U0000]" not in text, text


@pytest.fixture
def evil(tmp_path: Path) -> Path:
    """Input, output, weight, node and size have that name."""
    x = helper.make_tensor_value_info("x" + EVIL, TensorProto.FLOAT, ["n" + EVIL, 3])
    y = helper.make_tensor_value_info("y" + EVIL, TensorProto.FLOAT, None)
    w = numpy_helper.from_array(np.eye(3, dtype="f"), "w" + EVIL)
    nodes = [
        helper.make_node("MatMul", ["x" + EVIL, "w" + EVIL], ["h" + EVIL], name="m" + EVIL),
        helper.make_node("Softmax", ["h" + EVIL], ["y" + EVIL], name="s" + EVIL),
    ]
    graph = helper.make_graph(nodes, "g" + EVIL, [x], [y], [w])
    path = tmp_path / "evil.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_every_verb_shows_names_as_their_codes(cli: Cli, evil: Path) -> None:
    dim = ("--dim", f"x{EVIL}:0=2")
    sized = ("--dim", f"n{EVIL}=2")
    done = cli.run("compile", "evil.onnx", *sized, "-o", "evil.aicf")
    shown_well(done.stdout + done.stderr)
    for words in (
        ("run", "evil.aicf", "--output-dir", "out"),
        ("inspect", "evil.aicf", "--check"),
        ("explain", "evil.aicf"),
        ("explain", "evil.onnx", *sized),
        ("support", "evil.onnx"),
        ("bench", "evil.aicf", "--repeat", "2"),
        ("verify", "evil.aicf", "-n", "2"),
        ("validate", "evil.onnx", *sized),
        ("profile", "evil.aicf", "-o", "trace.json"),
        ("compile", "evil.onnx", *sized, "--stop-after", "import", "--print"),
        ("compile", "evil.onnx", *sized, "--stop-after", "plan", "--print"),
    ):
        done = cli.run(*words, AICF_LOG_LEVEL="debug", AICF_DEBUG="4")
        shown_well(done.stdout + done.stderr)
    for words in (
        ("export", "evil.aicf", "-o", "part.aicf"),
        ("tune", "evil.onnx", *sized, "--output", "r.csv", "--samples", "1", "--count", "2"),
    ):
        done = cli.run(*words, AICF_LOG_LEVEL="debug", AICF_DEBUG="4")
        shown_well(done.stdout + done.stderr)
    for words in (
        ("compile", "evil.onnx"),
        ("export", "evil.aicf", "-o", "part.aicf", "--entry", EVIL),
        ("tune", "evil.onnx"),
        ("compile", "evil.onnx", *dim, "--dim", f"q{EVIL}=3"),
        ("run", "evil.aicf", "--input", f"q{EVIL}=random"),
        ("run", f"none{EVIL}.aicf"),
    ):
        shown_well(cli.run(*words, code=2).stderr)


def test_a_strangers_step_trains_under_its_codes(cli: Cli) -> None:
    step = aicf.compile_train_step(
        aicf.nn.Linear(3, 2),
        aicf.nn.MSELoss(),
        aicf.optim.SGD(0.1),
        [aicf.TensorSpec((2, 3), name="x" + EVIL), aicf.TensorSpec((2, 2), name="t" + EVIL)],
    )
    step.save(cli.folder / "step.aicf")
    np.save(cli.folder / "x.npy", np.ones((4, 3), "f"))
    np.save(cli.folder / "t.npy", np.ones((4, 2), "f"))
    given = ("step.aicf", "--data", "x.npy", "--labels", "t.npy", "-o", "t.aicf")
    done = cli.run("train", *given, "--steps", "2", AICF_LOG_LEVEL="debug", AICF_DEBUG="4")
    shown_well(done.stdout + done.stderr)
    for words in (given[:3], (*given, "--data", f"q{EVIL}=x.npy")):
        shown_well(cli.run("train", *words, "--steps", "2", code=2).stderr)


def test_an_entry_may_have_such_a_name(cli: Cli) -> None:
    graph = aicf._aicf.Graph("main" + EVIL)
    x = graph.add_input("x", "f32", [2])
    graph.add_output(graph.add_node("neg", [x], {}, "", [])[0], "y")
    aicf.compile(aicf._aicf.make_program({}, [], [graph])).save(cli.folder / "entry.aicf")
    for words in (("bench", "--repeat", "1"), ("export", "-o", "e.aicf"), ("run",), ("inspect",)):
        done = cli.run(words[0], "entry.aicf", *words[1:])
        shown_well(done.stdout + done.stderr)


def test_json_and_bindings_keep_the_names(cli: Cli, evil: Path) -> None:
    cli.run("compile", "evil.onnx", "--dim", f"n{EVIL}=2", "-o", "evil.aicf")
    answer = json.loads(cli.run("run", "evil.aicf", "--json").stdout)
    assert answer["outputs"][0]["name"] == "y" + EVIL
    exe = aicf.load(str(evil.with_suffix(".aicf")))
    assert exe(**{"x" + EVIL: np.eye(2, 3, dtype="f")}) is not None
    shown_well(exe.explain())
    shown_well(str(exe.plan))
    with pytest.raises(aicf.UserError) as caught:
        exe(**{"q" + EVIL: np.zeros(3, "f")})
    assert caught.value.value == "q" + EVIL
    shown_well(str(caught.value))
