"""Files that change while they are in use, and what killed writers left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import aicf
import numpy as np
import pytest
from cli_program import FIXED, Cli

X = np.random.default_rng(0).standard_normal((3, 16)).astype("f")


def test_a_model_whose_file_is_cut_off_in_use_runs_on(cli: Cli, tmp_path: Path) -> None:
    """In a process of its own: a fault would be a signal."""
    cli.run("compile", "m.onnx", *FIXED)
    script = """if True:
        import sys
        import aicf
        import numpy as np
        exe = aicf.load("m.aicf")
        x = np.ones((3, 16), "f")
        before = np.asarray(exe(x))
        for text in (open("m.aicf", "rb").read()[::-1], b"", b"short"):
            with open("m.aicf", "wb") as file:
                file.write(text)
            try:
                assert (np.asarray(exe(x)) == before).all()
                assert (np.asarray(exe.clone()(x)) == before).all()
                print("same")
            except aicf.EnvError as error:
                print(error.code)
        """
    command = [sys.executable, "-c", script]
    whole = (tmp_path / "m.aicf").read_bytes()
    for copied, answer in (("1G", "same"), ("0", "AICF-E0007")):
        (tmp_path / "m.aicf").write_bytes(whole)
        environment = {**os.environ, "AICF_COPIED_FILES": copied}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert done.stdout.split() == [answer] * 3


def test_a_file_that_is_cut_off_while_the_tool_reads_it_ends_in_an_error(cli: Cli, tmp_path: Path) -> None:
    cli.run("compile", "m.onnx", *FIXED)
    environment = {**os.environ, "AICF_COPIED_FILES": "0"}
    command = [cli.path, "verify", "m.aicf", "-n", "1000000000"]
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.5)
    os.truncate(tmp_path / "m.aicf", 0)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 3 and "error[AICF-E0007]" in said, said


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs signals")
def test_the_next_writer_of_each_kind_removes_what_a_killed_one_left(cli: Cli, tmp_path: Path) -> None:
    def leave(folder: Path) -> Path:
        folder.mkdir(exist_ok=True)
        left = folder / ".aicf.tmp.4194304.0"
        left.write_bytes(b"half of it")
        return left

    left = leave(tmp_path)
    cli.run("compile", "m.onnx", *FIXED)
    assert not left.exists()
    left = leave(tmp_path / "out")
    cli.run("run", "m.aicf", "--output-dir", "out")
    assert not left.exists()
    left = leave(tmp_path)
    aicf.nn.save_safetensors(tmp_path / "w.safetensors", {"x": X})
    assert not left.exists()
