"""Loads an artifact in a process of its own, where neither the compiler nor the model file was ever touched.

Run as `python -m examples.minilm.fresh_process ARTIFACT INPUTS.npz OUTPUTS.npz` it evaluates every batch of
the input file and prints its times as JSON; `embed_in_fresh_process` does that from another program.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import aicf
import numpy as np

from .agreement import Outputs

__all__ = ["Embedded", "embed_in_fresh_process", "run_minilm", "store_inputs"]

Inputs = dict[str, np.ndarray]
_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Embedded:
    """What the fresh process hands back; the times start before the load and after the imports."""

    load_ms: float
    first_result_ms: float
    outputs: list[Outputs]

    @property
    def embeddings(self) -> np.ndarray:
        return np.concatenate([embedding for _, embedding in self.outputs])


def run_minilm(exe: Callable[..., Sequence[object]], inputs: Inputs) -> Outputs:
    hidden, embedding = exe(**inputs)
    return np.asarray(hidden), np.asarray(embedding)


def _store(path: Path, groups: Sequence[Inputs]) -> None:
    arrays = {f"{index}/{name}": value for index, group in enumerate(groups) for name, value in group.items()}
    np.savez(path, allow_pickle=False, **arrays)


def store_inputs(path: Path, inputs: Inputs) -> None:
    """One batch by the names of its inputs, for `aicf run MODEL --input inputs.npz`."""
    np.savez(path, **inputs)


def _read(path: Path) -> list[Inputs]:
    groups: dict[int, Inputs] = {}
    with np.load(path) as stored:
        for key in stored.files:
            index, _, name = key.partition("/")
            groups.setdefault(int(index), {})[name] = stored[key]
    return [groups[index] for index in range(len(groups))]


def embed_in_fresh_process(artifact: Path, inputs: Sequence[Inputs]) -> Embedded:
    """Evaluates all batches in one new process; a failure there is raised here."""
    inputs_file, outputs_file = artifact.with_name("batches.npz"), artifact.with_name("outputs.npz")
    _store(inputs_file, inputs)
    store_inputs(artifact.with_name("inputs.npz"), inputs[0])
    files = [str(path.resolve()) for path in (artifact, inputs_file, outputs_file)]
    command = [sys.executable, "-m", "examples.minilm.fresh_process", *files]
    finished = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=_ROOT)
    times = json.loads(finished.stdout)
    outputs = [(group["hidden"], group["embedding"]) for group in _read(outputs_file)]
    return Embedded(times["load_ms"], times["first_result_ms"], outputs)


def _main(artifact: str, inputs_file: str, outputs_file: str) -> None:
    inputs = _read(Path(inputs_file))
    start = time.perf_counter()
    exe = aicf.load(artifact)
    loaded = time.perf_counter()
    results = [run_minilm(exe, inputs[0])]
    first = time.perf_counter()
    results += [run_minilm(exe, group) for group in inputs[1:]]
    _store(Path(outputs_file), [{"hidden": hidden, "embedding": embedding} for hidden, embedding in results])
    print(json.dumps({"load_ms": 1e3 * (loaded - start), "first_result_ms": 1e3 * (first - start)}))


if __name__ == "__main__":
    _main(*sys.argv[1:])
