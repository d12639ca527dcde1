"""Peak memory of MiniLM: growth of a process's high-water mark from after its imports to after 50 runs.

`peak_growth` starts a process for one program; run as
`python -m bench.peak_memory PROGRAM FILE BATCH SEQUENCE THREADS` it is that process and prints bytes.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

__all__ = ["PROGRAMS", "peak_growth"]

RUNS = 50
PROGRAMS = ("aicf", "onnxruntime")
_ROOT = Path(__file__).resolve().parents[1]

Inputs = dict[str, np.ndarray]
Loader = Callable[[str, int], Callable[[Inputs], object]]


def _high_water_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return 1024 * int(line.split()[1])
    raise RuntimeError("/proc/self/status has no VmHWM line")


def _import_aicf() -> Loader:
    import aicf

    def load(path: str, threads: int) -> Callable[[Inputs], object]:
        exe = aicf.load(path, threads=threads)
        return lambda inputs: exe(**inputs)

    return load


def _import_onnxruntime() -> Loader:
    from examples.minilm.onnxruntime_peer import OnnxRuntimeMiniLm

    return OnnxRuntimeMiniLm


def _measure(program: str, path: str, batch: int, sequence: int, threads: int) -> int:
    from examples.minilm.tokenizer import random_inputs

    load = {"aicf": _import_aicf, "onnxruntime": _import_onnxruntime}[program]()
    inputs = random_inputs(batch, sequence)
    before = _high_water_bytes()
    run = load(path, threads)
    for _ in range(RUNS):
        run(inputs)
    return _high_water_bytes() - before


def peak_growth(program: str, path: Path, batch: int, sequence: int, threads: int) -> int:
    """Bytes; `path` is the artifact for aicf and the ONNX file for onnxruntime."""
    numbers = [str(number) for number in (batch, sequence, threads)]
    command = [sys.executable, "-m", "bench.peak_memory", program, str(path.resolve()), *numbers]
    finished = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=_ROOT)
    return int(finished.stdout)


if __name__ == "__main__":
    print(_measure(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])))
