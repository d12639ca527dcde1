"""`aicf train`: the bits of Python without Python, and no way to lose a run."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import aicf
import numpy as np
import pytest

Batch = tuple[np.ndarray, np.ndarray]
Make = Callable[..., aicf.TrainStep]
Train = Callable[..., subprocess.CompletedProcess[str]]
KILLS = 50 if os.environ.get("AICF_SOAK") == "1" else 5
STEPS = 3000


@pytest.fixture
def folder(make_step: Make, data: Batch, tmp_path: Path) -> Path:
    make_step(accumulate=2).save(tmp_path / "step.aicf")
    np.save(tmp_path / "x.npy", data[0])
    np.save(tmp_path / "y.npy", data[1])
    return tmp_path


def command(cli: str, *arguments: object) -> list[str]:
    fixed = ["train", "step.aicf", "--data", "x.npy", "--labels", "y.npy", "--json"]
    return [cli, *fixed, *map(str, arguments)]


@pytest.fixture
def train(cli: str, folder: Path) -> Train:
    def run(*arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command(cli, *arguments), cwd=folder, capture_output=True, text=True, timeout=300, **options
        )

    return run


def state(finished: subprocess.CompletedProcess[str]) -> str:
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return json.loads(finished.stdout)["hash"]


def error(finished: subprocess.CompletedProcess[str]) -> dict:
    assert finished.returncode in (2, 3), finished.stdout + finished.stderr
    return json.loads(finished.stdout)["error"]


def test_it_reaches_the_bits_of_python(train: Train, folder: Path, data: Batch) -> None:
    step = aicf.load_train_step(folder / "step.aicf")
    x, y = data
    for number in range(60):
        order = aicf.shuffled_rows(len(x), 7, number // 12)
        rows = order[number % 12 * 16 :][:16]
        step(x[rows], y[rows])
    for threads in (1, 2):
        finished = train("--steps", 30, "--seed", 7, "--threads", threads, "-o", "trained.aicf")
        assert state(finished) == step.hash()
    assert aicf.load_train_step(folder / "trained.aicf").hash() == step.hash()


def test_killed_at_any_moment_it_resumes_to_the_same_bits(train: Train, cli: str, folder: Path) -> None:
    start = time.monotonic()
    whole = state(train("--steps", STEPS, "--checkpoint", "whole", "--checkpoint-every", 50))
    seconds = time.monotonic() - start
    number = random.Random(11)
    for _ in range(KILLS):
        for path in folder.glob("killed*"):
            path.unlink()
        arguments = ("--steps", STEPS, "--checkpoint", "killed", "--checkpoint-every", 50, "--resume")
        while True:
            process = subprocess.Popen(command(cli, *arguments), cwd=folder, stdout=subprocess.DEVNULL)
            time.sleep(number.uniform(0.0, seconds))
            process.send_signal(signal.SIGKILL)
            process.wait()
            if (folder / "killed").exists():
                break
        assert state(train(*arguments)) == whole
        assert [p.name for p in folder.glob("killed*")] == ["killed"]


def test_a_full_disk_leaves_the_checkpoint_before(train: Train, folder: Path) -> None:
    state(train("--steps", 20, "--checkpoint", "kept"))
    before = (folder / "kept").read_bytes()
    size = len(before) // 2  # no file may grow beyond it

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    finished = train("--steps", 40, "--checkpoint", "kept", "--resume", preexec_fn=limit)
    assert finished.returncode == 3 and error(finished)["code"] == "AICF-E0001"
    assert (folder / "kept").read_bytes() == before


def test_data_that_is_not_finite_is_named(train: Train, folder: Path, data: Batch) -> None:
    x = data[0].copy()
    x[17] = np.nan
    np.save(folder / "x.npy", x)
    found = error(train("--steps", 20))
    assert (found["code"], found["value"]) == ("AICF-U0806", "loss")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--steps", "0"], "AICF-U0001"),
        (["--steps", "9", "--data", "z=x.npy"], "AICF-U0401"),
        (["--steps", "9", "--batch", "500"], "AICF-U0001"),
        (["--steps", "9", "--batch", "8"], "AICF-U0403"),
        (["--steps", "9", "--data", "labels=none.npy"], "AICF-U0003"),
        (["--steps", "9", "--checkpoint", "kept", "--resume", "--seed", "3"], "AICF-U0805"),
        (["--steps", "9", "--checkpoint", "x.safetensors", "--resume"], "AICF-U0805"),
        (["--steps", "9", "--checkpoint", "kept", "--resume", "--data", "y=x.npy"], "AICF-U0401"),
        (["--steps", "9", "--data", "x.npy"], "AICF-U0001"),
        (["--steps", "9", "--batch", "0"], "AICF-U0001"),
        (["--steps", "9", "--in-order", "--seed", "3"], "AICF-U0001"),
        (["--steps", str(2**63 - 1)], "AICF-U0001"),
        (["--steps", "9", "--checkpoint-every", str(2**62)], "AICF-U0001"),
        (["--steps", "9", "--checkpoint", "./x.npy"], "AICF-U0001"),
        (["--steps", "9", "--checkpoint", "step.aicf"], "AICF-U0001"),
        (["--steps", "9", "--checkpoint", "new", "-o", "new"], "AICF-U0001"),
        (["--steps", "9", "--checkpoint", "./new", "-o", "new"], "AICF-U0001"),
        (["--steps", "9", "-o", "y.npy"], "AICF-U0001"),
        (["--steps", str(10**12), "-o", "nowhere/trained.aicf"], "AICF-E0001"),
        (["--steps", str(10**12), "--checkpoint", "nowhere/kept"], "AICF-E0001"),
    ],
)
def test_mistakes_have_codes(train: Train, folder: Path, arguments: list[str], code: str) -> None:
    state(train("--steps", 4, "--checkpoint", "kept"))
    aicf.save_safetensors(str(folder / "x.safetensors"), {"a": np.ones(3, np.float32)})
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert error(train(*arguments))["code"] == code
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_other_data_of_the_same_shape_is_refused(train: Train, folder: Path, data: Batch) -> None:
    state(train("--steps", 4, "--checkpoint", "kept"))
    np.save(folder / "x.npy", data[0] + 1)
    found = error(train("--steps", 9, "--checkpoint", "kept", "--resume"))
    assert found["code"] == "AICF-U0805" and found["expected"] != found["actual"]


@pytest.mark.parametrize("batches", ["-5", "x", "", "8 ", "1e3", "9" * 20])
def test_a_count_of_batches_that_is_none_is_refused(train: Train, folder: Path, batches: str) -> None:
    state(train("--steps", 4, "--checkpoint", "kept"))
    step = aicf.load_train_step(folder / "step.aicf")
    metadata = step.load_checkpoint(folder / "kept")
    step.save_checkpoint(folder / "kept", {**metadata, "aicf.train.batches": batches})
    assert error(train("--steps", 9, "--checkpoint", "kept", "--resume"))["code"] == "AICF-U0805"


def test_a_checkpoint_with_a_wrong_byte_is_refused(train: Train, folder: Path) -> None:
    state(train("--steps", 4, "--checkpoint", "kept"))
    whole = (folder / "kept").read_bytes()
    begin = 8 + int.from_bytes(whole[:8], "little")
    for at in range(begin, len(whole), (len(whole) - begin) // 7):
        (folder / "kept").write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        found = error(train("--steps", 9, "--checkpoint", "kept", "--resume"))
        assert found["code"] == "AICF-U0805" and found["expected"] != found["actual"]
    tensors = aicf.load_safetensors(str(folder / "kept"))
    aicf.save_safetensors(str(folder / "kept"), tensors, {"aicf.checkpoint": "1"})
    found = error(train("--steps", 9, "--checkpoint", "kept", "--resume"))
    assert "aicf.train.batches" in found["expected"]  # no hash, but no place in the data either


def test_a_run_that_was_over_takes_no_step(train: Train, folder: Path) -> None:
    done = state(train("--steps", 4, "--checkpoint", "kept"))
    again = train("--steps", 3, "--checkpoint", "kept", "--resume")
    assert state(again) == done and json.loads(again.stdout)["loss"] is None


@pytest.mark.parametrize("order", [b"'maybe'", b"Fortran"])
def test_an_array_of_no_order_is_refused(train: Train, folder: Path, order: bytes) -> None:
    array = (folder / "x.npy").read_bytes()
    (folder / "x.npy").write_bytes(array.replace(b"False, 's", order + b", 's"))
    assert error(train("--steps", 4))["code"] == "AICF-U0300"


def test_a_model_without_a_step_is_refused(train: Train, folder: Path) -> None:
    model = aicf.nn.Linear(3, 3)
    aicf.compile(model, [aicf.TensorSpec((1, 3))]).save(folder / "step.aicf")
    assert error(train("--steps", 4))["code"] == "AICF-U0807"
