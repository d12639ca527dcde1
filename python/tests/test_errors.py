"""Every mistake is a coded error whose fields say what to do."""

from __future__ import annotations

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


def test_a_bf16_result_is_no_numpy_array() -> None:
    exe = aicf.compile(aicf.trace(lambda x: x.astype("bf16"), [aicf.TensorSpec((2,))]))
    y = exe(np.ones(2, "f"))
    assert y.dtype == "bf16"
    assert fail(y.numpy).name == "unsupported_dtype"
    back = aicf.compile(aicf.trace(lambda x: x.astype("f32"), [aicf.TensorSpec((2,), "bf16")]))
    assert np.array_equal(back(y), np.ones(2, "f"))
