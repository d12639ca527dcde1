"""Every size of MiniLM's ranges gives the bits of the model compiled at it; a row alone, those in a batch.

Takes the ONNX file that `make demo` writes and compares through the command line: `count` sizes drawn from
batch 1..8 and sequence 16..512, one thread on one side and two on the other, then each row of a batch by
itself. Exit 1 if anything differs.

    scripts/check_sizes.py build/bin/aicf build/demo/minilm.onnx 200
"""

from __future__ import annotations

import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

RANGES = ("batch=1..8", "sequence=16..512")


def call(tool: str, *arguments: str) -> str:
    return subprocess.run([tool, *arguments], check=True, capture_output=True, text=True).stdout


def dims(*values: str) -> list[str]:
    return [part for value in values for part in ("--dim", value)]


def replay_hash(tool: str, model: str, batch: int, sequence: int, threads: int) -> str:
    sizes = dims(f"batch={batch}", f"sequence={sequence}")
    once = ["--input", "random", "-n", "1", "--seed", "3", "--threads", str(threads)]
    text = call(tool, "verify", model, *sizes, *once)
    found = re.search(r"1 hash ([0-9a-f]+)", text)
    if found is None:
        raise RuntimeError(f"no hash in: {text}")
    return found.group(1)


def outputs(tool: str, artifact: str, arrays: dict[str, np.ndarray], folder: Path) -> dict[str, np.ndarray]:
    np.savez(folder / "in.npz", **arrays)
    call(tool, "run", artifact, "--input", str(folder / "in.npz"), "--output-dir", str(folder / "out"))
    return {path.stem: np.load(path) for path in (folder / "out").glob("*.npy")}


def differing_rows(tool: str, artifact: str, batch: int, sequence: int, folder: Path) -> int:
    generator = np.random.default_rng(sequence)
    ids = generator.integers(0, 30000, (batch, sequence))
    mask = (np.arange(sequence)[None, :] < generator.integers(8, sequence, (batch, 1))).astype(np.int64)
    arrays = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
    whole = outputs(tool, artifact, arrays, folder)
    differing = 0
    for row in range(batch):
        alone = outputs(tool, artifact, {k: v[row : row + 1] for k, v in arrays.items()}, folder)
        differing += any(alone[name][0].tobytes() != whole[name][row].tobytes() for name in whole)
    return differing


def main() -> int:
    tool, model, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    draw = random.Random(int(sys.argv[4]) if len(sys.argv) > 4 else 1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        artifact = str(folder / "ranges.aicf")
        call(tool, "compile", model, *dims(*RANGES), "-o", artifact)
        differing = 0
        for _ in range(count):
            batch, sequence = draw.randint(1, 8), draw.randint(16, 512)
            ours = replay_hash(tool, artifact, batch, sequence, 2)
            if ours != replay_hash(tool, model, batch, sequence, 1):
                print(f"batch {batch}, sequence {sequence}: differs from the model compiled at this size")
                differing += 1
        rows = sum(differing_rows(tool, artifact, 8, sequence, folder) for sequence in (17, 64, 129))
    print(f"sizes: {count} compared, {differing} differ; rows alone: 24 compared, {rows} differ")
    return 1 if differing or rows else 0


if __name__ == "__main__":
    sys.exit(main())
