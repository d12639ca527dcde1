"""Training steps on the CPU, interleaved with eager torch and torch.compile: the digits network 64-128-10 at
batch 64 with AdamW, f32. Needs torch (requirements-torch.txt).

Every program takes batches that are ready in memory and makes `--steps` steps for each sample. Writes the raw
samples with machine, versions and command as JSON; prints medians, quartiles and ratios.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import aicf
import numpy as np
import torch
from aicf import nn, optim

from bench.machine import describe_machine, measured_tree, physical_cores, versions
from bench.stats import interleave, quartiles, ratios

BATCH, FEATURES, HIDDEN, CLASSES = 64, 64, 128, 10
RATE, DECAY = 1e-3, 0.01
Program = Callable[[], object]


def batch() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.standard_normal((BATCH, FEATURES)).astype(np.float32), rng.integers(0, CLASSES, BATCH)


def ours(threads: int, steps: int) -> tuple[Program, aicf.TrainStep]:
    x, y = batch()
    step = aicf.compile_train_step(
        nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES)),
        nn.CrossEntropyLoss(),
        optim.AdamW(RATE, weight_decay=DECAY),
        [aicf.TensorSpec(x.shape), aicf.TensorSpec(y.shape, "i64", "labels")],
        threads=threads,
    )

    def run() -> None:
        for _ in range(steps):
            step(x, y)

    return run, step


def peer(compiled: bool, steps: int) -> Program:
    x, y = (torch.from_numpy(a) for a in batch())
    model = torch.nn.Sequential(
        torch.nn.Linear(FEATURES, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, CLASSES)
    )
    # The fastest of torch's own forms of the optimizer on the CPU.
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=DECAY, fused=True)

    def loss_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(model(x), y)

    forward = torch.compile(loss_of) if compiled else loss_of

    def run() -> None:
        for _ in range(steps):
            optimizer.zero_grad(set_to_none=True)
            forward(x, y).backward()
            optimizer.step()

    return run


def measure(threads: int, rounds: int, steps: int) -> dict[str, Any]:
    torch.set_num_threads(threads)
    program, step = ours(threads, steps)
    programs = {"aicf": program, "eager": peer(False, steps), "torch.compile": peer(True, steps)}
    samples = interleave(programs, rounds)
    peers = [name for name in samples if name != "aicf"]
    return {
        "model": "digits MLP 64-128-10 batch 64 AdamW",
        "kernels": step.plan.kernels,
        "microseconds": {
            name: quartiles(values).scaled(1e6 / steps).as_dict() for name, values in samples.items()
        },
        "ratio": {name: ratios(samples[name], samples["aicf"]).as_dict() for name in peers},
        "samples_seconds": samples,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=physical_cores())
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--steps", type=int, default=20, help="steps of a sample")
    parser.add_argument("--output", type=Path, default=Path("build/bench-results/train_models.json"))
    options = parser.parse_args()
    row = measure(options.threads, options.rounds, options.steps)
    for name, value in row["microseconds"].items():
        ratio = f"  ratio {row['ratio'][name]['median']:.2f}" if name in row["ratio"] else ""
        print(f"{name:14s} {value['median']:8.1f} µs a step ({value['q1']:.1f} to {value['q3']:.1f}){ratio}")
    options.output.parent.mkdir(parents=True, exist_ok=True)
    report = {
        "machine": describe_machine(),
        **measured_tree(),
        "versions": versions(("torch", "numpy")),
        "command": shlex.join(sys.argv),
        "threads": options.threads,
        "steps_of_a_sample": options.steps,
        "rows": [row],
    }
    options.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
