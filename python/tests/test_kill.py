"""A killed or failing compile leaves the old file or the new one, never a part of one."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

SOAK = os.environ.get("AICF_SOAK") == "1"
KILLS = 100 if SOAK else 6


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A chain of matrix products with 8 MB of weights, so that compiling and writing take time."""
    rng = np.random.default_rng(3)
    weights = [
        numpy_helper.from_array(rng.standard_normal((512, 512)).astype("f") / 32, f"w{i}") for i in range(8)
    ]
    nodes = []
    for i in range(8):
        nodes.append(helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"m{i}"]))
        nodes.append(helper.make_node("Relu", [f"m{i}"], [f"x{i + 1}"]))
    x = helper.make_tensor_value_info("x0", TensorProto.FLOAT, [2, 512])
    y = helper.make_tensor_value_info("x8", TensorProto.FLOAT, [2, 512])
    path = tmp_path_factory.mktemp("model") / "model.onnx"
    graph = helper.make_graph(nodes, "chain", [x], [y], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def check(cli: str, path: Path) -> None:
    finished = subprocess.run([cli, "inspect", str(path), "--check"], capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr


def timed_compile(cli: str, model: Path, out: Path) -> float:
    start = time.monotonic()
    subprocess.run([cli, "compile", str(model), "-o", str(out)], check=True, capture_output=True)
    return time.monotonic() - start


@pytest.mark.parametrize("replacing", [False, True])
def test_killed_compiles_leave_no_part_of_a_file(
    cli: str, model: Path, tmp_path: Path, replacing: bool
) -> None:
    whole = tmp_path / "whole.aicf"
    seconds = timed_compile(cli, model, whole)
    bytes_of_whole = whole.read_bytes()
    out = tmp_path / "out.aicf"
    random_number = random.Random(5)
    for _ in range(KILLS):
        if replacing:
            shutil.copy(whole, out)
        else:
            out.unlink(missing_ok=True)
        process = subprocess.Popen(
            [cli, "compile", str(model), "-o", str(out)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        time.sleep(random_number.uniform(0, 1.2 * seconds))
        process.send_signal(signal.SIGKILL)
        process.wait()
        # A kill between the last two system calls leaves another name, of a whole file.
        for path in tmp_path.iterdir():
            assert path.read_bytes() == bytes_of_whole, path
        assert out.exists() or not replacing
    timed_compile(cli, model, out)
    check(cli, out)
    assert out.read_bytes() == bytes_of_whole
    assert {path.name for path in tmp_path.iterdir()} == {"whole.aicf", "out.aicf"}


def test_killed_saves_from_python_leave_no_part_of_a_file(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.aicf"
    script = (
        "import aicf, sys\n"
        f"exe = aicf.compile({str(model)!r})\n"
        f"exe.save({str(out)!r})\n"
        "print('saved', flush=True)\n"
        f"for _ in range(1000): exe.save({str(out)!r})\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "saved\n"
    whole = out.read_bytes()
    random_number = random.Random(7)
    for _ in range(KILLS):
        time.sleep(random_number.uniform(0, 0.05))
        assert out.read_bytes() == whole  # a reader beside the writer
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert out.read_bytes() == whole


class CudaCompile:
    """Compiles for a GPU, which this machine need not have, with a folder of compiled kernels."""

    def __init__(self, cli: str, model: Path, folder: Path) -> None:
        self.cache = folder / "cache"
        self.out = folder / "out.aicf"
        self.words = [cli, "compile", str(model), "--target", "sm_90", "-o", str(self.out)]
        self.environment = {**os.environ, "AICF_CACHE_DIR": str(self.cache)}

    def start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.words, env=self.environment, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )

    def bytes(self) -> bytes:
        process = self.start()
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        return self.out.read_bytes()

    def entries(self) -> list[Path]:
        """Of every version of the compiler."""
        files = (self.cache / "cuda").glob("*/*")
        return sorted(path for path in files if path.name != "lock" and not path.name.startswith("."))


def test_killed_compiles_leave_a_sound_cache(nvrtc: None, cli: str, model: Path, tmp_path: Path) -> None:
    compiler = CudaCompile(cli, model, tmp_path)
    start = time.monotonic()
    whole = compiler.bytes()
    seconds = time.monotonic() - start
    sound = {path.name: path.read_bytes() for path in compiler.entries()}
    random_number = random.Random(11)
    for i in range(KILLS):
        if i % 2 == 0:
            shutil.rmtree(compiler.cache, ignore_errors=True)
        process = compiler.start()
        time.sleep(random_number.uniform(0, 1.2 * seconds))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        if (compiler.cache / "cuda").exists():
            for path in compiler.entries():
                assert path.read_bytes() == sound[path.name]
    assert compiler.bytes() == whole


def test_a_damaged_cache_costs_only_time(nvrtc: None, cli: str, model: Path, tmp_path: Path) -> None:
    compiler = CudaCompile(cli, model, tmp_path)
    whole = compiler.bytes()
    for number, path in enumerate(compiler.entries()):
        text = path.read_bytes()
        path.write_bytes((b"", text[:40], text[:-1], text[:-1] + bytes([text[-1] ^ 1]))[number % 4])
    assert compiler.bytes() == whole
    first = compiler.entries()[0]
    first.unlink()
    os.mkfifo(first)
    assert compiler.bytes() == whole


def files_but(folder: Path, *expected: str) -> list[str]:
    return sorted(p.name for p in folder.iterdir() if p.name not in expected)


def failing_compile(cli: str, model: Path, out: Path, **options: object) -> str:
    """A compile that must end in an environment error; what it says."""
    finished = subprocess.run(
        [cli, "compile", str(model), "-o", str(out)],
        capture_output=True,
        text=True,
        **options,  # type: ignore[call-overload]
    )
    assert finished.returncode == 3, finished.stderr
    assert "error[AICF-E0001]" in finished.stderr
    return finished.stderr


def test_a_full_disk_is_a_coded_error_and_keeps_the_old_file(cli: str, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.aicf"
    timed_compile(cli, model, out)
    whole = out.read_bytes()

    def limit_files() -> None:
        # Writes beyond the limit fail with EFBIG, as those on a full disk fail with ENOSPC.
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    failing_compile(cli, model, out, preexec_fn=limit_files)
    assert out.read_bytes() == whole
    assert files_but(tmp_path, "out.aicf") == []


def test_a_full_device_is_a_coded_error(cli: str, model: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    # No temporary file can be made beside it, or none can be renamed over it; either way it stays a device.
    finished = subprocess.run(
        [cli, "compile", str(model), "-o", "/proc/out.aicf"], capture_output=True, text=True
    )
    assert finished.returncode == 3
    assert "error[AICF-E0001]" in finished.stderr


def test_unreadable_and_unwritable_paths_are_coded_errors(cli: str, model: Path, tmp_path: Path) -> None:
    assert "No such file" in failing_compile(cli, model, tmp_path / "missing" / "out.aicf")
    (tmp_path / "file").write_text("")
    failing_compile(cli, model, tmp_path / "file" / "out.aicf")
    (tmp_path / "folder").mkdir()
    failing_compile(cli, model, tmp_path / "folder")
    assert files_but(tmp_path, "file", "folder") == []

    for source in (tmp_path / "nothing.onnx", tmp_path / "folder", tmp_path / "file" / "model.onnx"):
        finished = subprocess.run([cli, "compile", str(source)], capture_output=True, text=True, cwd=tmp_path)
        assert finished.returncode == 2, finished.stderr
        assert "error[AICF-U" in finished.stderr and "remedy:" in finished.stderr
