"""The examples of the README really run, and every command on a page has the options it is written with."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).resolve().parents[2]


def block(language: str, number: int = 0) -> str:
    """The example of this language that stands at this place among them."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)
    assert len(found) > number, f"the README has no {language} example {number}"
    return found[number]


def write_model(path: Path) -> None:
    weight = numpy_helper.from_array(np.ones((16, 4), np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])],
        "readme",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])],
        [weight],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def run_python(number: int, folder: Path) -> str:
    """What the README's Python example of this number prints."""
    finished = subprocess.run(
        [sys.executable, "-c", block("python", number)], cwd=folder, capture_output=True, text=True
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.rstrip()


def test_python_example(tmp_path: Path) -> None:
    write_model(tmp_path / "model.onnx")
    assert run_python(0, tmp_path).endswith("True")
    assert (tmp_path / "model.aicf").exists()


def test_function_example(tmp_path: Path) -> None:
    assert run_python(1, tmp_path) == "(5, 3)"


def test_torch_example(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    assert run_python(2, tmp_path) == "torch.Size([3, 4])"


def test_training_example(tmp_path: Path) -> None:
    first, last, passed = run_python(3, tmp_path).split()
    assert float(last) < 0.1 * float(first) and passed == "True"
    assert (tmp_path / "train.aicf").exists()


def test_training_example_goes_on_at_a_rate(cli: str, tmp_path: Path) -> None:
    """`aicf train` has steps of the schedule left, as many as the README's command takes."""
    run_python(3, tmp_path)
    x = np.random.default_rng(0).standard_normal((64, 16)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", x[:, :4].argmax(1))
    commands = [
        line.split("#")[0].split()[1:]
        for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
        if re.match(r"build/bin/aicf (train train|run trained|export trained)", line)
    ]
    assert [words[0] for words in commands] == ["train", "run", "export"]
    for words in commands:
        done = subprocess.run([cli, *words, "--json"], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        if words[0] == "train":
            assert json.loads(done.stdout)["rate"] > 0


def test_cpp_example(tmp_path: Path) -> None:
    library = ROOT / "build" / "lib"
    if not (library / "libaicf.so").exists():
        pytest.skip("libaicf.so is not built: run make build")
    (tmp_path / "example.cc").write_text(block("cpp"), encoding="utf-8")
    compiler = ["g++", "-std=c++17", f"-I{ROOT / 'include'}", "example.cc", f"-L{library}", "-laicf"]
    build = subprocess.run(
        [*compiler, f"-Wl,-rpath,{library}", "-o", "example"], cwd=tmp_path, capture_output=True, text=True
    )
    assert build.returncode == 0, build.stderr
    assert subprocess.run(["./example"], cwd=tmp_path).returncode == 0
    assert (tmp_path / "model.aicf").exists()


def test_options_on_the_pages_exist(cli: str) -> None:
    pages = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("src/**/README.md")]
    commands = {
        (verb, option)
        for page in pages
        for verb, rest in re.findall(r"\baicf ([a-z]+) ([^`|#\n]*)", page.read_text(encoding="utf-8"))
        for option in re.findall(r"(?<![\w-])--?[a-z][\w-]*", rest)
    }
    verbs = {verb for verb, _ in commands}
    help_of = {verb: subprocess.run([cli, verb, "--help"], capture_output=True, text=True) for verb in verbs}
    assert not [verb for verb, asked in help_of.items() if asked.returncode != 0]
    unknown = [
        f"{verb} {option}"
        for verb, option in commands
        if not re.search(rf"(?<![\w-]){option}(?![\w-])", help_of[verb].stdout)
    ]
    assert len(commands) > 25 and not unknown
