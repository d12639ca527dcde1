"""On a GPU (AICF_TEST_DEVICE=cuda) one graph and single launches, AICF_CUDA_GRAPHS=0, give the same bits."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

# Prints the hashes of replays of a block, of convolutions, and of five training steps.
PROGRAM = """
import sys, aicf, numpy as np
from aicf import nn, ops, optim

device, rng = sys.argv[1], np.random.default_rng(0)
nn.seed(0)

def block(x, w, v):
    h = ops.gelu(x @ w)
    q, k = (h * s for s in (0.5, 2.0))
    return ops.softmax(q @ k.transpose([0, 2, 1]), axis=-1) @ h + x @ v, ops.reduce_sum(h, axes=[1, 2])

arrays = [rng.standard_normal(s).astype("f") for s in ((4, 33, 64), (64, 96), (64, 96))]
layers = nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 5)
images = [aicf.TensorSpec(("batch", 3, 8, 8))]
models = {
    "block": aicf.compile(block, arrays, device=device),
    "halves": aicf.compile(block, [aicf.TensorSpec(a.shape, "bf16") for a in arrays], device=device),
    "image": aicf.compile(nn.Sequential(*layers), images, dims={"batch": "1..8"}, device=device),
}
for name, exe in models.items():
    found = exe.verify(n=20)
    print(name, found.passed, sorted(found.hashes))
step = aicf.compile_train_step(
    nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Dropout(0.1), nn.LayerNorm(32), nn.Linear(32, 4)),
    nn.CrossEntropyLoss(), optim.AdamW(1e-2),
    [aicf.TensorSpec((64, 16)), aicf.TensorSpec((64,), "i64", "labels")], clip_norm=1.0, device=device)
x = rng.standard_normal((64, 16)).astype("f")
for _ in range(5):
    step(x, x[:, :4].argmax(1))
print("step", step.hash())
"""


def outcome(device: str, graphs: str) -> str:
    environment = os.environ | {"AICF_CUDA_GRAPHS": graphs}
    command = [sys.executable, "-c", PROGRAM, device]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_graphs_and_single_launches_give_the_same_bits() -> None:
    if os.environ.get("AICF_TEST_DEVICE") != "cuda":
        pytest.skip("needs a GPU: AICF_TEST_DEVICE=cuda")
    one_graph = outcome("cuda", "1")
    assert outcome("cuda", "0") == one_graph
    assert one_graph.count("True") == 3 and "step " in one_graph


def test_the_program_of_this_test_runs() -> None:
    lines = outcome("cpu", "1").splitlines()
    assert [line.split()[0] for line in lines] == ["block", "halves", "image", "step"]
    assert outcome("cpu", "1").splitlines() == lines
