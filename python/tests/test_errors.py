"""Every mistake is a coded error whose fields say what to do."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aicf
import numpy as np
import pytest

X = np.zeros((2, 16), "f")


def fail(call: Callable[[], Any]) -> aicf.Error:
    with pytest.raises(aicf.Error) as caught:
        call()
    return caught.value


@pytest.fixture(scope="module")
def exe(mlp: bytes) -> aicf.Executable:
    return aicf.compile(mlp, dims={"batch": "1..8"}, threads=1)


def test_fields(exe: aicf.Executable) -> None:
    error = fail(lambda: exe(X.astype("d")))
    assert isinstance(error, aicf.UserError)
    assert (error.code, error.name, error.kind) == ("AICF-U0402", "input_dtype", "user")
    assert (error.expected, error.actual) == ("f32", "f64")
    assert error.remedy and error.remedy in str(error) and error.code in str(error)
    assert fail(lambda: exe(q=X)).value == "q"


@pytest.mark.parametrize(
    ("name", "args", "by_name"),
    [
        ("missing_input", (), {}),
        ("unknown_input", (), {"q": X}),
        ("unknown_input", (X, X), {}),
        ("misuse", (X,), {"x": X}),
        ("input_shape", (X[0],), {}),
        ("input_shape", (X[:, :15],), {}),
        ("size_out_of_range", (np.zeros((9, 16), "f"),), {}),
        ("input_dtype", ([1.0],), {}),
        ("input_dtype", (X.astype("complex64"),), {}),
        ("input_dtype", (X.astype("f2").view("u2"),), {}),
    ],
)
def test_calls(exe: aicf.Executable, name: str, args: tuple[Any, ...], by_name: dict[str, Any]) -> None:
    assert fail(lambda: exe(*args, **by_name)).name == name


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("unset_size", {}),
        ("bad_option", {"dims": {"batch": 1}, "device": "tpu"}),
        ("unsupported_option", {"dims": {"batch": 1}, "precision": "bf16-pure"}),
        ("bad_option", {"dims": {"batch": 1}, "options": {"opt_level": 1}}),
        ("bad_option", {"dims": {"batch": 1.5}}),
        ("bad_option", {"dims": {"batch": 1}, "options": {"isa": "mmx"}}),
        ("bad_option", {"dims": {"batch": 1}, "options": {"isa": 3}}),
        ("bad_option", {"dims": {"batch": 1}, "options": {"target": 3}}),
        ("bad_option", {"dims": {"batch": 1}, "options": {"skip_passes": [3]}}),
        ("bad_option", {"dims": {"batch": 1}, "options": {"states": "ab"}}),
        ("bad_option", {"dims": {"batch": 1}, "options": {"states": [("x", "y", "z")]}}),
        ("bad_option", {"dims": {"batch": 1}, "options": {"states": {"x": 3}}}),
        ("bad_option", {"dims": {0: 1}}),
        ("bad_option", {"dims": {"batch": 1}, "options": 3}),
        ("bad_option", {"dims": {"batch": 1}, "device": None}),
        ("bad_option", {"dims": {"batch": 1}, "precision": None}),
        ("bad_option", {"dims": {"batch": 1}, "inputs": 3}),
        ("bad_option", {"dims": {"batch": 1}, "inputs": np.ones((2, 16), np.float32)}),
    ],
)
def test_compile_options(mlp: bytes, name: str, options: dict[str, Any]) -> None:
    assert fail(lambda: aicf.compile(mlp, **options)).name == name


def test_files(tmp_path: Path, mlp: bytes) -> None:
    assert fail(lambda: aicf.load(tmp_path / "none.aicf")).name == "file_not_found"
    assert fail(lambda: aicf.compile(str(tmp_path / "none.onnx"))).name == "file_not_found"
    assert fail(lambda: aicf.compile(mlp[:100])).name == "bad_model_file"
    assert fail(lambda: aicf.compile(12)).name == "bad_option"
    (tmp_path / "junk.aicf").write_bytes(b"junk" * 10)
    assert fail(lambda: aicf.load(tmp_path / "junk.aicf")).kind == "user"
    for use in (aicf.load, aicf.compile(mlp, dims={"batch": 1}).save):
        error = fail(lambda use=use: use(f"{tmp_path}/junk.aicf\0more"))
        assert error.kind == "user" and "NUL" in str(error)
    assert [path.name for path in tmp_path.iterdir()] == ["junk.aicf"]


@pytest.mark.parametrize("name", ["m.aicf", "m.onnx", "m"])
def test_a_compiled_file_is_not_compiled_again(name: str, exe: aicf.Executable, tmp_path: Path) -> None:
    exe.save(tmp_path / name)
    error = fail(lambda: aicf.compile(tmp_path / name))
    assert error.name == "bad_option" and "aicf.load(" in error.remedy
    assert aicf.load(tmp_path / name).inputs


def test_support_of_what_is_no_torch_module_says_where_to_ask(tmp_path: Path) -> None:
    error = fail(lambda: aicf.support("m.onnx"))
    assert error.name == "bad_option" and "aicf support" in error.remedy


@pytest.mark.parametrize("path", ["m\udcff.aicf", b"m\xff.aicf", 3, None, ""], ids=repr)
def test_what_is_no_path_in_utf8(exe: aicf.Executable, path: Any) -> None:
    uses = [exe.save, aicf.load, aicf.load_train_step, aicf.load_safetensors]
    uses += [lambda p: aicf.save_safetensors(p, {"x": X}), aicf.nn.Linear(2, 2).load_safetensors]
    if not isinstance(path, (int, bytes)):  # bytes are a model
        uses.append(aicf.compile)
    for use in uses:
        assert fail(lambda use=use: use(path)).name == "bad_option"


def test_paths_may_be_bytes(exe: aicf.Executable, tmp_path: Path) -> None:
    exe.save(bytes(tmp_path / "a.aicf"))
    assert aicf.load(bytes(tmp_path / "a.aicf"))(X).shape == (2, 8)


@pytest.mark.parametrize(
    "call",
    [
        lambda exe: exe.verify("a"),
        lambda exe: exe.verify(2.5),
        lambda exe: exe.verify(2**70),
        lambda exe: exe.verify(2, seed=-1),
        lambda exe: exe.verify(2, dims={"batch": 1.5}),
        lambda exe: exe.verify(2, dims={3: 1}),
        lambda exe: exe.verify(2, dims=[3]),
        lambda exe: exe.verify(2, inputs=[X]),
        lambda exe: exe.verify(2, inputs={3: X}),
        lambda exe: exe.run_entry(3, X),
        lambda exe: exe.run_into(3, 4),
        lambda exe: exe.run_into(None, None),
        lambda exe: exe(**{"x\udcff": X}),
        lambda exe: exe.load_state_dict(3),
        lambda exe: exe.load_state_dict({3: X}),
        lambda exe: aicf.load("m.aicf", threads="2"),
        lambda exe: aicf.load("m.aicf", threads=2.0),
        lambda exe: aicf.load("m.aicf", threads=2**40),
        lambda exe: aicf.load("m.aicf", device=None),
        lambda exe: aicf.load("m.aicf", isa=5),
        lambda exe: aicf.load("m.aicf", device_memory_limit="1G"),
        lambda exe: aicf.load_train_step("m.aicf", threads="2"),
        lambda exe: aicf.compile("m.onnx", options={"results": [3]}),
        lambda exe: aicf.compile("m.onnx", dims={"b\udcff": 1}),
        lambda exe: aicf.save_safetensors("a", None),
        lambda exe: aicf.save_safetensors("a", {3: X}),
        lambda exe: aicf.save_safetensors("a", {"a\udcff": X}),
        lambda exe: aicf.save_safetensors("a", {"a": X}, {"k": 3}),
    ],
)
def test_wrong_types(
    exe: aicf.Executable, call: Callable[[Any], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    error = fail(lambda: call(exe))
    assert error.name == "bad_option" and error.actual and error.expected
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("f16", "f16"),
        ("f16", "float16"),
        ("f16", np.float16),
        ("f64", np.dtype(">f8")),
        ("bool", np.bool_),
        ("bool", bool),
    ],
)
def test_dtypes_by_name_or_as_numpy_has_them(name: str, dtype: Any) -> None:
    assert aicf.TensorSpec((2,), dtype).dtype == name
    assert aicf.nn.State(shape=(2,), dtype=dtype).dtype == name
    exe = aicf.compile(lambda x: x.astype(dtype), [aicf.TensorSpec((2,))])
    assert exe(np.ones(2, "f")).dtype == name


@pytest.mark.parametrize("dtype", ["float99", np.complex64, None, 3, []], ids=repr)
def test_no_dtype(dtype: Any) -> None:
    error = fail(lambda: aicf.TensorSpec((2,), dtype))
    assert error.name == "unsupported_dtype" and "bf16" in error.expected


@pytest.mark.parametrize("shape", [None, 3, "n", (-1,), (1.5,), (None,)], ids=repr)
def test_no_shape(shape: Any) -> None:
    assert fail(lambda: aicf.TensorSpec(shape)).name == "bad_option"


@pytest.mark.parametrize("dtype", [">f4", "O", "U1", "M8[s]", "g"])
def test_an_array_that_nobody_hands_out_is_named_by_its_dtype(exe: aicf.Executable, dtype: str) -> None:
    error = fail(lambda: exe(np.zeros((2, 16), dtype)))
    assert error.name == "input_dtype" and str(np.dtype(dtype)) in error.actual and error.remedy
    assert fail(lambda: exe(X.astype("complex64"))).actual == "complex of 64 bits"


def test_a_bf16_result_is_no_numpy_array() -> None:
    exe = aicf.compile(aicf.trace(lambda x: x.astype("bf16"), [aicf.TensorSpec((2,))]))
    y = exe(np.ones(2, "f"))
    assert y.dtype == "bf16"
    assert fail(y.numpy).name == "unsupported_dtype"
    back = aicf.compile(aicf.trace(lambda x: x.astype("f32"), [aicf.TensorSpec((2,), "bf16")]))
    assert np.array_equal(back(y), np.ones(2, "f"))


ROOT = Path(__file__).resolve().parents[2]
# Where options are spelled: ours, NVRTC's, and those of skl2onnx.
SPELLED = {"base/option_text.cc", "codegen/nvrtc.cc", "import/onnx_ops/ml.cc"}


def test_no_text_of_the_library_spells_an_option_by_itself() -> None:
    """Errors reach Python, C++ and the command line; option_text writes what to give in the words of each."""
    source = ROOT / "src"
    if not source.exists():
        pytest.skip("needs the tree")
    found = [
        f"{path.relative_to(source)}: {literal}"
        for path in source.rglob("*.cc")
        if not path.name.endswith("_test.cc") and str(path.relative_to(source)) not in SPELLED
        for line in path.read_text(encoding="utf-8").splitlines()
        if not line.lstrip().startswith("//")
        for literal in re.findall(r'"(?:[^"\\]|\\.)*"', line)
        if re.search(r"(?<![\w-])--[a-z]|[a-z_]=\{|options=", literal)
    ]
    assert not found


# Mistakes with sizes and targets: what Python gives, and the words of the same on the command line.
MISTAKES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "a size is not set": ({}, []),
    "a size is named twice": ({"dims": {"x:0": "8", "batch": "4"}}, ["--dim", "x:0=8", "--dim", "batch=4"]),
    "no pass of this name": (
        {"dims": {"batch": "8"}, "options": {"skip_passes": ["none"]}},
        ["--dim", "batch=8", "--skip", "none"],
    ),
    "no such level": ({"dims": {"batch": "8"}, "options": {"opt": 7}}, ["--dim", "batch=8", "--opt", "7"]),
    "a target twice": (
        {"dims": {"batch": "8"}, "options": {"target": "cpu,cpu"}},
        ["--dim", "batch=8", "--target", "cpu,cpu"],
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_errors_speak_the_callers_language(name: str, mlp: bytes, cli: str, tmp_path: Path) -> None:
    given, words = MISTAKES[name]
    python = str(fail(lambda: aicf.compile(mlp, **given)))
    (tmp_path / "m.onnx").write_bytes(mlp)
    asked = subprocess.run([cli, "compile", "m.onnx", *words], cwd=tmp_path, capture_output=True, text=True)
    assert asked.returncode == 2
    assert "--" not in python and re.search(r"dims=\{|options=\{", python), python
    assert "={" not in asked.stderr and "--" in asked.stderr, asked.stderr


def test_a_size_beyond_the_range_names_the_argument(exe: aicf.Executable) -> None:
    assert 'dims={"batch": "LO..HI"}' in fail(lambda: exe(np.zeros((9, 16), "f"))).remedy
