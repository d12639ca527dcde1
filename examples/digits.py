"""Trains a small network on scikit-learn's 8×8 digits and prints its accuracy on digits it has not seen.

    python examples/digits.py [--export FOLDER]

--export writes step.aicf, x.npy and y.npy, from which `aicf train` and the C++ example train the same without
Python.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import aicf
import numpy as np
from aicf import nn, optim

BATCH, EPOCHS, TEST_EVERY = 64, 80, 5


def load() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Images as rows of 64 numbers in 0..1 and labels; every fifth digit is kept for the test."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    x, y = (digits.data / 16).astype(np.float32), digits.target.astype(np.int64)
    test = np.arange(len(x)) % TEST_EVERY == 0
    return x[~test], y[~test], x[test], y[test]


def compile_step(test_rows: int, steps: int, device: str = "cpu") -> aicf.TrainStep:
    """The step of a 64-128-10 network."""
    nn.seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    return aicf.compile_train_step(
        model,
        loss=nn.CrossEntropyLoss(),
        optimizer=optim.AdamW(optim.cosine(5e-3, total=steps, warmup=20)),
        inputs=[aicf.TensorSpec((BATCH, 64)), aicf.TensorSpec((BATCH,), "i64", "labels")],
        eval_inputs=[aicf.TensorSpec((test_rows, 64))],
        device=device,
    )


def train(step: aicf.TrainStep, x: np.ndarray, y: np.ndarray, steps: int, seed: int = 0) -> float:
    """Visits the rows in the order of `aicf train --seed`; gives the last loss."""
    per_epoch = len(x) // BATCH
    loss: float = float("nan")
    for number in range(steps):
        if number % per_epoch == 0:
            order = aicf.shuffled_rows(len(x), seed, number // per_epoch)
        rows = order[number % per_epoch * BATCH :][:BATCH]
        loss = float(np.asarray(step(x[rows], y[rows])))
    return loss


def export(folder: Path, step: aicf.TrainStep, x: np.ndarray, y: np.ndarray) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    step.save(folder / "step.aicf")
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", y)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--export", type=Path, help="folder for the untrained step and its data")
    folder = parser.parse_args().export
    x, y, test_x, test_y = load()
    steps = len(x) // BATCH * EPOCHS
    step = compile_step(len(test_x), steps)
    if folder is not None:
        export(folder, step, x, y)
    start = time.perf_counter()
    loss = train(step, x, y, steps)
    seconds = time.perf_counter() - start
    step.require_finite()
    right = np.asarray(step.evaluate(test_x)).argmax(1) == test_y
    print(f"{steps} steps in {seconds:.2f} s, loss {loss:.4f}, state {step.hash()}")
    print(f"accuracy: {100 * right.mean():.2f} %")


if __name__ == "__main__":
    main()
