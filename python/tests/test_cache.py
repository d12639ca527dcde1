"""AICF_CACHE_DIR as several processes use it, and without a compiler; test_kill.py has killed ones."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

WORDS = ("compile", "m.onnx", "--dim", "batch=1..8", "--target", "sm_90,compute_80", "--records", "none")


class Folder:
    """A folder with a model and a cache."""

    def __init__(self, cli: str, path: Path) -> None:
        self.cli, self.path, self.cache = cli, path, path / "cache"

    def start(self, output: str, **variables: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [self.cli, *WORDS, "-o", output, "--json"],
            cwd=self.path,
            env={**os.environ, "AICF_CACHE_DIR": str(self.cache), **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def compile(self, output: str, code: int = 0, **variables: str) -> dict:
        process = self.start(output, **variables)
        out, err = process.communicate(timeout=120)
        assert process.returncode == code, err
        return json.loads(out)


@pytest.fixture
def folder(nvrtc: None, cli: str, mlp: bytes, tmp_path: Path) -> Folder:
    (tmp_path / "m.onnx").write_bytes(mlp)
    return Folder(cli, tmp_path)


def test_of_processes_that_want_the_same_code_one_compiles_it(folder: Folder) -> None:
    processes = [folder.start(f"{i}.aicf") for i in range(4)]
    answers = [json.loads(process.communicate(timeout=120)[0]) for process in processes]
    assert [process.returncode for process in processes] == [0] * 4
    for modules in zip(*(answer["modules"] for answer in answers), strict=True):
        assert sum(module["ms"] > 0 for module in modules) == 1, modules
    assert len({(folder.path / f"{i}.aicf").read_bytes() for i in range(4)}) == 1


def test_without_a_compiler_a_model_is_compiled_from_the_cache_or_refused(folder: Folder) -> None:
    error = folder.compile("none.aicf", code=2, AICF_JIT="0")["error"]
    assert error["code"] == "AICF-U0002" and "AICF_JIT=0" in error["message"] and error["remedy"]
    assert not (folder.path / "none.aicf").exists()
    folder.compile("whole.aicf")
    moved = folder.path / "moved"
    folder.cache.rename(moved)
    answer = folder.compile("again.aicf", AICF_JIT="0", AICF_CACHE_DIR=str(moved))
    assert [module["ms"] for module in answer["modules"]] == [0] * len(answer["modules"])
    assert (folder.path / "again.aicf").read_bytes() == (folder.path / "whole.aicf").read_bytes()


def test_a_cache_that_is_no_folder_is_named(folder: Folder) -> None:
    folder.cache.write_text("")
    error = folder.compile("m.aicf", code=2)["error"]
    assert error["code"] == "AICF-U0001" and error["value"] == str(folder.cache)
